"""delay_line: each word comes out as many cycles later as it is deep, before a reset and after."""

import random

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge


async def pass_through(dut, count, seed):
    source, depth, sent = random.Random(seed), int(dut.Depth.value), []
    for _ in range(count):
        sent.append(source.getrandbits(32))
        dut.data_i.value = sent[-1]
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        if len(sent) >= depth:
            assert int(dut.data_o.value) == sent[-depth]
        await cocotb.triggers.NextTimeStep()


@cocotb.test()
async def as_late_as_deep(dut):
    await bench.start(dut)
    await pass_through(dut, 500, 1)
    await bench.reset(dut)
    await pass_through(dut, 200, 2)


@bench.parameter_sets("depth", (3, 16, 31))
def test_delay_line(depth):
    bench.run("delay_line", {"Width": 32, "Depth": depth})
