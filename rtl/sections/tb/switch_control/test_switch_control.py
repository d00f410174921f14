"""switch_control: every announced packet is connected once, to an output of its type that has room, an input's in their order."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge, Timer


class Model:
    """Announces packets, carries them over for a few cycles each, and lets them leave the outputs."""

    def __init__(self, dut, seed, announce, turn, busy, sent, leave):
        self.dut, self.random = dut, random.Random(seed)
        self.inputs, self.outputs, self.types, self.in_frames, self.out_frames = (
            int(getattr(dut, name).value) for name in ("Inputs", "Outputs", "Types", "InFrames", "OutFrames")
        )
        self.shares = {"announce": announce, "turn": turn, "busy": busy, "sent": sent, "leave": leave}
        self.out_types = [m % self.types for m in range(self.outputs)]
        self.clear()

    def clear(self):
        self.announced = [deque() for _ in range(self.inputs)]  # types
        self.registered = [deque() for _ in range(self.inputs)]
        self.turns = [False] * self.inputs
        self.over = [None] * self.inputs  # [output, beats that are left]
        self.load = [0] * self.outputs  # packets connected that have not left
        self.behind = [0] * self.outputs  # those of which the last beat is in the output's FIFO
        self.busy = [True] * self.outputs
        self.total, self.connected = 0, 0
        self.sent = None

    def chance(self, name):
        return self.random.random() < self.shares[name]

    def drive(self, more):
        dut, bits = self.dut, lambda flags: sum(bool(flag) << i for i, flag in enumerate(flags))
        for i in range(self.inputs):
            if more and len(self.announced[i]) < self.in_frames and self.chance("announce"):
                self.announced[i].append(self.random.choice(self.out_types))
                self.total += 1
            # Given, a turn stays until it was used.
            self.turns[i] = self.turns[i] or self.chance("turn")
        self.done = [transfer is not None and transfer[1] == 0 for transfer in self.over]
        self.left = [behind > 0 and self.chance("leave") for behind in self.behind]
        self.busy = [self.chance("busy") for _ in range(self.outputs)]
        width = max(1, (self.types - 1).bit_length())
        dut.frame_valid_i.value = bits(self.announced)
        # Where nothing is announced the type means nothing.
        dut.frame_type_i.value = sum((f[0] if f else self.random.randrange(self.types)) << width * i for i, f in enumerate(self.announced))
        dut.frame_turn_i.value, dut.in_done_i.value, dut.out_left_i.value = bits(self.turns), bits(self.done), bits(self.left)
        dut.out_busy_i.value, dut.sent_ready_i.value = bits(self.busy), self.chance("sent")
        dut.out_type_i.value = sum(type_ << width * m for m, type_ in enumerate(self.out_types))

    def connections(self):
        dut = self.dut
        in_width, out_width = (max(1, (count - 1).bit_length()) for count in (self.inputs, self.outputs))
        field = lambda signal, width, index: int(signal.value) >> width * index & (1 << width) - 1  # noqa: E731
        forward = {i: field(dut.in_output_o, out_width, i) for i in range(self.inputs) if int(dut.in_connected_o.value) >> i & 1}
        back = {field(dut.out_input_o, in_width, m): m for m in range(self.outputs) if int(dut.out_connected_o.value) >> m & 1}
        assert forward == back
        return forward

    async def cycle(self, more=True):
        await Timer(1, "ns")  # what is connected now; a packet of one beat is over at once
        dut, forward = self.dut, self.connections()
        if self.sent is not None:
            (source,) = [i for i, m in forward.items() if m == self.sent]
            assert self.over[source] is None and self.registered[source]
            assert self.registered[source].popleft() == self.out_types[self.sent]
            self.over[source] = [self.sent, self.random.choice((0, 0, 1, 2, 7))]
            self.load[self.sent] += 1
            self.connected += 1
            assert self.load[self.sent] <= self.out_frames
        assert forward == {i: transfer[0] for i, transfer in enumerate(self.over) if transfer}
        self.drive(more)
        await ReadOnly()
        ready = int(dut.frame_ready_o.value)
        assert ready.bit_count() <= 1
        for i in range(self.inputs):
            if ready >> i & 1:
                assert self.turns[i]
                self.turns[i] = False
                self.registered[i].append(self.announced[i].popleft())
                assert len(self.registered[i]) <= self.in_frames + 1
        for i, transfer in enumerate(self.over):
            if transfer and self.done[i]:
                self.behind[transfer[0]] += 1
                self.over[i] = None
            elif transfer:
                transfer[1] = max(0, transfer[1] - 1)
        for m, left in enumerate(self.left):
            self.behind[m] -= left
            self.load[m] -= left
        self.sent = int(dut.sent_output_o.value) if dut.sent_valid_o.value == 1 else None
        await RisingEdge(dut.clk_i)

    async def run(self, cycles):
        for _ in range(cycles):
            await self.cycle()

    async def drain(self):
        self.shares |= {"turn": 0.5, "busy": 0.5, "sent": 0.5, "leave": 0.5}
        for _ in range(40 * self.total + 200):
            await self.cycle(more=False)
            if self.connected == self.total and not any(self.load):
                return
        raise AssertionError(f"stuck: {self.connected} of {self.total}")


SHARES = (
    (1, 1, 0, 1, 1), (0.1, 1, 0, 1, 1), (1, 0.2, 0, 1, 1), (1, 1, 0.7, 1, 1), (1, 1, 0, 0.3, 1), (1, 1, 0, 1, 0.1),
    (0.5, 0.5, 0.5, 0.5, 0.5),
)  # fmt: skip


@cocotb.test()
async def every_packet_is_connected_once(dut):
    await bench.start(dut)
    for seed, shares in enumerate(SHARES):
        model = Model(dut, seed, *shares)
        await model.run(400)
        assert model.connected > 10
        await model.drain()
        await bench.reset(dut)


@cocotb.test()
async def reset_on_the_way(dut):
    await bench.start(dut)
    for cycles in (1, 2, 3, 5, 8, 13, 40):
        model = Model(dut, cycles, 1, 1, 0, 1, 0.3)
        await model.run(cycles)
        await bench.reset(dut)
        model.clear()
        await model.run(100)
        await model.drain()


@bench.parameter_sets("inputs,outputs,types,ahead", ((4, 4, 2, 1), (3, 5, 3, 2), (1, 1, 1, 1)))
def test_switch_control(inputs, outputs, types, ahead):
    bench.run("switch_control", {"Inputs": inputs, "Outputs": outputs, "Types": types, "InFrames": 4, "OutFrames": ahead})
