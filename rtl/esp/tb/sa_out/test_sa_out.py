"""sa_out: sequence numbers, IVs, limits and refusals as a model in Python gives them; the host sees how far a row is."""

import random

import bench
import cocotb
import core
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from streams import Sink, Source, until
from structs import SEAL_ASK, SEAL_JOB

ROWS = 16
NO_SA, SEQUENCE_END, LIFETIME, TOO_BIG = 6, 7, 8, 9
SOFT, HARD, SEQUENCE = 1, 2, 3


class Row:
    """RFC 4303, 3.3.3 and RFC 4301, 4.4.2.1, as far as the module goes."""

    def __init__(self, row, source):
        v6, udp = source.random() < 0.5, source.random() < 0.5
        sequence = source.choice((0, 0xFFFFFFFD, 0xFFFFFFFD, source.getrandbits(40), core.ALL_ONES - 4))
        esn = sequence > 0xFFFFFFFF or source.random() < 0.5
        ends = ("2001:db8::1", "2001:db8::2") if v6 else ("192.0.2.1", "198.51.100.2")
        self.row, self.sequence, self.bytes, self.reported = row, sequence, 0, False
        self.limit = source.choice((core.ALL_ONES, sequence + 3)) & core.ALL_ONES
        self.soft = source.choice((core.ALL_ONES, sequence + 2)) & core.ALL_ONES
        self.byte_limit = source.choice((core.ALL_ONES, 900))
        self.mtu, self.iv_base = source.choice((0, 0, 200)), source.getrandbits(64)
        self.fields = {
            "spi": source.getrandbits(32), "local": ends[0], "remote": ends[1], "suite": source.randrange(4),
            "ports": (source.getrandbits(16), source.getrandbits(16)) if udp else None, "esn": esn, "df": source.randrange(3),
            "ecn_clear": source.random() < 0.5, "dscp": source.choice((None, 46)), "ttl": source.randrange(1, 256),
            "copy_label": source.random() < 0.5, "mtu": self.mtu, "iv_base": self.iv_base, "limit": self.limit,
            "soft": self.soft, "byte_limit": self.byte_limit, "sequence": sequence, "generation": source.randrange(1, 128),
        }  # fmt: skip

    def answer(self, ask):
        """What it is refused for, the fields of its job, the event."""
        fields = self.fields
        v6, ports = ":" in fields["local"], fields["ports"]
        if ask.generation != fields["generation"]:
            return NO_SA, None, None
        outer = (40 if v6 else 20) + 8 * bool(ports) + 16 + -(-(ask.bytes + 2) // 4) * 4 + 16
        refused = event = None
        if self.mtu and outer > self.mtu:
            return TOO_BIG, None, None
        if self.sequence >= self.limit or self.bytes >= self.byte_limit:
            refused, event = LIFETIME, HARD
        elif self.sequence >= (core.ALL_ONES - 1 if fields["esn"] else 0xFFFFFFFF):
            refused, event = SEQUENCE_END, SEQUENCE
        if refused:
            event, self.reported = None if self.reported else event, True
            return refused, None, event
        self.sequence += 1
        self.bytes += ask.bytes
        dscp = fields["dscp"]
        job = {
            "suite": fields["suite"], "row": self.row, "generation": fields["generation"], "esn": fields["esn"],
            "spi": fields["spi"], "seq": self.sequence,
            "iv": self.iv_base ^ self.sequence, "inner_bytes": ask.bytes, "inner_v6": ask.v6, "v6": v6, "udp": bool(ports),
            "dont_fragment": (ask.dont_fragment, 1, 0)[fields["df"]],
            "tos": (ask.tos & 0xFC if dscp is None else dscp << 2) | (0 if fields["ecn_clear"] else ask.tos & 3),
            "ttl": fields["ttl"], "flow_label": ask.flow_label if fields["copy_label"] and ask.v6 else 0,
            "local_port": ports[0] if ports else 0, "remote_port": ports[1] if ports else 0,
        }  # fmt: skip
        return 0, job, SOFT if self.sequence == self.soft else None


async def begin(dut):
    for name in ("cfg_valid_i", "snap_valid_i", "valid_i", "ready_i"):
        getattr(dut, name).value = 0
    await bench.start(dut)


async def install(dut, rows):
    config = core.Config(dut)
    for row in rows:
        await config.sa_out(row.row, **row.fields)


async def exchange(dut, rows, count, idle=0.0, back_pressure=0.0, seed=1, asked=range(ROWS)):
    """Asks for rows that are there and for others; returns how often each answer came."""
    source, events, seen = random.Random(seed), [], {}
    asks = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.ask_i, bench.pauses(idle, seed))
    answers = Sink(dut.clk_i, dut.valid_o, dut.ready_i, [dut.refused_o, dut.job_o], bench.pauses(back_pressure, seed + 1))

    async def watch():
        while True:
            await RisingEdge(dut.clk_i)
            if dut.event_valid_o.value == 1:
                events.append(int(dut.event_o.value))

    watching = cocotb.start_soon(watch())
    known = {row.row: row for row in rows}
    for _ in range(count):
        row = source.choice(asked)
        generation = known[row].fields["generation"] if row in known else 1
        asks.queue.append(SEAL_ASK.pack(
            row=row, generation=generation ^ (source.random() < 0.1), v6=source.randrange(2),
            dont_fragment=source.randrange(2), tos=source.getrandbits(8), flow_label=source.getrandbits(20),
            bytes=source.choice((20, source.randrange(20, 300), 65000))))  # fmt: skip
    questions = [SEAL_ASK.unpack(number) for number in asks.queue]
    await until(dut.clk_i, lambda: len(answers.words) == count, 100 + 60 * count)
    await ClockCycles(dut.clk_i, 4)
    wanted_events, identification = [], None
    for ask, (refused, job) in zip(questions, answers.words):
        want, fields, event = known[ask.row].answer(ask) if ask.row in known else (NO_SA, None, None)
        assert refused == want, (ask, refused, want)
        seen[refused] = seen.get(refused, 0) + 1
        if event:
            wanted_events.append(event)
        if refused == 0:
            got = SEAL_JOB.unpack(job)
            assert {name: getattr(got, name) for name in fields} | fields == {name: getattr(got, name) for name in fields}
            bits = 128 if got.v6 else 32
            words = core.sa_out_words(**known[ask.row].fields)
            for address, at in ((got.local_address, 4), (got.remote_address, 8)):
                assert address & (1 << bits) - 1 == sum(word << 32 * n for n, word in enumerate(words[at : at + bits // 32]))
            assert identification is None or got.identification == identification % 0xFFFF + 1
            identification = got.identification
    assert events == wanted_events
    watching.cancel()
    asks.stop()
    answers.stop()
    return seen


@cocotb.test()
async def random_rows(dut):
    await begin(dut)
    seen = {}
    for seed, (idle, back_pressure) in enumerate(((0, 0), (0.5, 0), (0, 0.7), (0.3, 0.3))):
        source = random.Random(seed)
        rows = [Row(row, source) for row in source.sample(range(ROWS), 10)]
        await install(dut, rows)
        for refused, count in (await exchange(dut, rows, 200, idle, back_pressure, seed)).items():
            seen[refused] = seen.get(refused, 0) + count
        for row in rows:
            assert await core.snapshot(dut, row.row) == row.bytes << 64 | row.sequence
        for row in range(ROWS):
            await core.Config(dut).write(row, 1, 0)
    assert set(seen) == {0, NO_SA, SEQUENCE_END, LIFETIME, TOO_BIG}, seen


async def rewrite(dut, rows, seed):
    """Other rows, as the host writes them, all the time."""
    source, config = random.Random(seed), core.Config(dut)
    while True:
        row = Row(source.choice(rows), source)
        words = core.sa_out_words(**row.fields)
        for word, data in ((1, 0), (20, 7), (21, 0), (22, 9), (23, 0), (0, words[0]), *enumerate(words[2:], 2), (1, words[1])):
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
        await exchange(dut, rows, 150, 0.1, 0.1, seed, range(0, ROWS, 2))
        for row in rows:
            assert await core.snapshot(dut, row.row) == row.bytes << 64 | row.sequence
    writer.cancel()


async def answered(dut, row, held):
    """Asks for a row; the answer is taken after some cycles and comes back."""
    dut.ask_i.value = SEAL_ASK.pack(row=row.row, generation=row.fields["generation"], bytes=20)
    dut.valid_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.valid_i.value = 0
    while dut.valid_o.value == 0:
        await RisingEdge(dut.clk_i)
    await ClockCycles(dut.clk_i, held)
    dut.ready_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.ready_i.value = 0
    return int(dut.refused_o.value), SEAL_JOB.unpack(int(dut.job_o.value))


@cocotb.test()
async def the_next_sa_of_a_row(dut):
    """Whenever its words come while a packet of the one before is answered: its numbers are its own."""
    await begin(dut)
    for cycle in range(14):
        for held in (1, 6):
            former, latter = (Row(3, random.Random(2 * cycle + n)) for n in range(2))
            await install(dut, [former])
            answering = cocotb.start_soon(answered(dut, former, held))
            for _ in range(cycle):
                await RisingEdge(dut.clk_i)
            await install(dut, [latter])
            refused, job = await answering
            # The row is read two cycles after the question was taken; before, it is no SA already.
            assert refused == (NO_SA if cycle < 2 else 0)
            assert refused or (job.spi, job.seq) == (former.fields["spi"], former.sequence + 1)
            assert await core.snapshot(dut, 3) == latter.sequence


@cocotb.test()
async def no_identification_is_zero(dut):
    """Packets that another router cuts up are told apart by it (RFC 6864); zero is left out when it begins anew."""
    await begin(dut)
    await core.Config(dut).sa_out(3, spi=1, local="192.0.2.1", remote="198.51.100.2")
    dut.ask_i.value, dut.valid_i.value, dut.ready_i.value = SEAL_ASK.pack(row=3, generation=1, bytes=20), 1, 1
    await Timer(65500 * 8 * 10, "ns")
    answers = Sink(dut.clk_i, dut.valid_o, dut.ready_i, dut.job_o)
    await until(dut.clk_i, lambda: len(answers.words) == 80, 1000)
    seen = [SEAL_JOB.unpack(job).identification for job in answers.words]
    assert seen == [(seen[0] + n - 1) % 65535 + 1 for n in range(80)] and 1 in seen


@cocotb.test()
async def reset_with_a_question_under_way(dut):
    await begin(dut)
    rows = [Row(row, random.Random(row)) for row in range(ROWS)]
    await install(dut, rows)
    dut.ask_i.value, dut.valid_i.value = SEAL_ASK.pack(row=3, bytes=100), 1
    await ClockCycles(dut.clk_i, 2)
    dut.valid_i.value = 0
    await bench.reset(dut)
    assert dut.valid_o.value == 0
    # No row is left.
    assert await exchange(dut, [], 60) == {NO_SA: 60}
    rows = [Row(row, random.Random(row)) for row in range(4)]
    await install(dut, rows)
    await exchange(dut, rows, 40)


def test_sa_out():
    bench.run("sa_out", {"Rows": ROWS})
