"""section_exit: protected frames lose their first four bytes, others nothing; at a beat a cycle."""

import random

import bench
import cocotb
import section_unit
from structs import AUTH_HEAD


def make(source, length=None):
    lead = source.randrange(2)
    frame = source.randbytes(length or source.choice((5, 16, 17, 20, 21, source.randrange(5, 200))))
    return frame, AUTH_HEAD.pack(port=source.getrandbits(4), lead=lead), frame[4:] if lead else frame


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, length) for length in (*range(5, 70), 1500) for _ in range(3)])


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(2)
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(source, 150) for _ in range(count)])


def test_section_exit():
    bench.run("section_exit")
