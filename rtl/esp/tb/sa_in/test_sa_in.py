"""sa_in: numbers inferred as RFC 4303, A2.2 does, a window that is a set of numbers, refusals, the byte lifetime."""

import random
from collections import deque

import bench
import cocotb
import core
from cocotb.triggers import ClockCycles, RisingEdge
from streams import Sink, Source, until
from structs import OPEN_ASK, OPEN_SA

ROWS, WINDOW = 16, 64
NO_SA, LIFETIME, SHORT, REPLAY = 6, 8, 11, 12


class Row:
    def __init__(self, row, source):
        self.row, self.spi = row, source.getrandbits(28) << 4 | row
        self.esn = source.random() < 0.6
        self.no_check = not self.esn and source.random() < 0.3
        tops = (0, 1, 70, 0xFFFFFFF0) + ((0x100000005, 0x3FFFFFFD0, 0x500000040) if self.esn else ())
        self.top = source.choice(tops)
        self.seen, self.bytes = {self.top}, 0
        self.suite, self.group, self.dscp = source.randrange(4), source.getrandbits(10), source.random() < 0.5
        self.byte_limit = source.choice((core.ALL_ONES, core.ALL_ONES, 3000))
        self.generation = source.randrange(1, 128)

    def words(self):
        return core.sa_in_words(
            self.spi, self.suite, self.esn, self.dscp, self.no_check, self.group, self.byte_limit, self.top, self.generation
        )

    def infer(self, low):
        """RFC 4303, A2.2, with its names; None is below zero or beyond 64 bits."""
        if not self.esn:
            return low
        th, tl = self.top >> 32, self.top & 0xFFFFFFFF
        bottom = (tl - WINDOW + 1) & 0xFFFFFFFF
        if tl >= WINDOW - 1:
            high = th if low >= bottom else th + 1
        else:
            high = th - 1 if low >= bottom else th
        return high << 32 | low if 0 <= high < 1 << 32 else None

    def fresh(self, number):
        return number > 0 and (self.no_check or number > self.top or (self.top - number < WINDOW and number not in self.seen))

    def look(self, low):
        number = self.infer(low)
        if self.bytes >= self.byte_limit:
            return LIFETIME, number
        return (0 if number is not None and self.fresh(number) else REPLAY), number

    def commit(self, number, length):
        """Whether it is new, and whether the byte lifetime ended."""
        if not self.fresh(number):
            return False, False
        before = self.bytes
        self.bytes += length
        if not self.no_check:
            self.seen.add(number)
            self.top = max(self.top, number)
        return True, before < self.byte_limit <= self.bytes


async def begin(dut):
    for name in ("cfg_valid_i", "snap_valid_i", "valid_i", "ready_i", "commit_valid_i"):
        getattr(dut, name).value = 0
    await bench.start(dut)


async def install(dut, rows):
    config = core.Config(dut)
    for row in rows:
        words = row.words()
        await config.write(row.row, 1, 0)
        await config.words(row.row, 2, words[2:])
        await config.write(row.row, 0, words[0])
        await config.write(row.row, 1, words[1])


async def commit(dut, row, number, length, generation=None):
    """Whether it is taken in, and whether the byte lifetime ended; None for another generation."""
    dut.commit_row_i.value, dut.commit_seq_i.value, dut.commit_bytes_i.value = row.row, number, length
    dut.commit_generation_i.value = row.generation if generation is None else generation
    dut.commit_valid_i.value = 1
    while True:
        await RisingEdge(dut.clk_i)
        if dut.commit_ready_o.value == 1:
            break
    dut.commit_valid_i.value = 0
    ended = False
    for _ in range(12):
        await RisingEdge(dut.clk_i)
        if dut.committed_o.value == 1:
            refused = int(dut.commit_refused_o.value)
            await RisingEdge(dut.clk_i)
            ended = dut.event_valid_o.value == 1
            assert not ended or int(dut.event_row_o.value) == row.row
            assert refused in (0, NO_SA, REPLAY)
            return (None if refused == NO_SA else refused == 0), ended
    raise AssertionError("no answer")


