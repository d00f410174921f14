"""policy: the first entry that matches decides, while entries are written and deleted; the tag comes with the answer."""

import random

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge

LATENCY = 8


def result(value):
    return value >> 19, value >> 17 & 3, value >> 7 & 0x3FF, value & 0x7F


def random_entry(source):
    """Value and care: addresses with some prefix, the rest exact or any."""
    v6 = source.random() < 0.5
    bits = 128 if v6 else 32
    care = core.V6
    for shift in (64, 192):
        prefix = source.choice((0, bits, bits - 8, source.randrange(bits + 1)))
        care |= ((1 << bits) - 1 ^ (1 << bits - prefix) - 1) << shift
    for mask in (core.PROTOCOL_KNOWN | 0xFF << 32, core.PORTS_KNOWN | 0xFFFF, core.PORTS_KNOWN | 0xFFFF << 16,
                 core.PORTS_KNOWN | 0xFFF0, core.TUNNELLED):
        if source.random() < 0.3:
            care |= mask
    return random_key(source, v6), care


def random_key(source, v6=None):
    """From few values, so that much matches."""
    v6 = source.random() < 0.5 if v6 is None else v6
    bits = 128 if v6 else 32
    sites = random.Random(bits)
    addresses = [sites.getrandbits(bits) for _ in range(3)]
    local, remote = (source.choice(addresses) ^ source.choice((0, 0, 1, 0x55, 1 << bits - 1)) for _ in range(2))
    ports = source.choice((None, (443, 80), (5000, 0xFFF3), (0, 0)))
    return core.key(local, remote, source.choice((None, 6, 17, 58)), ports, v6, source.random() < 0.5)


class Model:
    def __init__(self, count):
        self.entries = [None] * count

    def look_up(self, key):
        for found in self.entries:
            if found and not (key ^ found[0]) & found[1]:
                return (1, *found[2:])
        return 0, 0, 0, 0


async def look_up(dut, model, keys, idle=0.0):
    pause = bench.pauses(idle, 5)
    keys, expected = list(keys), []
    dut.valid_i.value = 0
    answers = 0
    for cycle in range(100000):
        offered = bool(keys) and not next(pause)
        dut.valid_i.value = offered
        tag = cycle % 32
        if offered:
            dut.key_i.value, dut.tag_i.value = keys[-1], tag
        await RisingEdge(dut.clk_i)
        if offered and dut.ready_o.value == 1:
            expected.append((cycle + LATENCY, model.look_up(keys.pop()), tag))
        if dut.valid_o.value == 1:
            due, want, tag = expected.pop(0)
            assert cycle == due and result(int(dut.result_o.value)) == want and int(dut.tag_o.value) == tag
            answers += want[0]
        if not keys and not expected:
            dut.valid_i.value = 0
            return answers
    raise AssertionError("stuck")


@cocotb.test()
async def first_match_wins(dut):
    await bench.start(dut)
    source, config = random.Random(4), core.Config(dut)
    count = int(dut.Entries.value)
    model = Model(count)
    assert await look_up(dut, model, [random_key(source) for _ in range(50)]) == 0, "empty after reset"
    answers = 0
    for round_ in range(24):
        row = source.randrange(count)
        if source.random() < 0.2 and model.entries[row]:
            model.entries[row] = None
            await config.write(row, 21, 0)
        else:
            value, care = random_entry(source)
            action, target, generation = source.randrange(4), source.randrange(1024), source.randrange(128)
            model.entries[row] = value, care, action, target, generation
            await config.policy(row, (value, care), action, target, generation=generation)
        # There are rows for more entries than the table may have: nothing is written there.
        await config.policy(count + row, (0, 0), core.PROTECT, 1)
        await config.write(count + row, 21, 0)
        answers += await look_up(dut, model, [random_key(source) for _ in range(120)], idle=0.3 * (round_ % 2))
    assert answers > 100
    # Reset forgets all.
    await bench.reset(dut)
    assert await look_up(dut, Model(count), [random_key(source) for _ in range(50)]) == 0


@cocotb.test()
async def packets_meet_the_old_entry_or_the_new_one(dut):
    await bench.start(dut)
    config = core.Config(dut)
    everything = (0, 0)
    await config.policy(3, everything, core.BYPASS, 5)
    seen = []
    cocotb.start_soon(config.policy(3, everything, core.PROTECT, 9))
    dut.valid_i.value, dut.key_i.value = 1, 0
    for _ in range(1200):
        await RisingEdge(dut.clk_i)
        if dut.valid_o.value == 1:
            seen.append(result(int(dut.result_o.value)))
    dut.valid_i.value = 0
    first_new = seen.index((1, core.PROTECT, 9, 1))
    assert set(seen[:first_new]) == {(1, core.BYPASS, 5, 1)} and set(seen[first_new:]) == {(1, core.PROTECT, 9, 1)}


@bench.parameter_sets("entries,piece", ((16, 9), (64, 9), (64, 4)))
def test_policy(entries, piece):
    bench.run("policy", {"Entries": entries, "Piece": piece, "TagWidth": 5})
