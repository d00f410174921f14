"""frame_fifo: frames come out as they were asked for; bad ones only as an entry; nothing is ever stuck."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import RisingEdge
from streams import Sink, Source, beat, until

NONE, MALFORMED, TOO_LONG = 0, 1, 2
BEATS, MAX = 64, 512


def good(source):
    """Beats and the entry of a random frame, good or bad."""
    length = source.choice((1, 15, 16, 17, 33, MAX - 1, MAX, source.randrange(1, 200)))
    kind = source.random()
    if kind < 0.15:
        length = source.randrange(MAX + 1, 3 * MAX)
    frame = source.randbytes(length)
    parts = [frame[at : at + 16] for at in range(0, length, 16)]
    words = [beat(part, part is parts[-1]) for part in parts]
    if kind < 0.15:
        return words, (TOO_LONG, b"")
    if kind < 0.3:
        at = source.randrange(len(words))
        last = at == len(words) - 1
        keep = source.choice((0, 0x8000, 0xFFFD, 0x7FFE, 0x5555) if last else (0, 0x7FFF, 0x0001, 0xFFFE))
        words[at] = beat(parts[at], last, keep)
        return words, (MALFORMED, b"")
    return words, (NONE, frame)


async def exchange(dut, idle, back_pressure, frames=150, seed=1):
    random_ = random.Random(seed)
    source = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.beat_i, bench.pauses(idle, seed))
    sink = Sink(dut.clk_i, dut.valid_o, dut.ready_i, [dut.data_o, dut.first_o, dut.last_o, dut.tag_o],
                bench.pauses(back_pressure, seed + 1))
    expected, out = deque(), []
    for _ in range(frames):
        words, entry = good(random_)
        source.queue.extend(words)
        expected.append(entry)
    slow = bench.pauses(back_pressure, seed + 2)
    dut.take_valid_i.value = 0
    waited = 0
    offered = None
    while expected:
        await RisingEdge(dut.clk_i)
        waited += 1
        assert waited < 2000, "stuck"
        if offered is not None:
            if dut.take_ready_o.value != 1:
                continue
            out.extend(offered)
            expected.popleft()
            offered, waited = None, 0
            dut.take_valid_i.value = 0
            continue
        if dut.entry_valid_o.value == 1 and not next(slow):
            error, frame = expected[0]
            assert int(dut.entry_error_o.value) == error
            assert int(dut.entry_bytes_o.value) == len(frame)
            whole = -(-len(frame) // 16)
            first = random_.randrange(whole) if whole and random_.random() < 0.3 else 0
            count = random_.choice((whole - first, whole - first, random_.randrange(whole - first + 1))) if whole else 0
            tag = random_.randrange(2)
            dut.take_valid_i.value, dut.take_first_i.value = 1, first
            dut.take_beats_i.value, dut.take_tag_i.value = count, tag
            offered = [(frame[16 * at : 16 * at + 16], at == first, at == first + count - 1, tag)
                       for at in range(first, first + count)]
    await until(dut.clk_i, lambda: len(sink.words) == len(out), 2000)
    for (data, *flags), (part, *want) in zip(sink.words, out):
        assert flags == want and data.to_bytes(16, "little")[: len(part)] == part
    source.stop()
    sink.stop()


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    for seed, (idle, back_pressure) in enumerate(((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.8))):
        await exchange(dut, idle, back_pressure, seed=10 * seed)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    source = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.beat_i)
    source.frame(bytes(100))
    source.queue.extend([beat(bytes(16), False)] * 3)
    await until(dut.clk_i, lambda: source.sent == 9, 100)
    source.stop()
    await bench.reset(dut)
    await exchange(dut, 0.2, 0.2, frames=40, seed=3)


@cocotb.test()
async def full_rate(dut):
    """Frames of 32 beats pass with two cycles between them."""
    await bench.start(dut)
    source = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.beat_i)
    sink = Sink(dut.clk_i, dut.valid_o, dut.ready_i, dut.data_o)
    for n in range(20):
        source.frame(bytes([n]) * MAX)
    dut.take_first_i.value, dut.take_beats_i.value, dut.take_tag_i.value = 0, MAX // 16, 0
    dut.take_valid_i.value = 0
    for _ in range(20 * (MAX // 16 + 2) + 60):
        await RisingEdge(dut.clk_i)
        dut.take_valid_i.value = 0
        if len(sink.words) == 20 * MAX // 16:
            break
        # The entry shown may be one that is just taken.
        if dut.entry_valid_o.value == 1 and dut.take_ready_o.value == 1 and dut.take_valid_i.value == 0:
            dut.take_valid_i.value = 1
    assert len(sink.words) == 20 * MAX // 16
    assert sink.cycles[-1] - sink.cycles[0] <= 20 * (MAX // 16 + 2)


@bench.parameter_sets("slice_", (0, 1))
def test_frame_fifo(slice_):
    bench.run("frame_fifo", {"Beats": BEATS, "MaxBytes": MAX, "Frames": 4, "Slice": slice_})
