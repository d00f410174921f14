"""section_switch: units that take as long as they like give their packets on in the order in which they came."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge
from streams import beat_bytes, beats

INPUTS, USER = 3, 16
UNITS = (1, 1, 3, 1, 0)  # sections_pkg::unit_e
NOBODY = 4


def pack(values, width):
    return sum(value << width * at for at, value in enumerate(values))


class Section:
    """Sources, units and the next switch, cycle by cycle."""

    def __init__(self, dut, seed, idle, slow):
        self.dut, self.random, self.idle, self.slow = dut, random.Random(seed), idle, slow
        self.sending = [deque() for _ in range(INPUTS)]  # (beat, user, type)
        self.offered = [False] * INPUTS
        self.expected = {}  # (input, type) -> frames
        self.busy = [None] * len(UNITS)  # the packet inside a unit: [bytes, user, cycles left]
        self.count = self.taken = self.wanted_by_nobody = self.dropped = self.early = 0

    def offer(self):
        source, type_ = self.random.randrange(INPUTS), self.random.choice((0, 1, 1, 3, NOBODY))
        frame = self.random.randbytes(self.random.randint(1, 150))
        user = self.count << 2 | source
        self.sending[source].extend((value, user, type_) for value in beats(frame))
        self.count += 1
        if type_ == NOBODY:
            self.wanted_by_nobody += 1
        else:
            self.expected.setdefault((source, type_), deque()).append((user, frame))

    async def cycle(self):
        dut = self.dut
        for at, queue in enumerate(self.sending):
            self.offered[at] = bool(queue) and (self.offered[at] or self.random.random() >= self.idle)
        heads = [queue[0] if queue and offered else (0, 0, 0) for queue, offered in zip(self.sending, self.offered, strict=True)]
        dut.s_valid_i.value = pack(self.offered, 1)
        dut.s_beat_i.value, dut.s_user_i.value, dut.s_type_i.value = (
            pack([head[part] for head in heads], width) for part, width in enumerate((145, USER, 3))
        )
        # A unit takes beats until its packet's last.
        ready = [unit is None or unit[2] is None for unit in self.busy]
        dut.m_ready_i.value = pack(ready, 1)
        # The next switch takes one packet a cycle, of a unit that has finished and whose turn it is.
        done = [at for at, unit in enumerate(self.busy) if unit and unit[2] == 0]
        turn = int(dut.turn_o.value)
        self.early += any(not turn >> at & 1 for at in done)
        mine = [at for at in done if turn >> at & 1]
        chosen = self.random.choice(mine) if mine else None
        dut.taken_i.value = 0 if chosen is None else 1 << chosen
        await ReadOnly()
        accepted, valid = int(dut.s_ready_o.value), int(dut.m_valid_o.value)
        out, users = int(dut.m_beat_o.value), int(dut.m_user_o.value)
        self.dropped += int(dut.dropped_o.value)
        for at in range(INPUTS):
            if self.offered[at] and accepted >> at & 1:
                self.sending[at].popleft()
                self.offered[at] = False
        if chosen is not None:
            data, user, _ = self.busy[chosen]
            assert (user, data) == self.expected[user & 3, UNITS[chosen]].popleft()
            self.busy[chosen] = None
            self.taken += 1
        for at, unit in enumerate(self.busy):
            if unit and unit[2]:
                unit[2] -= 1
            if ready[at] and valid >> at & 1:
                data, last = beat_bytes(out >> 145 * at & (1 << 145) - 1)
                unit = unit or [b"", users >> USER * at & (1 << USER) - 1, None]
                self.busy[at] = [unit[0] + data, unit[1], self.random.randrange(self.slow) if last else None]
        await RisingEdge(dut.clk_i)

    async def all(self, packets):
        for _ in range(packets):
            self.offer()
        for _ in range(packets * (40 + self.slow)):
            if self.taken + self.dropped == self.count:
                break
            await self.cycle()
        assert self.taken + self.dropped == self.count and self.dropped == self.wanted_by_nobody
        assert not any(self.expected.values())


async def begin(dut):
    for port in ("s_valid_i", "m_ready_i", "taken_i"):
        getattr(dut, port).value = 0
    dut.s_turn_i.value = (1 << INPUTS) - 1
    dut.m_type_i.value = pack(UNITS, 3)
    await bench.start(dut)


@cocotb.test()
async def in_their_order(dut):
    await begin(dut)
    for seed, (idle, slow) in enumerate(((0, 1), (0.5, 20), (0, 60), (0.9, 5))):
        section = Section(dut, seed, idle, slow)
        await section.all(120)
        # Some had finished before it was their turn.
        assert slow < 20 or section.early


@cocotb.test()
async def reset_in_mid_frame(dut):
    await begin(dut)
    for seed in range(4):
        section = Section(dut, seed, 0.3, 10)
        for _ in range(30):
            section.offer()
        for _ in range(41 + 17 * seed):
            await section.cycle()
        await bench.reset(dut)
    await Section(dut, 9, 0.3, 10).all(40)


def test_section_switch():
    sizes = {"Inputs": INPUTS, "Outputs": len(UNITS), "UserWidth": USER, "InDepth": 16, "InFrames": 4, "OutRegister": "1'b1"}
    bench.run("section_switch", sizes)
