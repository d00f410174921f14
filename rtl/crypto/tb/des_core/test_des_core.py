"""des_core against pyca/cryptography and the vectors."""

import json
import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes


def transformed(key, block, opens):
    """ECB; one key three times is DES."""
    cipher = Cipher(TripleDES(key * (24 // len(key))), modes.ECB())
    context = cipher.decryptor() if opens else cipher.encryptor()
    return context.update(block) + context.finalize()


async def run(dut, blocks, idle=0, limit=None):
    """The results of (key, block), each as long after its block as the pipeline has stages."""
    stages = 48 if int(dut.Triple.value) else 16
    idle = bench.pauses(idle)
    waiting, due, results, cycle = deque(blocks), deque(), [], 0
    while (waiting or due) and cycle != limit:
        assert cycle < 100 + 20 * len(blocks), "stuck"
        offered = bool(waiting) and not next(idle)
        dut.valid_i.value = offered
        if offered:
            key, block = waiting.popleft()
            dut.key_i.value, dut.data_i.value = int.from_bytes(key, "big"), int.from_bytes(block, "big")
            due.append(cycle + stages)
        await ReadOnly()
        assert dut.valid_o.value == (bool(due) and due[0] == cycle)
        if dut.valid_o.value == 1:
            due.popleft()
            results.append(int(dut.data_o.value).to_bytes(8, "big"))
        await RisingEdge(dut.clk_i)
        cycle += 1
    dut.valid_i.value = 0
    return results


def random_blocks(dut, count):
    source = random.Random(count)
    length = len(dut.key_i) // 8
    keys = [source.randbytes(length) for _ in range(4)]
    return [(source.choice(keys), source.randbytes(8)) for _ in range(count)]


@cocotb.test()
async def random_traffic(dut):
    await bench.start(dut)
    opens = int(dut.Open.value)
    for count, idle in ((300, 0), (200, 0.5)):
        blocks = random_blocks(dut, count)
        assert await run(dut, blocks, idle) == [transformed(*block, opens) for block in blocks]


@cocotb.test()
async def vectors(dut):
    """The vectors are CBC: each block is XORed with what CBC chains."""
    await bench.start(dut)
    opens = int(dut.Open.value)
    name = "nist-3des-cbc" if int(dut.Triple.value) else "nist-des-cbc"
    cases = json.loads((bench.VECTORS / "primitives" / f"{name}.json").read_text())["cases"]
    offered, expected = [], []
    for case in cases:
        key, iv, text, cipher = (bytes.fromhex(case[part]) for part in ("key", "iv", "input", "output"))
        for at in range(0, len(text), 8):
            chained = (iv + cipher)[at : at + 8]
            plain = bytes(a ^ b for a, b in zip(text[at : at + 8], chained))
            offered.append((key, cipher[at : at + 8] if opens else plain))
            expected.append(plain if opens else cipher[at : at + 8])
    assert len(expected) > 20
    assert await run(dut, offered) == expected


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    opens = int(dut.Open.value)
    for cycles in (1, 10, 30, 70):
        await run(dut, random_blocks(dut, 80), limit=cycles)
        await bench.reset(dut)
        blocks = random_blocks(dut, 20)
        assert await run(dut, blocks) == [transformed(*block, opens) for block in blocks]


@bench.parameter_sets(("opens", "triple"), ((0, 0), (0, 1), (1, 1)))
def test_des_core(opens, triple):
    bench.run("des_core", {"Open": opens, "Triple": triple})
