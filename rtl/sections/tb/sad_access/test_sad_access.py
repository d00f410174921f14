"""sad_access: every unit is told its row, with sequence numbers in the order of the grants, if it has the SA that it means;
units take turns; two clocks."""

import random
from collections import deque

import bench
import cocotb
import sections_model as model
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge, Timer
from hmac_states import hmac_states
from sections_model import DES, MAIN, PASS, PRIORITY, Sa
from structs import SA

ROWS, BEATS, NOBODY = 16, 6, 4


async def reset(dut):
    dut.request_i.value = dut.cfg_valid_i.value = 0
    dut.rst_ni.value = dut.rst_sad_ni.value = 0
    await Timer(100, "ns")
    dut.rst_ni.value = dut.rst_sad_ni.value = 1
    await ClockCycles(dut.clk_i, 4)


async def begin(dut, period, sad_period):
    Clock(dut.clk_i, period, unit="ps").start()
    Clock(dut.clk_sad_i, sad_period, unit="ps").start()
    await reset(dut)


async def write(dut, row, word, data):
    dut.cfg_row_i.value, dut.cfg_word_i.value, dut.cfg_data_i.value, dut.cfg_valid_i.value = row, word, data, 1
    while True:
        await RisingEdge(dut.clk_i)
        if dut.cfg_ready_o.value == 1:
            break
    dut.cfg_valid_i.value = 0


async def install(dut, sas):
    for sa in sas:
        await write(dut, sa.row, 1, 0)
        words = {address & 63: data for address, data in sa.writes()}
        for word in sorted(words, key=lambda word: word == 1):
            await write(dut, sa.row, word, words[word])


def answer(sa):
    """What a unit is told; the sequence number is taken."""
    if sa is None or sa.auth == PASS or sa.last_used == 0xFFFFFFFF:
        return None
    sa.last_used += 1
    addresses = [int.from_bytes(model.address(text)) for text in (sa.source, sa.destination)]
    words = model.front([sa.spi, sa.last_used, *addresses]) + model.key_front(sa.key)
    words += model.states_front(*hmac_states(sa.auth_key, sha1=True))
    return {"encap": MAIN, "cipher": sa.cipher, "auth": MAIN, "wide": len(sa.key) == 32}, words


async def ask(dut, sas, count, idle, seed):
    """All units ask at the same time, each one thing at a time."""
    known, units = {sa.row: sa for sa in sas}, int(dut.Units.value)
    source, pauses = random.Random(seed), [bench.pauses(idle, seed + u) for u in range(units)]
    wanted, waiting, expected, granted, answered = [None] * units, [False] * units, [deque() for _ in range(units)], [], 0
    words = [b""] * units
    for _ in range(60 * count + 400):
        for unit in range(units):
            if wanted[unit] is None and not waiting[unit] and not next(pauses[unit]):
                row = source.choice([*known, source.randrange(ROWS)])
                right = known[row].generation if row in known else 0
                wanted[unit] = row, right ^ source.choice((0, 0, 0, 1 << source.randrange(7)))
        dut.request_i.value = sum((wanted[unit] is not None) << unit for unit in range(units))
        dut.row_i.value = sum((wanted[unit] or (0, 0))[0] << 10 * unit for unit in range(units))
        dut.generation_i.value = sum((wanted[unit] or (0, 0))[1] << 7 * unit for unit in range(units))
        await ReadOnly()
        grant, told = int(dut.grant_o.value), int(dut.answer_o.value)
        assert grant.bit_count() <= 1 and told.bit_count() <= 1
        if told:
            unit = told.bit_length() - 1
            sa, want = SA.unpack(int(dut.sa_o.value)), expected[unit][0]
            words[unit] += int(dut.words_o.value).to_bytes(16, "little")
            if want is None:
                assert sa.encap == NOBODY
            else:
                assert vars(sa) == want[0]
            if len(words[unit]) == 16 * BEATS:
                assert want is None or words[unit] == want[1]
                expected[unit].popleft()
                answered, waiting[unit], words[unit] = answered + 1, False, b""
        for unit in range(units):
            if grant >> unit & 1:
                assert wanted[unit] is not None
                row, generation = wanted[unit]
                ours = row in known and known[row].generation == generation
                expected[unit].append(answer(known[row]) if ours else None)
                granted.append(unit)
                wanted[unit], waiting[unit] = None, True
        await RisingEdge(dut.clk_i)
        if answered >= count:
            break
    assert answered >= count
    dut.request_i.value = 0
    await ClockCycles(dut.clk_i, 25 * units)  # what was granted late is answered to nobody
    return granted


def sas_of(source):
    key = source.randbytes
    return [
        Sa(3, 0x1001, key(16), key(20), MAIN, generation=127), Sa(7, 0x1002, key(32), key(20), PRIORITY, "192.0.2.9", "203.0.113.77"),
        Sa(8, 0x1003, key(8), key(20), DES, last_used=0xFFFFFFF0, generation=64), Sa(15, 0xFFFFFFFF, b"", key(20), PASS, last_used=77),
        Sa(12, 0x1004, key(16), key(20), MAIN, auth=PASS, last_used=5),
    ]  # fmt: skip


async def run(dut, period, sad_period):
    await begin(dut, period, sad_period)
    for seed, idle in ((1, 0.0), (2, 0.6)):
        sas = sas_of(random.Random(seed))
        await install(dut, sas)
        units, granted = int(dut.Units.value), await ask(dut, sas, 150, idle, seed)
        if not idle:
            turns = [granted.count(unit) for unit in range(units)]
            assert max(turns) - min(turns) <= units
        # A row that is wiped is no SA any more, the others stay.
        await write(dut, sas[0].row, 63, 0)
        await ask(dut, sas[1:], 30, idle, seed)
        await reset(dut)  # with answers under way
        await ask(dut, [], 20, idle, seed)


@cocotb.test()
async def a_faster_sad(dut):
    await run(dut, 10000, 5100)


@cocotb.test()
async def a_slower_sad(dut):
    await run(dut, 7000, 16300)


@cocotb.test()
async def an_sad_that_waits_for_the_core(dut):
    """With many units it has more answers ready than their FIFO takes."""
    await run(dut, 10000, 1700)


@bench.parameter_sets("units", (3, 8))
def test_sad_access(units):
    bench.run("sad_access", {"Units": units, "Rows": ROWS})
