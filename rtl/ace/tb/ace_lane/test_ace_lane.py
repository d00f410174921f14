"""ace_lane with each cipher: whole packets against Crypto++, ace_ciphers.py and Python's hmac, and hostile frames."""

import json
import os
import random
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import bench
import cocotb
import lane_model as model
import streams
from cocotb.triggers import ReadOnly, RisingEdge

# Cycles from a packet's answer to the next one's with packets waiting, as docs/ace-cores.md has them.
CYCLES_FILE = Path(__file__).with_name("cycles.json")
CYCLES = json.loads(CYCLES_FILE.read_text())


def name_of(dut):
    return model.ace_ciphers.NAMES[int(dut.Algorithm.value)]


def lengths_of(dut):
    return (16, 24, 32) if int(dut.LongKeys.value) else (16,)


def most_of(dut):
    return 4 * int(dut.BodyWords.value)


class Words(streams.Source):
    """Words of frames, the last one of each marked."""

    def frame(self, words):
        self.queue.extend((word, at == len(words)) for at, word in enumerate(words, 1))


class Answers(streams.Sink):
    """Answers that came whole, and the cycle in which each ended."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.whole, self.ends, self.part = [], [], []

    @property
    def frames(self):
        while self.words:
            (word, last), cycle = self.words.popleft(), self.cycles.popleft()
            self.part.append(word)
            if last:
                self.whole.append(self.part)
                self.ends.append(cycle)
                self.part = []
        return self.whole


def connect(dut, idle=0, back_pressure=0, seed=1):
    clk = dut.clk_i
    return SimpleNamespace(
        source=Words(clk, dut.valid_i, dut.ready_o, streams.Joined(dut.data_i, dut.last_i), bench.pauses(idle, seed)),
        sink=Answers(clk, dut.valid_o, dut.ready_i, [dut.data_o, dut.last_o], bench.pauses(back_pressure, seed + 1)),
    )


def disconnect(ends):
    ends.source.stop()
    ends.sink.stop()


async def exchange(dut, frames, answers, idle=0, back_pressure=0, seed=1):
    """Gives frames and holds what comes against `answers`; afterwards nothing is inside. Returns the cycles of the answers' ends."""
    ends = connect(dut, idle, back_pressure, seed)
    for frame in frames:
        ends.source.frame(frame)
    bound = 3000 + 60 * sum(map(len, frames)) + 1500 * len(frames)

    def done():
        return len(ends.sink.frames) >= len(answers) and not ends.source.queue and dut.busy_o.value == 0

    await streams.until(dut.clk_i, done, bound)
    assert ends.sink.frames == answers, (name_of(dut), idle, back_pressure)
    assert not ends.sink.part
    disconnect(ends)
    return ends.sink.ends


async def start(dut):
    for signal in (dut.valid_i, dut.ready_i, dut.wipe_i):
        signal.value = 0
    await bench.start(dut)


def sealing(dut, key, packet, by_model=False):
    return packet.seal(), model.answer(model.SEALED, *packet.sealed(name_of(dut), key, by_model))


def opening(dut, key, packet):
    return packet.open(name_of(dut), key), model.answer(model.OPENED, packet.body)


def forged(dut, key, packet, source):
    """A packet with one bit changed: in the ICV, the body, the header, or the sequence number that does not travel."""
    text, icv = packet.sealed(name_of(dut), key)
    places = ["icv", "spi", "low", "iv", *(["body"] if text else []), *(["high"] if packet.esn else [])]
    place = source.choice(places)
    parts = {"icv": icv, "body": text, **{part: getattr(packet, part) for part in ("spi", "low", "high", "iv")}}
    bit = source.randrange(8 * len(parts[place]))
    parts[place] = (int.from_bytes(parts[place], "big") ^ 1 << bit).to_bytes(len(parts[place]), "big")
    header = replace(packet, **{part: parts[part] for part in ("spi", "low", "high", "iv")})
    return header.frame(parts["body"], parts["icv"]), model.answer(model.BAD_ICV)


def traffic(dut, source, count, lengths=None, keys=0.2):
    """Frames and the answers due: sealing, opening, forged packets, and now and then a new key."""
    frames, answers, key = [], [], None
    for _ in range(count):
        if key is None or source.random() < keys:
            key = model.random_key(source, lengths_of(dut))
            frames.append(key.frame())
        packet = model.random_packet(source, source.choice(lengths or range(0, 132, 4)))
        kind = source.random()
        frame, due = sealing(dut, key, packet) if kind < 0.4 else opening(dut, key, packet) if kind < 0.8 else forged(dut, key, packet, source)
        frames.append(frame)
        answers.append(due)
    return frames, answers


