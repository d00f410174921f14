"""Sources and sinks for valid/ready handshakes, and frames as beats (esp_pkg::beat_t)."""

import hashlib
import itertools
import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge


def beats(frame):
    """A frame as values of beat_t: {data, keep, last}."""
    for at in range(0, len(frame), 16):
        part = frame[at : at + 16]
        yield beat(part, last=at + 16 >= len(frame))


def beat(part, last, keep=None):
    keep = (1 << len(part)) - 1 if keep is None else keep
    return int.from_bytes(filled(part), "little") << 17 | keep << 1 | last


def filled(part):
    """A beat's 16 bytes: behind its part stands what nobody is to read, always the same behind the same part."""
    return part + hashlib.md5(part).digest()[len(part) :]


def wrong_keep(frame, source):
    """The beats of a frame, one of them with a hole in its keep, or short where it is not the last."""
    values = list(beats(frame))
    at = source.randrange(len(values))
    keep = source.choice((0, 0x8000, 0xFFFD, 0x7FFE, 0x5555) if at == len(values) - 1 else (0, 0x7FFF, 0x0001, 0xFFFE))
    values[at] = values[at] & ~(0xFFFF << 1) | keep << 1
    return values


def beat_bytes(value):
    """The bytes of a beat_t and whether it is the last."""
    keep = value >> 1 & 0xFFFF
    count = keep.bit_count()
    assert keep == (1 << count) - 1 and (value & 1 or count == 16), f"keep {keep:016b}, last {value & 1}"
    return (value >> 17).to_bytes(16, "little")[:count], bool(value & 1)


class Joined:
    """Several signals as one that is given a tuple."""

    def __init__(self, *signals):
        object.__setattr__(self, "signals", signals)

    def __setattr__(self, name, values):
        assert name == "value"
        for signal, value in zip(self.signals, values, strict=True):
            signal.value = value


class Source:
    """Offers the words of `queue`, one after the other; `pause` says when it is idle."""

    def __init__(self, clk, valid, ready, data, pause=None):
        self.clk, self.valid, self.ready, self.data = clk, valid, ready, data
        self.pause = pause or itertools.repeat(False)
        self.queue = deque()
        self.sent = 0
        self.cycles = []  # that each word was taken in
        valid.value = 0
        self.task = cocotb.start_soon(self.run())

    async def run(self):
        offered, cycle = False, 0
        while True:
            await RisingEdge(self.clk)
            cycle += 1
            if offered and self.ready.value == 1:
                offered = False
                self.sent += 1
                self.cycles.append(cycle)
            if not offered:
                offered = bool(self.queue) and not next(self.pause)
                if offered:
                    self.data.value = self.queue.popleft()
                self.valid.value = offered

    def frame(self, frame):
        self.queue.extend(beats(frame))

    def stop(self):
        self.task.cancel()
        self.valid.value = 0


class Sink:
    """Collects words and the cycle that each came in; `pause` says when it is not ready. `data` may be several signals."""

    def __init__(self, clk, valid, ready, data, pause=None):
        self.clk, self.valid, self.ready = clk, valid, ready
        self.data = data if isinstance(data, (list, tuple)) else [data]
        self.pause = pause or itertools.repeat(False)
        self.words = deque()
        self.cycles = deque()
        self.cycle = 0
        ready.value = 0
        self.task = cocotb.start_soon(self.run())

    async def run(self):
        was_ready = False
        while True:
            await RisingEdge(self.clk)
            self.cycle += 1
            if was_ready and self.valid.value == 1:
                values = [int(signal.value) for signal in self.data]
                self.words.append(values[0] if len(values) == 1 else tuple(values))
                self.cycles.append(self.cycle)
            now = not next(self.pause)
            if now != was_ready:
                self.ready.value = now
            was_ready = now

    def stop(self):
        self.task.cancel()
        self.ready.value = 0


class FrameSink(Sink):
    """A sink of beats: `frames` has what came whole, as (bytes, *the other signals at its first beat)."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.taken = []
        self.rest = b""
        self.ends = []

    @property
    def frames(self):
        while self.words:
            word = self.words.popleft()
            value, *others = word if isinstance(word, tuple) else (word,)
            end = self.cycles.popleft()
            part, last = beat_bytes(value)
            if not self.rest:
                self.others = others
            assert self.others == others, "a side signal changed within a frame"
            self.rest += part
            if last:
                self.taken.append((self.rest, *others) if others else self.rest)
                self.ends.append(end)
                self.rest = b""
        return self.taken


async def until(clk, condition, cycles):
    for _ in range(cycles):
        if condition():
            return
        await RisingEdge(clk)
    raise AssertionError(f"stuck: not so after {cycles} cycles")


async def words_keep_their_order(dut, depth):
    """A queue of `depth` words whose ready is low only when it is full: words come out in order, once each, also around resets."""
    await bench.start(dut)
    source, counts = random.Random(3), hasattr(dut, "count_o")
    for idle, pressure in ((0, 0), (0.5, 0), (0, 0.5), (0.5, 0.5)):
        idles, pressures, inside, seen = bench.pauses(idle, 1), bench.pauses(pressure, 2), deque(), 0
        for cycle in range(500):
            if cycle in (100, 233):
                await bench.reset(dut)
                inside.clear()
            valid, ready, word = not next(idles), not next(pressures), source.getrandbits(16)
            dut.valid_i.value, dut.ready_i.value, dut.data_i.value = valid, ready, word
            await ReadOnly()
            assert not counts or int(dut.count_o.value) == len(inside)
            assert dut.ready_o.value == (len(inside) < depth)
            assert dut.valid_o.value == bool(inside)
            put = valid and len(inside) < depth
            if inside:
                assert int(dut.data_o.value) == inside[0]
                if ready:
                    inside.popleft()
                    seen += 1
            if put:
                inside.append(word)
            await RisingEdge(dut.clk_i)
        assert seen > 90
        assert seen >= 497 or idle or pressure
        await bench.reset(dut)


async def a_word_too_many(dut, room):
    """Offers a queue that nobody empties `room` words and one more. Where it sets NeverFull, the last one stops the simulation."""
    await bench.start(dut)
    dut.ready_i.value, dut.valid_i.value = 0, 1
    for word in range(room):
        dut.data_i.value = word
        await RisingEdge(dut.clk_i)
    await ReadOnly()
    assert dut.ready_o.value == 0
    dut._log.info("every place is taken")
    await ClockCycles(dut.clk_i, 4)


def assert_overfilled(printed):
    """The last word stopped the simulation, not one before it."""
    assert printed.index("every place is taken") < printed.index("a word is lost")
