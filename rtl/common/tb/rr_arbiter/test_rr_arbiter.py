"""rr_arbiter against a model that goes round a list."""

import random

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge


@cocotb.test()
async def goes_round(dut):
    await bench.start(dut)
    source, width, last = random.Random(5), int(dut.Width.value), int(dut.Width.value) - 1
    for cycle in range(1000):
        if cycle in (300, 500):
            dut.take_i.value = 0
            await bench.reset(dut)
            last = width - 1
        request, take = source.getrandbits(width) & source.getrandbits(width), source.random() < 0.7
        dut.request_i.value, dut.take_i.value = request, take
        await ReadOnly()
        turns = [i for k in range(width) if request >> (i := (last + 1 + k) % width) & 1]
        assert int(dut.grant_o.value) == (1 << turns[0] if turns else 0)
        if turns:
            assert int(dut.index_o.value) == turns[0]
            if take:
                last = turns[0]
        await RisingEdge(dut.clk_i)


@bench.parameter_sets("width", (1, 5, 16))
def test_rr_arbiter(width):
    bench.run("rr_arbiter", {"Width": width})
