"""section_aes: what follows key, states and the two beats of the lead is cryptography's AES-CBC or a vector's, its first block the IV."""

import random

import bench
import cocotb
import section_unit
import section_vectors
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sections_model import key_front
from structs import CIPHER_HEAD, ENCAP_HEAD


def make(source, blocks=None):
    key, body = source.randbytes(source.choice((16, 32))), source.randbytes(16 * (blocks or source.randrange(2, 12)))
    return around(source, key, body, Cipher(algorithms.AES(key), modes.CBC(bytes(16))).encryptor().update(body))


def around(source, key, body, sealed):
    port, auth, states, lead = source.getrandbits(4), source.randrange(5), source.randbytes(48), source.randbytes(section_unit.LEAD)
    user = ENCAP_HEAD.pack(port=port, cipher=1, auth=auth, wide=len(key) == 32)
    return key_front(key) + states + lead + body, user, (states + lead + sealed, CIPHER_HEAD.pack(port=port, auth=auth))


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, blocks) for blocks in (1, 2, 3, 94)])
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(source, 8) for _ in range(count)])


@cocotb.test()
async def vectors(dut):
    """A first block that is the decrypted IV becomes the IV: of RFC 3602, section 4, and of whole ESP packets."""
    await bench.start(dut)
    source, exchanged = random.Random(3), []
    for case in section_vectors.known_answers("rfc3602-aes-cbc"):
        first = Cipher(algorithms.AES(case["key"]), modes.ECB()).decryptor().update(case["iv"])
        exchanged.append(around(source, case["key"], first + case["input"], case["iv"] + case["output"]))
    assert len(exchanged) == 8
    for bits, least in ((128, 100), (256, 150)):
        packets = section_vectors.packets([f"AES_CBC_{bits}"])
        assert len(packets) >= least
        for packet in packets:
            key, iv, sealed = packet.key[: bits // 8], packet.body[:16], packet.body[16:]
            first = Cipher(algorithms.AES(key), modes.ECB()).decryptor().update(iv)
            plain = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor().update(sealed)
            assert packet.clear in plain, packet.name
            exchanged.append(around(source, key, first + plain, packet.body))
    dut._log.info(f"{len(exchanged)} vectors")
    await section_unit.exchange(dut, exchanged, cycles=100000)


def test_section_aes():
    bench.run("section_aes")
