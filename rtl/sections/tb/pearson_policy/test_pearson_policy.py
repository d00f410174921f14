"""pearson_policy: the entry with just these selectors, or none; a bucket holds four."""

import random

import bench
import cocotb
import sections_model as model
from cocotb.triggers import ReadOnly, RisingEdge


async def write(dut, key, way, valid, action, row, generation=0):
    dut.write_i.value = 1
    dut.write_bucket_i.value = model.pearson(key)
    dut.write_way_i.value = way
    dut.write_entry_i.value = valid << 123 | action << 121 | generation << 114 | row << 104 | int.from_bytes(key, "little")
    await RisingEdge(dut.clk_i)
    dut.write_i.value = 0


async def look_up(dut, key):
    """(valid, action, row, generation); counts the cycles too."""
    dut.selector_i.value = int.from_bytes(key, "little")
    dut.start_i.value = 1
    await ReadOnly()
    while dut.ready_o.value == 0:
        await RisingEdge(dut.clk_i)
        await ReadOnly()
    await RisingEdge(dut.clk_i)
    dut.start_i.value = 0
    dut.selector_i.value = 0
    for cycle in range(1, 30):
        await ReadOnly()
        if dut.done_o.value == 1:
            found = int(dut.policy_o.value)
            await RisingEdge(dut.clk_i)
            assert cycle == 20
            return found >> 123, found >> 121 & 3, found >> 104 & 1023, found >> 114 & 127
        await RisingEdge(dut.clk_i)
    raise AssertionError("no answer")


async def begin(dut):
    dut.start_i.value = dut.write_i.value = 0
    await bench.start(dut)


@cocotb.test()
async def finds_just_what_was_entered(dut):
    await begin(dut)
    source = random.Random(1)
    assert (await look_up(dut, bytes(13)))[0] == 0  # waits until the table is empty
    entries, used = {}, {}
    while len(entries) < 300:
        key = source.randbytes(13)
        way = used.get(model.pearson(key), 0)
        if way < 4:
            used[model.pearson(key)] = way + 1
            entries[key] = (1, source.randrange(3), source.randrange(1024), source.randrange(128))
            await write(dut, key, way, *entries[key])
    assert max(used.values()) == 4
    for key, entry in source.sample(list(entries.items()), 60):
        assert await look_up(dut, key) == entry
        near = bytearray(key)
        near[source.randrange(13)] ^= 1 << source.randrange(8)
        assert (await look_up(dut, bytes(near)))[0] == 0


@cocotb.test()
async def deleted_and_reset(dut):
    await begin(dut)
    keys = [bytes([n]) * 13 for n in range(4)]
    assert (await look_up(dut, keys[0]))[0] == 0
    for key in keys:
        await write(dut, key, 2, 1, 2, 5)
    await write(dut, keys[1], 2, 0, 2, 5)
    assert [(await look_up(dut, key))[0] for key in keys] == [1, 0, 1, 1]
    dut.start_i.value = 1  # a reset in the middle of a look-up
    await RisingEdge(dut.clk_i)
    dut.start_i.value = 0
    await bench.reset(dut)
    assert [(await look_up(dut, key))[0] for key in keys] == [0, 0, 0, 0]


def test_pearson_policy():
    bench.run("pearson_policy")
