"""key_store: what was written is read two cycles later; what was wiped, and all after a reset, is zero."""

import random

import bench
import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from streams import until

ROWS = 16
WORDS, WIPE = 26, 63
GENERATION = 0x7F


class Store:
    def __init__(self, dut):
        self.dut = dut
        self.forget()

    def forget(self):
        self.rows = [[0] * WORDS for _ in range(ROWS)]

    async def write(self, row, word, data, idle=0):
        dut = self.dut
        if idle:
            await ClockCycles(dut.clk_i, idle)
        dut.cfg_row_i.value, dut.cfg_word_i.value, dut.cfg_data_i.value, dut.cfg_valid_i.value = row, word, data, 1
        while True:
            await RisingEdge(dut.clk_i)
            if dut.cfg_ready_o.value == 1:
                break
        dut.cfg_valid_i.value = 0
        if row < ROWS and word == WIPE:
            self.rows[row] = [0] * WORDS
        elif row < ROWS and word < WORDS:
            self.rows[row][word] = data & (GENERATION if word == 25 else 0xFFFFFFFF)

    async def check(self, places):
        """Reads one place a cycle: (row, half of the key, quarter of the states)."""
        dut = self.dut
        await ClockCycles(dut.clk_i, 3)
        asked = []
        for place in [*places, *[places[-1]] * 2]:
            dut.row_i.value, dut.half_i.value, dut.auth_word_i.value = place
            asked.append(place)
            await RisingEdge(dut.clk_i)
            # Asked with the edge two before this one.
            if len(asked) > 2:
                row, half, quarter = asked[-3]
                words = self.rows[row]
                for signal, want in ((dut.key_o, words[4 * half : 4 * half + 4]),
                                     (dut.auth_o, words[8 + 4 * quarter : 12 + 4 * quarter]),
                                     (dut.salt_o, words[24:25]), (dut.generation_o, words[25:])):
                    assert int(signal.value) == int.from_bytes(b"".join(word.to_bytes(4) for word in want)), (row, half, quarter)


def everywhere():
    return [(row, half, quarter) for row in range(ROWS) for half in range(2) for quarter in range(4)]


async def begin(dut):
    dut.cfg_valid_i.value = 0
    dut.salt_read_i.value = 1
    await bench.start(dut)
    return Store(dut)


@cocotb.test()
async def empty_after_reset(dut):
    store = await begin(dut)
    assert dut.cfg_ready_o.value == 0
    await until(dut.clk_i, lambda: dut.cfg_ready_o.value == 1, 4 * ROWS + 4)
    await store.check(everywhere())


@cocotb.test()
async def random_writes_and_wipes(dut):
    store, source = await begin(dut), random.Random(1)
    for _ in range(6):
        for _ in range(150):
            # Some rows and words are not there: nothing may change.
            row = source.choice((source.randrange(ROWS), source.randrange(ROWS), source.randrange(ROWS, 1024)))
            word = source.choice((*[source.randrange(WORDS)] * 10, source.randrange(WORDS, 63), WIPE))
            await store.write(row, word, source.getrandbits(32), idle=source.choice((0, 0, 0, 3)))
        places = everywhere()
        source.shuffle(places)
        await store.check(places)


@cocotb.test()
async def reset_while_it_wipes(dut):
    store, source = await begin(dut), random.Random(2)
    for row in range(ROWS):
        for word in range(WORDS):
            await store.write(row, word, source.getrandbits(32))
    await store.write(3, WIPE, 0)
    await bench.reset(dut)
    store.forget()
    await until(dut.clk_i, lambda: dut.cfg_ready_o.value == 1, 4 * ROWS + 4)
    await store.check(everywhere())
    await store.write(9, 2, 0x12345678)
    await store.check(everywhere())


@cocotb.test()
async def the_salt_stays(dut):
    """Until it is read again, whatever is written."""
    store = await begin(dut)
    await store.write(5, 24, 0x01020304)
    await store.check([(5, 0, 0)])
    dut.salt_read_i.value = 0
    for write in ((5, 24, 0xFFFFFFFF), (5, WIPE, 0), (6, 24, 7)):
        await store.write(*write)
        await ClockCycles(dut.clk_i, 6)
        assert int(dut.salt_o.value) == 0x01020304
    dut.salt_read_i.value = 1
    await store.check(everywhere())


def test_key_store():
    bench.run("key_store", {"Rows": ROWS})
