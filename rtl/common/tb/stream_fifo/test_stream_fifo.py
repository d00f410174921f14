"""stream_fifo: words come out in order, once each, whatever the two sides do; NeverFull stops what would lose one."""

import random
from collections import deque

import bench
import cocotb
import streams
from cocotb.triggers import ReadOnly, RisingEdge


async def exchange(dut, idle, back_pressure, words=2000, resets=()):
    """Offers words until `words` have come out; returns the cycles that took. A reset empties the queue."""
    source = random.Random(7)
    width, depth = len(dut.data_i), int(dut.Depth.value) + int(dut.Extra.value)
    idle, back_pressure = bench.pauses(idle, 1), bench.pauses(back_pressure, 2)
    inside, seen, cycles, offered = deque(), 0, 0, None
    while seen < words:
        assert cycles < 20 * words, "stuck"
        if offered is None and not next(idle):
            offered = source.getrandbits(width)
        dut.valid_i.value = offered is not None
        dut.data_i.value = offered or 0
        dut.ready_i.value = not next(back_pressure)
        await ReadOnly()
        assert int(dut.count_o.value) == len(inside) <= depth + 1
        put = offered is not None and dut.ready_o.value == 1
        if dut.valid_o.value == 1:
            assert int(dut.data_o.value) == inside[0]
            if dut.ready_i.value == 1:
                inside.popleft()
                seen += 1
        if put:
            inside.append(offered)
            offered = None
        await RisingEdge(dut.clk_i)
        cycles += 1
        if cycles in resets:
            await bench.reset(dut)
            inside.clear()
            offered = None
    return cycles


@cocotb.test()
async def full_rate(dut):
    await bench.start(dut)
    assert await exchange(dut, 0, 0) <= 2000 + 2 + int(dut.Extra.value)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    for idle, back_pressure in ((0.5, 0), (0, 0.5), (0.5, 0.5), (0.9, 0.1), (0.1, 0.9)):
        await exchange(dut, idle, back_pressure)
        await bench.reset(dut)


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    await exchange(dut, 0.2, 0.6, resets=(100, 117, 300))


@cocotb.test()
async def a_word_too_many(dut):
    await streams.a_word_too_many(dut, int(dut.Depth.value) + 1 + int(dut.Extra.value))


@bench.parameter_sets("depth,extra", ((2, 0), (16, 0), (2, 1), (16, 1)))
def test_stream_fifo(depth, extra):
    bench.run("stream_fifo", {"Width": 32, "Depth": depth, "Extra": extra})


@bench.parameter_sets("extra", (0, 1))
def test_never_full(extra, tmp_path):
    parameters = {"Depth": 4, "Extra": extra, "NeverFull": 1}
    streams.assert_overfilled(bench.stops("stream_fifo", parameters, tmp_path / "log", COCOTB_TEST_FILTER="too_many"))
