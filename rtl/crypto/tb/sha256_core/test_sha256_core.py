"""sha256_core against hashlib."""

import hashlib

import bench
import cocotb
import sha_blocks

INITIAL = sha_blocks.state((
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
))


@cocotb.test()
async def messages(dut):
    await bench.start(dut)
    offered, expected = sha_blocks.whole_messages(INITIAL, hashlib.sha256, 30, 500)
    results, _ = await sha_blocks.hashes(dut, offered)
    assert results == expected
    results, _ = await sha_blocks.hashes(dut, offered, idle=0.9)
    assert results == expected


@cocotb.test()
async def any_state(dut):
    await bench.start(dut)
    await sha_blocks.in_two_parts(dut, INITIAL, hashlib.sha256)


@cocotb.test()
async def rate(dut):
    await bench.start(dut)
    assert await sha_blocks.cycles_a_block(dut, INITIAL) == 33
    # A message's first block costs 2 more.
    _, few = await sha_blocks.hashes(dut, [(INITIAL, bytes(64))] * 3)
    _, many = await sha_blocks.hashes(dut, [(INITIAL, bytes(64))] * 13)
    assert many - few == 10 * (33 + 2)


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    offered, expected = sha_blocks.whole_messages(INITIAL, hashlib.sha256, 3, 200, seed=9)
    for cycles in (5, 13, 70, 77, 79, 80, 81, 119, 160):
        await sha_blocks.hashes(dut, offered, limit=cycles)
        await bench.reset(dut)
        results, _ = await sha_blocks.hashes(dut, offered[-2:])
        assert results == expected[-2:]


def test_sha256_core():
    bench.run("sha256_core")
