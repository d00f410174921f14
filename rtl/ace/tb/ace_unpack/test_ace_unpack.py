"""ace_unpack against files that crates/ace packed, and hostile ones against a reader that was written from the format's page."""

import json
import random
from types import SimpleNamespace

import bench
import cocotb
import packed
import streams
from cocotb.triggers import RisingEdge

CASES = json.loads((bench.VECTORS / "ace" / "packed.json").read_text())["cases"]


# Cycles without a symbol between two parts, and for each empty part between them.
PAUSE, EMPTY_PART = 4, 2


def sizes(dut):
    return int(dut.Width.value), int(dut.IndexWords.value), int(dut.Parts.value)


async def outcomes(dut, found):
    while True:
        await RisingEdge(dut.clk_i)
        if dut.done_o.value == 1:
            found.append(int(dut.outcome_o.value))


def connect(dut, idle=0, back_pressure=0, seed=1):
    clk, found = dut.clk_i, []
    return SimpleNamespace(
        source=streams.Source(clk, dut.valid_i, dut.ready_o, streams.Joined(dut.byte_i, dut.last_i), bench.pauses(idle, seed)),
        sink=streams.Sink(clk, dut.valid_o, dut.ready_i, [dut.symbol_o, dut.part_o, dut.last_o], bench.pauses(back_pressure, seed + 1)),
        outcomes=found, watch=cocotb.start_soon(outcomes(dut, found)),
    )  # fmt: skip


def disconnect(ends):
    ends.source.stop()
    ends.sink.stop()
    ends.watch.cancel()


async def unpack(dut, data, idle=0, back_pressure=0):
    """What comes of a file: symbols, outcome, and the cycles in which symbols came."""
    ends = connect(dut, idle, back_pressure)
    ends.source.queue.extend((byte, at == len(data)) for at, byte in enumerate(data, 1))
    expected, outcome = packed.read(data, *sizes(dut))
    await streams.until(dut.clk_i, lambda: ends.outcomes, 200 + 20 * (len(data) + len(expected)))
    await RisingEdge(dut.clk_i)  # a symbol may come in the cycle of the outcome
    words, cycles = list(ends.sink.words), list(ends.sink.cycles)
    assert ends.outcomes == [outcome] and not ends.source.queue, (ends.outcomes, outcome)
    assert words == expected
    disconnect(ends)
    return words, outcome, cycles


async def start(dut):
    dut.valid_i.value = dut.ready_i.value = 0
    await bench.start(dut)


@cocotb.test()
async def files_of_the_crate(dut):
    """What the crate packed comes out as what went in, and within a part with a symbol each cycle, whatever the phrases are."""
    await start(dut)
    for case in CASES:
        data, parts = bytes.fromhex(case["packed"]), [bytes.fromhex(part) for part in case["parts"]]
        words, outcome, cycles = await unpack(dut, data)
        assert outcome == packed.FINE and data[5] <= sizes(dut)[0]
        for number, part in enumerate(parts):
            assert bytes(symbol for symbol, of, _ in words if of == number) == part
        end = None
        for part in sorted({of for _, of, _ in words}):
            came = [cycle for (_, of, _), cycle in zip(words, cycles, strict=True) if of == part]
            assert came[-1] - came[0] == len(came) - 1
            if end is not None:
                assert came[0] - end[1] == 1 + PAUSE + EMPTY_PART * (part - end[0] - 1)
            end = part, came[-1]
        rate = len(words) / (cycles[-1] - cycles[0] + 1)
        dut._log.info("%s: %d symbols of %d codewords, %.4f a cycle", case["name"], len(words), case["codewords"], rate)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await start(dut)
    for idle, back_pressure in ((0.5, 0), (0, 0.7), (0.4, 0.4)):
        for case in CASES[:: 5]:
            await unpack(dut, bytes.fromhex(case["packed"]), idle, back_pressure)


def changed(source, data):
    """A file that is wrong somewhere, more often in its header."""
    data, kind = bytearray(data), source.randrange(6)
    if kind == 0:
        return bytes(data[: source.randrange(1, len(data))])
    if kind == 1:
        return bytes(data) + source.randbytes(source.randrange(1, 40))
    for _ in range(source.choice((1, 1, 2, 8))):
        at = source.randrange(min(len(data), (12, 28, 60, len(data))[kind - 2]))
        data[at] = source.choice((data[at] ^ 1 << source.randrange(8), 0, 255, source.randrange(256)))
    return bytes(data)


@cocotb.test()
async def hostile_files(dut):
    """Each ends as the reader says, with the symbols that it says, and the next file is read as ever."""
    await start(dut)
    source, seen = random.Random(1), set()
    short = [bytes.fromhex(case["packed"]) for case in CASES if len(case["packed"]) < 1600]
    for _ in range(250):
        _, outcome, _ = await unpack(dut, changed(source, source.choice(short)))
        seen.add(outcome)
    # A link to a later node, in a file without a header's fault.
    for link in (1, 2, 3):
        bits = f"{0:08b}{link:02b}{1:08b}{0:02b}{2:08b}{1:02b}".ljust(32, "0")
        data = b"ACEP\x01\x02\x00\x01" + (3).to_bytes(4, "big") + (1).to_bytes(4, "big") + (9).to_bytes(4, "big")
        _, outcome, _ = await unpack(dut, data + int(bits, 2).to_bytes(4, "big") + b"\x80")
        assert outcome == packed.LINK
        seen.add(outcome)
    assert seen == set(range(8)), seen
    await unpack(dut, short[0])


@cocotb.test()
async def reset_in_the_middle(dut):
    await start(dut)
    data = bytes.fromhex(CASES[12]["packed"])
    for cycles in (1, 11, 40, 200, 700):
        ends = connect(dut)
        ends.source.queue.extend((byte, at == len(data)) for at, byte in enumerate(data, 1))
        for _ in range(cycles):
            await RisingEdge(dut.clk_i)
        disconnect(ends)
        await bench.reset(dut)
        await unpack(dut, data)


def test_ace_unpack():
    bench.run("ace_unpack", {"Width": 12, "IndexWords": 1024, "Parts": 4})
