"""section_des: what follows key, states and the two beats of the lead is encrypted block by block, as cryptography and NIST do it."""

import random

import bench
import cocotb
import section_unit
import section_vectors
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from sections_model import key_front
from structs import CIPHER_HEAD, ENCAP_HEAD


def key_bytes(dut):
    return 24 if int(dut.Triple.value) else 8


def make(dut, source, blocks=None):
    key, body = source.randbytes(key_bytes(dut)), source.randbytes(8 * (blocks or source.randrange(1, 40)))
    return around(source, key, body, Cipher(TripleDES(key * (24 // len(key))), modes.ECB()).encryptor().update(body))


def around(source, key, body, sealed):
    port, auth, states, lead = source.getrandbits(4), source.randrange(5), source.randbytes(48), source.randbytes(section_unit.LEAD)
    user = ENCAP_HEAD.pack(port=port, cipher=2, auth=auth)
    return key_front(key) + states + lead + body, user, (states + lead + sealed, CIPHER_HEAD.pack(port=port, auth=auth))


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(dut, source, blocks) for blocks in (1, 2, 3, 4, 188)])
    await section_unit.paused(dut, lambda count: [make(dut, source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(dut, source, 17) for _ in range(count)])


@cocotb.test()
async def a_beat_a_cycle(dut):
    await bench.start(dut)
    source = random.Random(2)
    ends = await section_unit.exchange(dut, [make(dut, source, 16) for _ in range(20)])
    assert ends[-1] - ends[0] == 19 * (2 + 3 + 2 + 8)  # key, states, lead, body


@cocotb.test()
async def vectors(dut):
    """NIST's, and whole ESP packets. They are CBC (RFC 2405): each block is XORed with what CBC chains before it comes."""
    await bench.start(dut)
    source, exchanged = random.Random(3), []
    name = "3des" if int(dut.Triple.value) else "des"
    texts = [(case["key"], case["iv"], case["input"], case["output"]) for case in section_vectors.known_answers(f"nist-{name}-cbc")]
    assert len(texts) == 20
    packets = section_vectors.packets([name.upper()])
    assert len(packets) >= 100
    for packet in packets:
        key, iv, sealed = packet.key[: key_bytes(dut)], packet.body[:8], packet.body[8:]
        plain = Cipher(TripleDES(key * (24 // len(key))), modes.CBC(iv)).decryptor().update(sealed)
        assert packet.clear in plain, packet.name
        texts.append((key, iv, plain, sealed))
    for key, iv, plain, sealed in texts:
        chained = bytes(a ^ b for a, b in zip(plain, iv + sealed))
        exchanged.append(around(source, key, chained, sealed))
    dut._log.info(f"{len(exchanged)} vectors")
    await section_unit.exchange(dut, exchanged)


@bench.parameter_sets("triple", (0, 1))
def test_section_des(triple):
    bench.run("section_des", {"Triple": triple})