async def one_by_one(dut, rows, count, idle=0.0, back_pressure=0.0, seed=1):
    """Looks, and takes in most of what may pass; some numbers several times, as if they were under way together."""
    source, seen = random.Random(seed), set()
    asks = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.ask_i, bench.pauses(idle, seed))
    answers = Sink(dut.clk_i, dut.valid_o, dut.ready_i, [dut.refused_o, dut.sa_o], bench.pauses(back_pressure, seed + 1))
    late = deque()
    for _ in range(count):
        row = source.choice(rows)
        near = row.top + source.choice((1, 1, 1, 2, -source.randrange(70), source.randrange(1, 200), 63, 64, 65, -62, -63, -64))
        low, short = max(near, 0) & 0xFFFFFFFF, source.random() < 0.05
        spi = row.spi ^ (0x8000_0000 if source.random() < 0.05 else 0)
        asks.queue.append(OPEN_ASK.pack(spi=spi, seq_lo=low, too_short=short))
        await until(dut.clk_i, lambda: len(answers.words) == 1, 300)
        refused, number = answers.words.popleft()
        want, sequence = (NO_SA, None) if spi != row.spi else (SHORT, None) if short else row.look(low)
        assert refused == want, (row.top, low, refused, want)
        seen.add(refused)
        if refused:
            continue
        sa = OPEN_SA.unpack(number)
        assert sa.seq == sequence and (sa.suite, sa.row, sa.group) == (row.suite, spi & 1023, row.group)
        assert (sa.esn, sa.dscp, sa.generation) == (row.esn, row.dscp, row.generation)
        late.append((row, sequence))
        if source.random() < 0.2:
            late.append((row, sequence))
        while late and source.random() < 0.6:
            row, sequence = late.popleft()
            left = row.byte_limit - row.bytes
            length = left if 0 < left < 1500 and source.random() < 0.5 else source.randrange(20, 1500)  # up to the limit, or anyhow
            if source.random() < 0.2:
                # Of an SA that had the row before: nothing changes.
                assert await commit(dut, row, sequence, length, row.generation ^ 1 << source.randrange(7)) == (None, False)
            assert await commit(dut, row, sequence, length) == row.commit(sequence, length)
    asks.stop()
    answers.stop()
    return seen


@cocotb.test()
async def random_rows(dut):
    await begin(dut)
    seen = set()
    for seed, (idle, back_pressure) in enumerate(((0, 0), (0.5, 0), (0, 0.7), (0.3, 0.3))):
        source = random.Random(seed)
        rows = [Row(row, source) for row in source.sample(range(ROWS), 8)]
        await install(dut, rows)
        seen |= await one_by_one(dut, rows, 250, idle, back_pressure, seed)
        for row in rows:
            value = await core.snapshot(dut, row.row)
            top, bytes_, window = value & core.ALL_ONES, value >> 64 & core.ALL_ONES, value >> 128
            assert bytes_ == row.bytes
            if not row.no_check:
                assert top == row.top
                came = [row.top - n in row.seen for n in range(min(WINDOW, row.top))]
                assert window & 1 and [bool(window >> n & 1) for n in range(len(came))] == came
        for row in range(ROWS):
            await core.Config(dut).write(row, 1, 0)
    assert seen == {0, NO_SA, LIFETIME, SHORT, REPLAY}, seen


