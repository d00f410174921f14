"""sha1_core against hashlib."""

import hashlib

import bench
import cocotb
import sha_blocks

INITIAL = sha_blocks.state((0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0))


@cocotb.test()
async def messages(dut):
    await bench.start(dut)
    offered, expected = sha_blocks.whole_messages(INITIAL, hashlib.sha1, 30, 500)
    results, _ = await sha_blocks.hashes(dut, offered)
    assert results == expected
    results, _ = await sha_blocks.hashes(dut, offered, idle=0.9)
    assert results == expected


@cocotb.test()
async def any_state(dut):
    await bench.start(dut)
    await sha_blocks.in_two_parts(dut, INITIAL, hashlib.sha1)


@cocotb.test()
async def rate(dut):
    await bench.start(dut)
    assert await sha_blocks.cycles_a_block(dut, INITIAL) == 40
    # A message's first block costs 3 more.
    _, few = await sha_blocks.hashes(dut, [(INITIAL, bytes(64))] * 3)
    _, many = await sha_blocks.hashes(dut, [(INITIAL, bytes(64))] * 13)
    assert many - few == 10 * (40 + 3)


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    offered, expected = sha_blocks.whole_messages(INITIAL, hashlib.sha1, 3, 200, seed=9)
    for cycles in (5, 13, 70, 77, 79, 80, 81, 119, 160):
        await sha_blocks.hashes(dut, offered, limit=cycles)
        await bench.reset(dut)
        results, _ = await sha_blocks.hashes(dut, offered[-2:])
        assert results == expected[-2:]


def test_sha1_core():
    bench.run("sha1_core")
