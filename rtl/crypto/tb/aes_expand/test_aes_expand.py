"""aes_expand: the key schedules of FIPS 197, one round key a cycle, starts as close as they may be, resets on the way."""

import random

import bench
import cocotb
import fips197
from cocotb.triggers import ReadOnly, RisingEdge

GAP = 15  # cycles between two starts


async def expand(dut, keys, gaps, cycles=None):
    """Round keys are checked from the cycle on in which they mean something, until the next start."""
    starts, at = {}, 0
    for key, gap in zip(keys, gaps):
        starts[at] = key
        at += GAP + gap
    wanted = {}
    for start, key in starts.items():
        schedule = fips197.schedule(key)
        first = [schedule[0]] + ([None] * 4 if len(key) == 16 else []) + schedule[1:]
        wanted |= {start + 1 + index: value for index, value in enumerate(first) if value}
    for cycle in range(cycles or at + 2):
        start, before = starts.get(cycle), starts.get(cycle - 1, b"")
        dut.start_i.value = start is not None
        # Both halves count in their cycles only, and the length with the start.
        dut.aes128_i.value = len(start) == 16 if start else random.getrandbits(1)
        dut.raw_i.value = int.from_bytes(start[:16] if start else before[16:] or random.randbytes(16))
        await ReadOnly()
        if cycle in wanted:
            assert int(dut.key_o.value).to_bytes(16) == wanted[cycle], f"cycle {cycle}"
        await RisingEdge(dut.clk_i)
    dut.start_i.value = 0


@cocotb.test()
async def published_schedules(dut):
    await bench.start(dut)
    source = random.Random(1)
    keys = source.choices(fips197.keys(), k=40)
    await expand(dut, keys, [0] * len(keys))
    await expand(dut, keys, [source.choice((0, 1, 2, 40)) for _ in keys])


@cocotb.test()
async def reset_on_the_way(dut):
    await bench.start(dut)
    for cycles in range(1, 16):
        await expand(dut, fips197.keys(), (0, 0), cycles)
        await bench.reset(dut)
        await expand(dut, fips197.keys(), (0, 0))


def test_aes_expand():
    bench.run("aes_expand")
