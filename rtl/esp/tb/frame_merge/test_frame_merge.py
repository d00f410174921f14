"""frame_merge: frames of both streams leave whole, each stream's in its order, and neither waits for long."""

import random

import bench
import cocotb
from cocotb.triggers import RisingEdge
from streams import beats, until


class Inputs:
    """Both streams: their signals are one array, so one task drives them."""

    def __init__(self, dut, queues, shares):
        self.dut, self.queues = dut, queues
        self.pauses = [bench.pauses(share, 10 + n) for n, share in enumerate(shares)]
        self.task = cocotb.start_soon(self.run())

    async def run(self):
        dut, offered = self.dut, [None, None]
        while True:
            valid = beat = user = 0
            for n, word in enumerate(offered):
                if word is not None:
                    valid |= 1 << n
                    beat |= word[0] << 145 * n
                    user |= word[1] << 32 * n
            dut.valid_i.value, dut.beat_i.value, dut.user_i.value = valid, beat, user
            await RisingEdge(dut.clk_i)
            ready = int(dut.ready_o.value)
            for n in range(2):
                if offered[n] is not None and ready >> n & 1:
                    offered[n] = None
                if offered[n] is None and self.queues[n] and not next(self.pauses[n]):
                    offered[n] = self.queues[n].pop(0)


async def exchange(dut, idle=(0.0, 0.0), back_pressure=0.0, count=60, seed=1):
    source = random.Random(seed)
    sent = [[(source.randbytes(source.choice((1, 16, 17, 40, source.randrange(1, 200)))), n << 31 | k) for k in range(count)]
            for n in range(2)]
    inputs = Inputs(dut, [[(beat, user) for frame, user in frames for beat in beats(frame)] for frames in sent], idle)
    got, rest, left, slow = [], b"", [], bench.pauses(back_pressure, seed)
    ready = False
    for _ in range(30 * count + 4000):
        await RisingEdge(dut.clk_i)
        if ready and dut.valid_o.value == 1:
            value, user = int(dut.beat_o.value), int(dut.user_o.value)
            bytes_ = (value >> 1 & 0xFFFF).bit_count()
            rest += (value >> 17).to_bytes(16, "little")[:bytes_]
            if value & 1:
                got.append((rest, user))
                rest = b""
        if dut.left_o.value == 1:
            left.append(int(dut.left_bytes_o.value))
        ready = not next(slow)
        dut.ready_i.value = ready
        if len(left) == 2 * count:
            break
    inputs.task.cancel()
    assert left == [len(frame) for frame, _ in got]
    for n in range(2):
        assert [frame for frame in got if frame[1] >> 31 == n] == sent[n]
    return got


@cocotb.test()
async def they_take_turns(dut):
    await bench.start(dut)
    got = await exchange(dut)
    turns = [user >> 31 for _, user in got]
    assert turns[2:-2] == [(turns[2] + k) % 2 for k in range(len(turns) - 4)]


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    for seed, (idle, back_pressure) in enumerate((((0.5, 0), 0), ((0, 0.7), 0.5), ((0.3, 0.3), 0.3), ((0.9, 0.1), 0.8)), 2):
        await exchange(dut, idle, back_pressure, seed=seed)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    dut.ready_i.value = 1
    for n in range(2):
        inputs = Inputs(dut, [[(beat, 5) for beat in list(beats(bytes(range(200))))[:4]] if k == n else [] for k in range(2)], (0, 0))
        await until(dut.clk_i, lambda: dut.valid_o.value == 1, 20)
        inputs.task.cancel()
        dut.valid_i.value = 0
        await bench.reset(dut)
        await exchange(dut, (0.2, 0.2), 0.2, count=15, seed=9 + n)


def test_frame_merge():
    bench.run("frame_merge")
