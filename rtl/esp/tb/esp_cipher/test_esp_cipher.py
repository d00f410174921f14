"""esp_cipher against the cryptography package and hmac: sealing and opening, keys that change with every packet."""

import json
import random

import bench
import cipher_keys
import cocotb
import core
import streams
from cocotb.triggers import RisingEdge
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from structs import CIPHER_TAG


async def install(dut, rows):
    config = core.Config(dut)
    for row, (suite, material) in rows.items():
        for word, value in cipher_keys.key_row(suite, material):
            await config.write(row, word, value)


class Harness:
    def __init__(self, dut, idle=0.0, back_pressure=0.0):
        self.dut, self.opens = dut, int(dut.Open.value) == 1
        pause = (bench.pauses(share, n) for n, share in enumerate((idle, idle, idle, back_pressure, back_pressure)))
        self.commands = streams.Source(dut.clk_i, dut.cmd_valid_i, dut.cmd_ready_o, dut.cmd_i, next(pause))
        self.bodies = streams.Source(dut.clk_i, dut.body_valid_i, dut.body_ready_o, dut.body_i, next(pause))
        self.icvs = streams.Source(dut.clk_i, dut.icv_valid_i, dut.icv_ready_o, dut.icv_i, next(pause))
        self.out = streams.FrameSink(dut.clk_i, dut.out_valid_o, dut.out_ready_i, dut.out_o, next(pause))
        self.tags = streams.Sink(dut.clk_i, dut.tag_valid_o, dut.tag_ready_i, dut.tag_o, next(pause))
        self.packets = []

    def stop(self):
        for part in (self.commands, self.bodies, self.icvs, self.out, self.tags):
            part.stop()

    def send(self, packet, icv=None):
        self.commands.queue.append(packet.command(len(self.packets) % 64))
        self.packets.append((packet, icv is None))
        self.bodies.frame(packet.sealed if self.opens else packet.plain)
        if self.opens:
            self.icvs.queue.append(int.from_bytes(icv or packet.icv, "little"))

    async def check(self, cycles=20000):
        await streams.until(self.dut.clk_i, lambda: len(self.tags.words) == len(self.packets), cycles)
        await streams.until(self.dut.clk_i, lambda: len(self.out.frames) == len(self.packets), 2000)
        for at, ((packet, right), frame, tag) in enumerate(zip(self.packets, self.out.frames, map(CIPHER_TAG.unpack, self.tags.words))):
            icv = tag.icv.to_bytes(16, "little")
            assert tag.id == at % 64
            if self.opens:
                assert frame == packet.plain
                assert tag.ok == right and icv == bytes(16)
            else:
                assert frame == packet.sealed
                assert tag.ok == 1 and icv == packet.icv


def suites(dut):
    return range(0 if int(dut.Gcm.value) else 2, 4 if int(dut.HmacUnits.value) else 2)


@cocotb.test()
async def packets_follow_each_other(dut):
    source = random.Random(1)
    await bench.start(dut)
    harness = Harness(dut)
    rows = cipher_keys.rows(source, 6, suites(dut))
    await install(dut, rows)
    for _ in range(60):
        harness.send(cipher_keys.packet(source, rows))
    await harness.check()
    harness.stop()


def published():
    """(packet, ciphertext and ICV): draft-mcgrew-gcm-test-01, and of Wycheproof's what a packet could be."""
    sizes = {36: core.GCM256, 20: core.GCM128}  # of key and salt
    for case in json.loads((bench.VECTORS / "esp" / "gcm-mcgrew.json").read_text())["cases"]:
        secret, iv, plain, output = (bytes.fromhex(case[name]) for name in ("key", "iv", "input", "output"))
        if len(secret) in sizes and len(plain) % 4 == 0:
            numbers = int(case["spi"], 16), int(case["sequence"], 16), case["esn"]
            yield cipher_keys.Packet(3, sizes[len(secret)], secret, iv, *numbers, plain), output
    for case in json.loads((bench.VECTORS / "primitives" / "wycheproof-aes-gcm.json").read_text())["cases"]:
        secret, iv, aad, plain, output, icv = (bytes.fromhex(case[name]) for name in ("key", "iv", "aad", "input", "output", "icv"))
        secret += iv[:-8]
        if len(iv) == 12 and len(secret) in sizes and len(aad) == 8 and plain and len(plain) % 4 == 0 and len(icv) == 16:
            numbers = int.from_bytes(aad[:4]), int.from_bytes(aad[4:]), False
            yield cipher_keys.Packet(3, sizes[len(secret)], secret, iv[-8:], *numbers, plain), output + icv


@cocotb.test()
async def published_vectors(dut):
    if int(dut.Gcm.value) == 0:
        return
    await bench.start(dut)
    harness, count = Harness(dut), 0
    for packet, output in published():
        assert packet.sealed + packet.icv == output
        await install(dut, {packet.row: (packet.suite, packet.material)})
        harness.send(packet)
        await harness.check()
        count += 1
    dut._log.info(f"vectors: {count}")
    harness.stop()


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    source = random.Random(2)
    await bench.start(dut)
    rows = cipher_keys.rows(source, 6, suites(dut))
    await install(dut, rows)
    for idle, back_pressure in ((0.5, 0), (0, 0.7), (0.3, 0.3)):
        harness = Harness(dut, idle, back_pressure)
        for _ in range(25):
            harness.send(cipher_keys.packet(source, rows))
        await harness.check()
        harness.stop()