@cocotb.test()
async def numbers_at_the_edges(dut):
    """Windows at zero, at 2^32 and at the end of all numbers; what is asked for lies at their edges, or half a circle away."""
    await begin(dut)
    asks = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.ask_i)
    answers = Sink(dut.clk_i, dut.valid_o, dut.ready_i, [dut.refused_o, dut.sa_o])
    row, circle = Row(3, random.Random(1)), 1 << 32
    row.esn, row.no_check, row.byte_limit = True, False, core.ALL_ONES
    near = (0, 1, 5, 62, 63, 64)
    tops = {at + n for at in (0, circle) for n in near} | {at - n for at in (circle, core.ALL_ONES) for n in near[1:]}
    for top in sorted(tops | {core.ALL_ONES, core.ALL_ONES - circle}):
        row.top, row.seen = top, {top}
        await install(dut, [row])
        lows = [(top + n) % circle for n in (*range(-66, 67), circle // 2 - 1, circle // 2)]
        asks.queue.extend(OPEN_ASK.pack(spi=row.spi, seq_lo=low) for low in lows)
        await until(dut.clk_i, lambda: len(answers.words) == len(lows), 20 * len(lows))
        for low in lows:
            refused, sa = answers.words.popleft()
            want, sequence = row.look(low)
            assert refused == want, (top, low, refused, want)
            assert refused or OPEN_SA.unpack(sa).seq == sequence


async def rewrite(dut, rows, seed):
    """Other rows, as the host writes them, all the time."""
    source, config = random.Random(seed), core.Config(dut)
    while True:
        row = Row(source.choice(rows), source)
        words = row.words()
        for word, data in ((1, 0), *enumerate(words[2:], 2), (0, words[0]), (1, words[1])):
            await ClockCycles(dut.clk_i, source.choice((1, 2, 3, 7)))
            await config.write(row.row, word, data)


@cocotb.test()
async def rows_are_written_meanwhile(dut):
    await begin(dut)
    source = random.Random(8)
    rows = [Row(row, source) for row in range(0, ROWS, 2)]
    await install(dut, rows)
    writer = cocotb.start_soon(rewrite(dut, range(1, ROWS, 2), 9))
    for seed in range(3):
        await one_by_one(dut, rows, 150, 0.1, 0.1, seed)
        for row in rows:
            value = await core.snapshot(dut, row.row)
            assert value >> 64 & core.ALL_ONES == row.bytes and (row.no_check or value & core.ALL_ONES == row.top)
    writer.cancel()


@cocotb.test()
async def the_next_sa_of_a_row(dut):
    """Whenever its words come while a packet of the one before is taken in: its window and count are its own."""
    await begin(dut)
    config = core.Config(dut)
    for cycle in range(14):
        row, after = Row(3, random.Random(cycle)), Row(3, random.Random(cycle + 100))
        after.generation = row.generation ^ 1
        await install(dut, [row])
        committing = cocotb.start_soon(commit(dut, row, row.top + 1, 100))
        await ClockCycles(dut.clk_i, cycle)
        for word, data in ((1, 0), *list(enumerate(after.words()))[4:6], (0, after.spi)):
            await config.write(3, word, data)
        await committing
        for word, data in (*list(enumerate(after.words()))[2:4], (1, after.words()[1])):
            await config.write(3, word, data)
        value = await core.snapshot(dut, 3)
        assert (value & core.ALL_ONES, value >> 64 & core.ALL_ONES, value >> 128) == (after.top, 0, 1)


@cocotb.test()
async def a_window_that_the_host_writes(dut):
    """Whenever it comes while a packet is taken in, it stays: nothing of the window before is written over it."""
    await begin(dut)
    config, row = core.Config(dut), Row(3, random.Random(1))
    row.esn, row.no_check, row.byte_limit = True, False, core.ALL_ONES
    for cycle in range(14):
        row.top, row.seen = 100, {100}
        await install(dut, [row])
        committing = cocotb.start_soon(commit(dut, row, 101, 20))
        await ClockCycles(dut.clk_i, cycle)
        for word, data in ((4, 1000), (5, 0)):
            await config.write(3, word, data)
        await committing
        value = await core.snapshot(dut, 3)
        assert (value & core.ALL_ONES, value >> 64 & core.ALL_ONES, value >> 128) == (1000, 0, 1), cycle


@cocotb.test()
async def reset_with_questions_under_way(dut):
    await begin(dut)
    rows = [Row(row, random.Random(row)) for row in range(ROWS)]
    await install(dut, rows)
    for cycles in (2, 4, 6):
        dut.ask_i.value, dut.valid_i.value = OPEN_ASK.pack(spi=rows[3].spi, seq_lo=rows[3].top + 1 & 0xFFFFFFFF), 1
        dut.commit_row_i.value, dut.commit_seq_i.value, dut.commit_valid_i.value = 5, rows[5].top + 1, 1
        await ClockCycles(dut.clk_i, cycles)
        dut.valid_i.value = dut.commit_valid_i.value = 0
        await bench.reset(dut)
        assert dut.valid_o.value == 0 and dut.committed_o.value == 0
        # No row is left.
        asks = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.ask_i)
        answers = Sink(dut.clk_i, dut.valid_o, dut.ready_i, dut.refused_o)
        asks.queue.extend(OPEN_ASK.pack(spi=row.spi, seq_lo=row.top + 1 & 0xFFFFFFFF) for row in rows)
        await until(dut.clk_i, lambda: len(answers.words) == ROWS, 50 * ROWS)
        assert set(answers.words) == {NO_SA}
        asks.stop()
        answers.stop()
        rows = [Row(row, random.Random(cycles)) for row in range(ROWS)]
        await install(dut, rows)
        await one_by_one(dut, rows, 40)


def test_sa_in():
    bench.run("sa_in", {"Rows": ROWS})
