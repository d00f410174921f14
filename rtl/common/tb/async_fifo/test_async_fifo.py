"""async_fifo: words cross between two clocks in order, once each, whatever the clocks' ratio."""

import random
from collections import deque

import bench
import cocotb
import streams
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Timer


async def reset(dut):
    dut.put_rst_ni.value = dut.get_rst_ni.value = 0
    await Timer(100, "ns")
    dut.put_rst_ni.value = dut.get_rst_ni.value = 1
    await ClockCycles(dut.get_clk_i, 4)


async def cross(dut, put_period, get_period, idle=0.0, back_pressure=0.0):
    clocks = [
        Clock(dut.put_clk_i, put_period, unit="ps").start(),
        Clock(dut.get_clk_i, get_period, unit="ps").start(),
    ]
    dut.put_valid_i.value = dut.get_ready_i.value = 0
    source = random.Random(put_period)
    for words in (20, 300):  # the first round is cut off by the reset of the second
        await reset(dut)
        sent = [source.getrandbits(16) for _ in range(words)]
        put = streams.Source(dut.put_clk_i, dut.put_valid_i, dut.put_ready_o, dut.put_data_i, bench.pauses(idle, 1))
        get = streams.Sink(dut.get_clk_i, dut.get_valid_o, dut.get_ready_i, dut.get_data_o, bench.pauses(back_pressure, 2))
        put.queue = deque(sent)
        if words == 300:
            await streams.until(dut.get_clk_i, lambda: len(get.words) == words, 20000)
            await ClockCycles(dut.get_clk_i, 20)
            assert list(get.words) == sent
        else:
            await ClockCycles(dut.get_clk_i, 8)
        put.stop()
        get.stop()
    for clock in clocks:
        clock.cancel()


@cocotb.test()
async def same_clock(dut):
    await cross(dut, 10000, 10000)


@cocotb.test()
async def to_a_faster_clock(dut):
    await cross(dut, 10000, 3700)


@cocotb.test()
async def to_a_slower_clock(dut):
    await cross(dut, 3300, 10000)


@cocotb.test()
async def pauses(dut):
    await cross(dut, 10000, 9300, 0.5, 0.5)
    await cross(dut, 7100, 9300, 0.1, 0.8)


@bench.parameter_sets("depth", (4, 16))
def test_async_fifo(depth):
    bench.run("async_fifo", {"Width": 16, "Depth": depth})