@cocotb.test()
async def consumer_waits(dut):
    """A whole long packet waits inside, its tag is there before a beat is taken; then everything behind it is held."""
    source = random.Random(3)
    await bench.start(dut)
    harness = Harness(dut)
    rows = cipher_keys.rows(source, 2, suites(dut))
    await install(dut, rows)
    harness.out.stop()
    longest = 16 * (int(dut.OutDepth.value) - 64)
    for length in (longest, 1500, 64, 64, 1500, 1500):
        harness.send(cipher_keys.packet(source, rows, length // 4 * 4))
    await streams.until(dut.clk_i, lambda: len(harness.tags.words) == 1, 3000)
    for _ in range(1000):
        await RisingEdge(dut.clk_i)
    harness.out = streams.FrameSink(dut.clk_i, dut.out_valid_o, dut.out_ready_i, dut.out_o)
    await harness.check()
    harness.stop()


@cocotb.test()
async def wrong_icv(dut):
    if int(dut.Open.value) == 0:
        return
    source = random.Random(4)
    await bench.start(dut)
    harness = Harness(dut)
    rows = cipher_keys.rows(source, 4, suites(dut))
    await install(dut, rows)
    for index in range(40):
        packet = cipher_keys.packet(source, rows)
        flipped = int.from_bytes(packet.icv) ^ 1 << source.randrange(128)
        harness.send(packet, flipped.to_bytes(16) if index % 2 else None)
    await harness.check()
    harness.stop()


@cocotb.test()
async def no_cycle_depends_on_secrets(dut):
    """Other keys, salts, IVs, numbers and plaintexts, a wrong ICV: the same cycles."""
    await bench.start(dut)
    shape = random.Random(6)
    packets = [(shape.choice(suites(dut)), 4 * shape.choice((1, 4, 16, 30, 90)), shape.random() < 0.5) for _ in range(30)]
    seen = []
    for seed in range(4):
        source = random.Random(seed)
        if seed == 0:  # a key and plaintexts of few bits, where others are random
            source.randbytes = bytes
        await bench.reset(dut)
        rows = {suite: (suite, cipher_keys.material(source, suite)) for suite in suites(dut)}
        await install(dut, rows)
        harness = Harness(dut)
        for suite, length, esn in packets:
            sequence = source.getrandbits(64 if esn else 32)
            packet = cipher_keys.Packet(
                suite, suite, rows[suite][1], source.randbytes(8), source.getrandbits(32), sequence, esn, source.randbytes(length)
            )
            harness.send(packet, bytes(16) if harness.opens and seed == 3 else None)
        await streams.until(dut.clk_i, lambda: len(harness.out.words) == sum(-(-length // 16) for _, length, _ in packets), 20000)
        await streams.until(dut.clk_i, lambda: len(harness.tags.words) == len(packets), 2000)
        seen.append((list(harness.out.cycles), list(harness.tags.cycles)))
        await harness.check()
        harness.stop()
    assert all(cycles == seen[0] for cycles in seen)


@cocotb.test()
async def keys_change_and_go(dut):
    """A row is overwritten while others are in use; a wiped row is nobody's."""
    source, suite = random.Random(5), suites(dut)[0]
    await bench.start(dut)
    harness = Harness(dut)
    rows = cipher_keys.rows(source, 3, (suite,))
    await install(dut, rows)
    first, second, third = rows
    for _ in range(8):
        harness.send(cipher_keys.packet(source, {second: rows[second]}))
    fresh = cipher_keys.rows(source, 1, (suite,))
    rows[first] = next(iter(fresh.values()))
    await install(dut, {first: rows[first]})
    await core.Config(dut).write(third, 63, 0)
    for _ in range(4):
        harness.send(cipher_keys.packet(source, {first: rows[first]}))
        harness.send(cipher_keys.packet(source, {second: rows[second]}))
    await harness.check()
    harness.stop()
    # GCM: with H = 0 GHASH is 0, and the tag the encrypted counter block alone, which anybody can make.
    for generation in (1, 0):
        wiped = cipher_keys.packet(source, {third: (suite, bytes(len(rows[first][1])))})
        wiped.generation = generation
        block = Cipher(algorithms.AES(bytes(32)), modes.ECB()).encryptor().update(bytes(4) + wiped.iv + bytes([0, 0, 0, 1]))
        harness = Harness(dut)
        harness.send(wiped, block)
        await streams.until(dut.clk_i, lambda: len(harness.out.frames) == 1 and harness.tags.words, 2000)
        assert harness.tags.words.popleft() & 1 == 0
        harness.stop()


@cocotb.test()
async def another_generation(dut):
    """Packets whose SA had the row before, or will, among those of the one that has it."""
    source = random.Random(8)
    await bench.start(dut)
    harness = Harness(dut, 0.1, 0.1)
    rows = cipher_keys.rows(source, 3, suites(dut))
    await install(dut, rows)
    for _ in range(40):
        packet = cipher_keys.packet(source, rows)
        packet.generation = source.choice((1, 1, 0, 2, 65, 127))
        harness.send(packet)
    await streams.until(dut.clk_i, lambda: len(harness.tags.words) == 40, 20000)
    assert [tag & 1 for tag in harness.tags.words] == [packet.generation == 1 for packet, _ in harness.packets]
    harness.stop()


@cocotb.test()
async def the_key_goes_while_it_is_read(dut):
    """Whenever a key is wiped or becomes another one: all of the packet is under the old key, or it is not ok."""
    source, seen = random.Random(9), set()
    await bench.start(dut)
    for cycle in range(16):
        for wipe in (True, False):
            for suite in suites(dut)[::2]:
                material, other = (cipher_keys.material(source, suite) for _ in range(2))
                await install(dut, {3: (suite, material)})
                harness = Harness(dut)
                packet = cipher_keys.packet(source, {3: (suite, material)}, 80)
                harness.send(packet)
                for _ in range(cycle):
                    await RisingEdge(dut.clk_i)
                if wipe:
                    await core.Config(dut).write(3, 63, 0)
                else:
                    await core.Config(dut).key(3, suite, other, generation=2)
                await streams.until(dut.clk_i, lambda: len(harness.out.frames) == 1 and harness.tags.words, 2000)
                tag = harness.tags.words.popleft()
                if tag & 1:
                    assert harness.out.frames[0] == (packet.plain if harness.opens else packet.sealed)
                    assert harness.opens or CIPHER_TAG.unpack(tag).icv.to_bytes(16, "little") == packet.icv
                seen.add((wipe, tag & 1))
                harness.stop()
    assert len(seen) == 4


@cocotb.test()
async def reset_in_mid_frame(dut):
    source = random.Random(6)
    await bench.start(dut)
    for cycles in (0, 3, 20, 40, 77):
        rows = cipher_keys.rows(source, 3, suites(dut))
        harness = Harness(dut)
        await install(dut, rows)
        for _ in range(5):
            harness.send(cipher_keys.packet(source, rows))
        for _ in range(cycles):
            await RisingEdge(dut.clk_i)
        harness.stop()
        await bench.reset(dut)
        # All keys are gone.
        harness = Harness(dut)
        harness.send(cipher_keys.packet(source, rows))
        await streams.until(dut.clk_i, lambda: len(harness.out.frames) == 1 and harness.tags.words, 2000)
        assert harness.tags.words[0] & 1 == 0
        harness.stop()
        await bench.reset(dut)
        harness = Harness(dut)
        await install(dut, rows)
        for _ in range(5):
            harness.send(cipher_keys.packet(source, rows))
        await harness.check()
        harness.stop()


@cocotb.test()
async def steady_state(dut):
    """Cycles between two packets of one length, and from a packet's command to its tag."""
    source = random.Random(7)
    await bench.start(dut)
    harness = Harness(dut)
    row, suite = 3, 0
    rows = {row: (suite, cipher_keys.material(source, suite)), 4: (1, cipher_keys.material(source, 1))}
    await install(dut, rows)
    for length in (64, 524, 1448, 1500):
        harness.packets = []
        start = harness.tags.cycle
        for _ in range(6):
            harness.send(cipher_keys.packet(source, rows, length))
        await harness.check()
        ends = list(harness.tags.cycles)
        gaps = {after - before for before, after in zip(ends, ends[1:])}
        beats = -(-length // 16)
        dut._log.info(f"{length} bytes: a packet each {sorted(gaps)} cycles, first tag after {ends[0] - start}")
        assert gaps == {max(beats + 2, 15)}
        harness.tags.words.clear()
        harness.tags.cycles.clear()
        harness.out.taken.clear()
    harness.stop()


@bench.parameter_sets("opens,hmac,rounds,sbox,stages", ((0, 0, 2, 0, 3), (1, 2, 3, 1, 4), (0, 2, 2, 0, 3), (1, 0, 2, 0, 2)))
def test_esp_cipher(opens, hmac, rounds, sbox, stages):
    parameters = {"Open": opens, "HmacUnits": hmac, "RoundLatency": rounds, "SboxKind": sbox, "GhashStages": stages}
    bench.run("esp_cipher", {"Rows": 16, "OutDepth": 256, **parameters})


@bench.parameter_sets("opens", (0, 1))
def test_esp_cipher_without_gcm(opens):
    # The steady state is of GCM: with HMAC the hash units decide it.
    parameters = {"Open": opens, "HmacUnits": 2, "Gcm": 0}
    bench.run("esp_cipher", {"Rows": 16, "OutDepth": 256, **parameters}, COCOTB_TEST_FILTER="^(?!.*steady_state)")


def test_esp_cipher_as_synthesised():
    parameters = {"RoundLatency": 3, "SboxKind": 1, "GhashStages": 4, "GhashLeaf": 8}
    bench.run("esp_cipher", {"Rows": 16, "OutDepth": 256, **parameters}, COCOTB_TEST_FILTER="follow_each_other|steady_state")