def malformed(dut, source):
    """Frames that are none, each as (words, what is wrong)."""
    key, packet = model.random_key(source, lengths_of(dut)).frame(), model.random_packet(source, 32)
    seal, opened = packet.seal(), packet.frame(packet.body, bytes(16))
    long = model.random_packet(source, most_of(dut) + 4)

    def head(frame, word):
        return [word, *frame[1:]]

    yield from ([source.getrandbits(24) | op << 24, *seal[1:]] for op in (0, 3, 0x81, 0xFF))
    yield [0]
    yield from (seal[:1], seal[:5], seal[:6], seal[:-1], [*seal, 0], [*seal, *seal, *seal])
    yield from (opened[:-1], opened[:-4], [*opened, 0])
    yield from (head(seal, seal[0] + 4), head(seal, seal[0] - 4), head(seal, seal[0] | 1), head(seal, seal[0] | 2), head(seal, seal[0] ^ 1 << 16))
    yield from (head(seal, seal[0] | 1 << bit) for bit in range(18, 24))
    yield from (long.seal(), long.frame(long.body, bytes(16)), head(seal, 2 << 24 | 0xFFFC), head(long.seal(), long.seal()[0] - 4))
    yield [2 << 24 | most_of(dut), *[0] * (3 * most_of(dut))]
    yield from (key[:-1], key[:1], [*key, 0], head(key, key[0] | 4), head(key, key[0] | 1 << 23), head(key, 1 << 24 | 3))
    if lengths_of(dut) == (16,):
        yield from (head(key, 1 << 24 | 1), head(key, 1 << 24 | 2))


@cocotb.test()
async def every_length(dut):
    """Bodies of no byte up to the most, both ways; the first packets against the model too, which is independent of Crypto++."""
    await start(dut)
    source = random.Random(1)
    lengths = [0, 4, 8, 12, 16, 20, *range(24, 132, 12), most_of(dut) - 4, most_of(dut)]
    key = model.random_key(source, lengths_of(dut)[-1:])
    frames, answers = [key.frame()], []
    for length in lengths:
        packet = model.random_packet(source, length)
        for frame, answer in (sealing(dut, key, packet, length < 64), opening(dut, key, packet)):
            frames.append(frame)
            answers.append(answer)
    await exchange(dut, frames, answers)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await start(dut)
    source = random.Random(2)
    for seed, idle, back_pressure in ((1, 0, 0), (2, 0.7, 0), (3, 0, 0.9), (4, 0.5, 0.5)):
        await exchange(dut, *traffic(dut, source, 14), idle, back_pressure, seed)


@cocotb.test()
async def packets_of_others(dut):
    """Packets that scapy made, for AES-256; with ESN their numbers' high halves are zero."""
    await start(dut)
    if name_of(dut) != "rijndael":
        return
    cases = json.loads((bench.VECTORS / "packets" / "esp-aes-ctr-256-hmac-sha2-256-128.json").read_text())["cases"]
    frames, answers = [], []
    for case in cases:
        raw = bytes.fromhex(case["frame"])
        if case["udp"] or case["drop"] or raw[0] != 0x45 or raw[9] != 50 or int(case["sequence"], 16) >> 32:
            continue
        secret, esp = bytes.fromhex(case["key"]), raw[20:]
        key = model.Key(secret[:32], secret[32:36], secret[36:])
        packet = model.Packet(esp[:4], esp[4:8], bytes(4), esp[8:16], b"", case["esn"])
        text, icv = esp[16:-16], esp[-16:]
        clear = bytes(a ^ b for a, b in zip(text, key.stream("rijndael", packet.iv, len(text)), strict=True))
        delivered = bytes.fromhex(case["delivered"])
        # In tunnel mode the inner packet is what is delivered, but for its TTL and checksum.
        assert case["mode"] != "tunnel" or clear[12:20] == delivered[12:20]
        frames += [key.frame(), packet.frame(text, icv), packet.frame(clear)]
        answers += [model.answer(model.OPENED, clear), model.answer(model.SEALED, text, icv)]
    assert len(answers) >= 8
    await exchange(dut, frames, answers)


