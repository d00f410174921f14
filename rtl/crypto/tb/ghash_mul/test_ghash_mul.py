"""ghash_mul: one product a cycle, as algorithm 1 of SP 800-38D has it."""

import random

import bench
import cocotb
import gcm
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge


@cocotb.test()
async def products(dut):
    cocotb.start_soon(Clock(dut.clk_i, 10, unit="ns").start())
    source, stages = random.Random(1), int(dut.Stages.value)
    pairs = [(1 << i, 1 << j) for i in range(0, 128, 9) for j in range(0, 128, 7)]
    pairs += [(source.getrandbits(128), source.getrandbits(128)) for _ in range(200)]
    pairs += [((1 << 128) - 1, (1 << 128) - 1), (0, (1 << 128) - 1)]
    inside = []
    for a, b in pairs + [(0, 0)] * stages:
        dut.a_i.value, dut.b_i.value = a, b
        inside.append(gcm.multiply(a, b))
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        if len(inside) >= stages:
            assert int(dut.product_o.value) == inside[-stages]
        await cocotb.triggers.NextTimeStep()


@bench.parameter_sets("stages,leaf", ((2, 8), (3, 32), (4, 8)))
def test_ghash_mul(stages, leaf):
    bench.run("ghash_mul", {"Stages": stages, "Leaf": leaf})
