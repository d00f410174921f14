"""section_des: what follows the key, the states and the two beats of the lead is encrypted block by block, as cryptography does it."""

import random

import bench
import cocotb
import pytest
import section_unit
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from sections_model import key_front
from structs import CIPHER_HEAD, ENCAP_HEAD


def make(dut, source, blocks=None):
    port, auth, states = source.getrandbits(4), source.randrange(5), source.randbytes(48)
    key = source.randbytes(24 if int(dut.Triple.value) else 8)
    lead, body = source.randbytes(section_unit.LEAD), source.randbytes(8 * (blocks or source.randrange(1, 40)))
    user = ENCAP_HEAD.pack(port=port, cipher=2, auth=auth)
    sealed = Cipher(TripleDES(key * (24 // len(key))), modes.ECB()).encryptor().update(body)
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


@pytest.mark.parametrize("triple", (0, 1))
def test_section_des(triple):
    bench.run("section_des", {"Triple": triple}, big=True)