@cocotb.test()
async def forged_packets(dut):
    """Only the status leaves, and the body is overwritten inside."""
    await start(dut)
    source = random.Random(3)
    key = model.random_key(source, lengths_of(dut))
    await exchange(dut, [key.frame()], [])
    for length in (0, 4, 16, 64, 128, 200):
        packet = model.random_packet(source, length, esn=length % 3 == 1)
        frames, answers = zip(*(forged(dut, key, packet, source) for _ in range(4)))
        await exchange(dut, frames, list(answers))
        bank = 1 << int(dut.AddrWidth.value)
        for first in (0, bank):
            assert not any(int(dut.u_out.mem[first + at].value) for at in range(length // 4))
    # Every byte of the ICV counts.
    text, icv = packet.sealed(name_of(dut), key)
    wrong = [icv[:at] + bytes([icv[at] ^ 1 << at % 8]) + icv[at + 1 :] for at in range(16)]
    await exchange(dut, [packet.frame(text, other) for other in wrong], [model.answer(model.BAD_ICV)] * 16)
    await exchange(dut, *([item] for item in opening(dut, key, packet)))


@cocotb.test()
async def hostile_frames(dut):
    """Each is answered, and changes nothing: neither key nor the packets around it."""
    await start(dut)
    source = random.Random(4)
    packet = model.random_packet(source, 40)
    await exchange(dut, [packet.seal(), packet.frame(packet.body, bytes(16))], [model.answer(model.NO_KEY)] * 2)
    key = model.random_key(source, lengths_of(dut))
    await exchange(dut, [key.frame()], [])
    frames, answers = [], []
    for wrong in malformed(dut, source):
        frame, answer = source.choice((sealing, opening))(dut, key, model.random_packet(source, source.randrange(0, 72, 4)))
        frames += [wrong, frame]
        answers += [model.answer(model.MALFORMED), answer]
    assert len(answers) > 60
    await exchange(dut, frames, answers, idle=0.1, back_pressure=0.2)
    # Before there is a key nothing malformed makes one.
    await bench.reset(dut)
    wrong = list(malformed(dut, source))
    await exchange(dut, [*wrong, packet.seal()], [*[model.answer(model.MALFORMED)] * len(wrong), model.answer(model.NO_KEY)])


@cocotb.test()
async def noise(dut):
    """Random words and ends of frames: an answer for each frame that is no key, and a packet is sealed as ever afterwards."""
    await start(dut)
    source = random.Random(5)
    frames = []
    for _ in range(120):
        first = source.getrandbits(32) if source.random() < 0.2 else source.choice((1, 2)) << 24 | source.getrandbits(source.choice((1, 5, 18)))
        frames.append([first, *(source.getrandbits(32) for _ in range(source.choice((0, 3, 5, 6, 9, 25, 26))))])
    ends = connect(dut, 0.2, 0.2)
    for frame in frames:
        ends.source.frame(frame)
    await streams.until(dut.clk_i, lambda: not ends.source.queue and dut.busy_o.value == 0, 200_000)
    keys = len(frames) - len(ends.sink.frames)
    assert 0 <= keys < 20 and not ends.sink.part
    for answer in ends.sink.frames:
        status = answer[0] >> 24
        assert status in (model.SEALED, model.BAD_ICV, model.MALFORMED, model.NO_KEY)
        assert len(answer) == 1 + (answer[0] & 0xFFFF) // 4 + (4 if status == model.SEALED else 0)
    disconnect(ends)
    await exchange(dut, *traffic(dut, source, 3))


@cocotb.test()
async def reset_in_the_middle(dut):
    await start(dut)
    source = random.Random(6)
    for cycles in (1, 30, 90, 200, 300, 420, 700, 1300):
        ends = connect(dut, back_pressure=0.4)
        for frame in traffic(dut, source, 5)[0]:
            ends.source.frame(frame)
        while dut.ready_o.value == 0:  # the lane is wiped after reset
            await RisingEdge(dut.clk_i)
        for _ in range(cycles):
            await RisingEdge(dut.clk_i)
        disconnect(ends)
        await bench.reset(dut)
        await exchange(dut, *traffic(dut, source, 2))


# Flip-flops and memories.
REGISTERS = ("*_q", "mem", "word_o", "icv_o")


def registers(dut):
    """Every flip-flop and memory inside, by path."""
    found = {}

    def walk(handle):
        for child in handle:
            if type(child).__name__ in ("HierarchyObject", "HierarchyArrayObject"):
                walk(child)
            elif any(fnmatch(child._name, name) for name in REGISTERS):
                found[child._path] = child

    walk(dut)
    return found


@cocotb.test()
async def wipe(dut):
    """Nothing is taken or given while it wipes, nothing of former packets comes, and no register remembers any."""
    await start(dut)
    source, names, states = random.Random(7), None, []
    for after in (3, 60, 150, 400, 900, 1500):
        await exchange(dut, *traffic(dut, source, 2))
        ends = connect(dut, back_pressure=0.3)
        for frame in traffic(dut, source, 6)[0]:
            ends.source.frame(frame)
        for _ in range(after):
            await RisingEdge(dut.clk_i)
        dut.wipe_i.value = 1
        taken = ends.source.sent
        for cycle in range(10_000):
            await ReadOnly()
            if dut.ready_o.value == 1:
                break
            assert dut.valid_o.value == 0 and dut.busy_o.value == 1
            await RisingEdge(dut.clk_i)
            dut.wipe_i.value = cycle < 3
            if cycle == 100:
                # Words were offered all the time; one may have been taken in the cycle before the wipe.
                assert ends.source.sent <= taken + 1
                disconnect(ends)
        assert cycle > 100
        await RisingEdge(dut.clk_i)
        # What is left of the frame that was cut off is dropped.
        cut, rest = dut.busy_o.value == 1, connect(dut)
        if cut:
            rest.source.frame(model.random_key(source, lengths_of(dut)).frame())
        for _ in range(100):
            await RisingEdge(dut.clk_i)
        assert not rest.sink.frames and dut.busy_o.value == 0
        disconnect(rest)
        names = names or registers(dut)
        assert len(names) > 60
        state = {path: str(handle.value) for path, handle in names.items()}
        states.append((cut, state))
        differ = [path for path in names if states[0][1][path] != state[path]]
        assert not differ, differ
        # There is no key.
        await exchange(dut, [model.random_packet(source, 16).seal()], [model.answer(model.NO_KEY)])
    assert {cut for cut, _ in states} == {True, False}


@cocotb.test()
async def no_cycle_depends_on_secrets(dut):
    """The same course with other keys and plaintexts, some of them extreme, takes the same cycles."""
    await start(dut)
    traces = []
    for seed in range(6):
        shape, source = random.Random(8), random.Random(seed)
        fill = {2: bytes, 3: lambda n: b"\xff" * n}.get(seed, source.randbytes)
        frames = []
        for length in (0, 16, 40, 4, 128):
            key = model.Key(fill(shape.choice(lengths_of(dut))), fill(4), fill(32))
            packet = model.random_packet(shape, length)
            packet = replace(packet, body=fill(length), spi=fill(4), iv=fill(8))
            frames += [key.frame(), packet.seal(), packet.open(name_of(dut), key)]
        ends, trace = connect(dut, 0.2, 0.3, seed=5), []
        for frame in frames:
            ends.source.frame(frame)
        while len(ends.sink.frames) < 10:
            await ReadOnly()
            trace.append((int(dut.ready_o.value), int(dut.valid_o.value), int(dut.last_o.value) if dut.valid_o.value else 0))
            assert len(trace) < 50_000
            await RisingEdge(dut.clk_i)
        disconnect(ends)
        traces.append(trace)
        for _ in range(600):
            await RisingEdge(dut.clk_i)
    # The first course begins without a key.
    assert traces[1] == traces[2] == traces[3] == traces[4] == traces[5]


@cocotb.test()
async def rate(dut):
    """Packets behind one another."""
    await start(dut)
    source, found = random.Random(9), {}
    key = model.random_key(source, lengths_of(dut)[:1])
    for length in (64, 256, 1456):
        if length > most_of(dut):
            continue
        packets = [model.random_packet(source, length, esn=False) for _ in range(4)]
        frames, answers = zip(*((sealing, opening)[at % 2](dut, key, packet) for at, packet in enumerate(packets)))
        came = await exchange(dut, [key.frame(), *frames], list(answers))
        found[str(length)] = [came[2] - came[1], came[3] - came[2]]
    dut._log.info("%s: %s", name_of(dut), json.dumps(found))
    if os.environ.get("ACE_WRITE"):
        # RTL_ACE_WRITE=1 rtl/run test -n0 -k ace_lane writes the file again.
        CYCLES[name_of(dut)] = found
        CYCLES_FILE.write_text(json.dumps(CYCLES, indent=1, sort_keys=True) + "\n")
    assert found == CYCLES[name_of(dut)]


# The last two are as the bitstreams have them.
SHORT = {"LongKeys": 0}
VARIANTS = {"rijndael": {}, "serpent": {}, "twofish": {}, "rc6": SHORT, "mars": SHORT}


@bench.parameter_sets("name", VARIANTS)
def test_ace_lane(name):
    bench.run(
        "ace_lane", {"Algorithm": model.ace_ciphers.NAMES.index(name), **VARIANTS[name]}, {"*": REGISTERS},
        ACE_WRITE=os.environ.get("RTL_ACE_WRITE", ""),
    )  # fmt: skip
