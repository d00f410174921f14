"""aes_cbc_unit against pyca/cryptography and the vectors."""

import json
import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def encrypted(key, iv, text):
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return encryptor.update(text) + encryptor.finalize()


class Lane:
    """One port: commands and blocks offered, blocks taken."""

    def __init__(self, packets, idle, back_pressure, seed):
        self.commands = deque((key, iv) for key, iv, _ in packets)
        self.blocks = deque(
            (text[at : at + 16], at + 16 == len(text)) for _, _, text in packets for at in range(0, len(text), 16)
        )
        self.packets = len(packets)
        self.idle, self.back_pressure = bench.pauses(idle, seed), bench.pauses(back_pressure, seed + 100)
        self.command = self.block = None
        self.text, self.results, self.ends = b"", [], []

    def offer(self):
        if self.command is None and self.commands and not next(self.idle):
            self.command = self.commands.popleft()
        if self.block is None and self.blocks and not next(self.idle):
            self.block = self.blocks.popleft()
        self.ready = not next(self.back_pressure)

    def take(self, block, last, cycle):
        self.text += block.to_bytes(16, "big")
        if last:
            self.results.append(self.text)
            self.ends.append(cycle)
            self.text = b""


def together(lanes, value, width):
    return sum(value(lane) << width * place for place, lane in enumerate(lanes))


async def run(dut, packets_by_lane, idle=0, back_pressure=0, limit=None):
    lanes = [Lane(packets, idle, back_pressure, seed) for seed, packets in enumerate(packets_by_lane)]
    number = len(lanes)
    blocks = sum(len(lane.blocks) + 2 for lane in lanes)
    cycle = 0
    while any(len(lane.results) < lane.packets for lane in lanes) and cycle != limit:
        assert cycle < 300 + 120 * number * blocks, "stuck"
        for lane in lanes:
            lane.offer()
        dut.cmd_valid_i.value = together(lanes, lambda lane: lane.command is not None, 1)
        dut.key_i.value = together(
            lanes, lambda lane: int.from_bytes(lane.command[0].ljust(32, b"\xa5"), "big") if lane.command else 0, 256
        )
        dut.aes128_i.value = together(lanes, lambda lane: bool(lane.command) and len(lane.command[0]) == 16, 1)
        dut.iv_i.value = together(lanes, lambda lane: int.from_bytes(lane.command[1], "big") if lane.command else 0, 128)
        dut.valid_i.value = together(lanes, lambda lane: lane.block is not None, 1)
        dut.block_i.value = together(lanes, lambda lane: int.from_bytes(lane.block[0], "big") if lane.block else 0, 128)
        dut.last_i.value = together(lanes, lambda lane: bool(lane.block) and lane.block[1], 1)
        dut.ready_i.value = together(lanes, lambda lane: lane.ready, 1)
        await ReadOnly()
        taken, accepted, given = int(dut.cmd_ready_o.value), int(dut.ready_o.value), int(dut.valid_o.value)
        for place, lane in enumerate(lanes):
            if lane.command and taken >> place & 1:
                lane.command = None
            if lane.block and accepted >> place & 1:
                lane.block = None
            if lane.ready and given >> place & 1:
                block = int(dut.block_o.value) >> 128 * place & (1 << 128) - 1
                lane.take(block, int(dut.last_o.value) >> place & 1, cycle)
        await RisingEdge(dut.clk_i)
        cycle += 1
    dut.cmd_valid_i.value = 0
    dut.valid_i.value = 0
    return [lane.results for lane in lanes], [lane.ends for lane in lanes]


def random_packets(count, seed, blocks=(1, 1, 2, 3, 5, 9), keys=(16, 32)):
    source = random.Random(seed)
    return [
        (source.randbytes(source.choice(keys)), source.randbytes(16), source.randbytes(16 * source.choice(blocks)))
        for _ in range(count)
    ]


async def check(dut, by_lane, idle=0, back_pressure=0):
    texts = [[text for _, _, text in packets] for packets in by_lane]
    sealed = [[encrypted(*packet) for packet in packets] for packets in by_lane]
    if int(dut.Open.value):
        by_lane = [
            [(key, iv, cipher) for (key, iv, _), cipher in zip(packets, ciphers)] for packets, ciphers in zip(by_lane, sealed)
        ]
        texts, sealed = sealed, texts
    results, ends = await run(dut, by_lane, idle, back_pressure)
    assert results == sealed
    return ends


@cocotb.test()
async def random_traffic(dut):
    await bench.start(dut)
    lanes = int(dut.Lanes.value)
    for idle, back_pressure in ((0, 0), (0.7, 0), (0, 0.95), (0.5, 0.5)):
        await check(dut, [random_packets(8, 10 * idle + lane) for lane in range(lanes)], idle, back_pressure)


@cocotb.test()
async def vectors(dut):
    await bench.start(dut)
    cases = json.loads((bench.VECTORS / "primitives" / "rfc3602-aes-cbc.json").read_text())["cases"]
    assert cases
    packets = [[bytes.fromhex(case[name]) for name in ("key", "iv", "input", "output")] for case in cases]
    opens = int(dut.Open.value)
    offered = [(key, iv, cipher if opens else text) for key, iv, text, cipher in packets]
    results, _ = await run(dut, [offered] * int(dut.Lanes.value))
    assert all(lane == [text if opens else cipher for _, _, text, cipher in packets] for lane in results)


@cocotb.test()
async def rate(dut):
    """Rounds and one more for each block; a packet costs the wait for its round keys."""
    await bench.start(dut)
    lanes, opens = int(dut.Lanes.value), int(dut.Open.value)
    for key, rounds in ((16, 10), (32, 14)):
        one, other = [], []
        for blocks, ends in ((5, one), (25, other)):
            by_lane = [random_packets(4, lane, (blocks,), (key,)) for lane in range(lanes)]
            for lane in await check(dut, by_lane):
                ends.append((lane[-1] - lane[0]) / 3)
        for few, many in zip(one, other):
            assert many - few == 20 * (rounds + 1) * lanes
            start = few - 5 * (rounds + 1) * lanes
            dut._log.info("AES-%d: %d cycles a block in each lane, %.1f a packet", 8 * key, (rounds + 1) * lanes, start)
            assert start <= (17 if opens else 8) + 16 * (lanes - 1)


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    lanes = int(dut.Lanes.value)
    for cycles in (1, 3, 9, 17, 23, 24, 40, 61):
        by_lane = [random_packets(3, lane) for lane in range(lanes)]
        await run(dut, by_lane, limit=cycles)
        await bench.reset(dut)
        await check(dut, by_lane)


@bench.parameter_sets("opens", (0, 1))
@bench.parameter_sets("lanes", (1, 2))
def test_aes_cbc_unit(opens, lanes):
    bench.run("aes_cbc_unit", {"Open": opens, "Lanes": lanes})
