"""section_aes: what follows the key, the states and the two beats of the lead is AES-CBC of cryptography's, its first block the IV."""

import random

import bench
import cocotb
import section_unit
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sections_model import key_front
from structs import CIPHER_HEAD, ENCAP_HEAD


def make(source, blocks=None):
    port, auth, states, wide = source.getrandbits(4), source.randrange(5), source.randbytes(48), source.getrandbits(1)
    key = source.randbytes(32 if wide else 16)
    lead, body = source.randbytes(section_unit.LEAD), source.randbytes(16 * (blocks or source.randrange(2, 12)))
    user = ENCAP_HEAD.pack(port=port, cipher=1, auth=auth, wide=wide)
    sealed = Cipher(algorithms.AES(key), modes.CBC(bytes(16))).encryptor().update(body)
    return key_front(key) + states + lead + body, user, (states + lead + sealed, CIPHER_HEAD.pack(port=port, auth=auth))


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, blocks) for blocks in (1, 2, 3, 94)])
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(source, 8) for _ in range(count)])


def test_section_aes():
    bench.run("section_aes")
