"""aes_pipe: every block under its packet's key, whatever sizes of key follow each other and however close."""

import random

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

GAP = 15  # cycles between two starts


def schedule(source, packets, idle):
    """One entry a cycle: (key or None where no packet starts, block or None)."""
    cycles = []
    pause = bench.pauses(idle, source.random())
    for _ in range(packets):
        key = source.randbytes(source.choice((16, 32)))
        blocks = source.choice((1, 3, GAP, GAP, 16, 17, 40))
        start = len(cycles)
        cycles.append((key, source.randbytes(16)))
        while blocks > 1 or len(cycles) < start + GAP:
            block = None if blocks <= 1 or next(pause) else source.randbytes(16)
            blocks -= block is not None
            cycles.append((None, block))
        cycles += [(None, None)] * source.choice((0, 0, 0, 1, 2, 30))
    return cycles


async def encrypt(dut, cycles):
    latency = int(dut.Latency.value)
    key, encryptor, second, expected = None, None, None, []
    for new, block in cycles:
        dut.start_i.value = new is not None
        if new is not None:
            key = new
            encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
            dut.aes128_i.value = len(key) == 16
            dut.raw_i.value = int.from_bytes(key[:16])
            second = key[16:] or bytes(16)
        else:
            # What stands there in any other cycle must not matter.
            dut.raw_i.value = int.from_bytes(second or random.randbytes(16))
            second = None
        dut.block_i.value = int.from_bytes(block or bytes(16))
        expected.append(encryptor.update(block) if block else None)
        await ReadOnly()
        if len(expected) > latency and expected[-1 - latency] is not None:
            assert int(dut.block_o.value).to_bytes(16) == expected[-1 - latency], f"block of cycle {len(expected) - 1 - latency}"
        await RisingEdge(dut.clk_i)


@cocotb.test()
async def keys_follow_each_other(dut):
    source = random.Random(1)
    await bench.start(dut)
    await encrypt(dut, schedule(source, 60, 0) + [(None, None)] * 60)


@cocotb.test()
async def idle_cycles(dut):
    source = random.Random(2)
    await bench.start(dut)
    await encrypt(dut, schedule(source, 30, 0.4) + [(None, None)] * 60)


@cocotb.test()
async def reset_in_mid_frame(dut):
    source = random.Random(3)
    await bench.start(dut)
    for cycles in (1, 7, 14, 33):
        await encrypt(dut, schedule(source, 5, 0)[:cycles])
        await bench.reset(dut)
        await encrypt(dut, schedule(source, 5, 0) + [(None, None)] * 60)


@bench.parameter_sets("latency,kind", ((2, 0), (3, 1), (3, 2)))
def test_aes_pipe(latency, kind):
    bench.run("aes_pipe", {"RoundLatency": latency, "SboxKind": kind})
