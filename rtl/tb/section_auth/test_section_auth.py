"""section_auth: the first 12 bytes of hmac's HMAC-SHA1 over ESP header and body stand behind the packet (RFC 2404)."""

import hmac
import random

import bench
import cocotb
import section_unit
from hmac_states import hmac_states
from sections_model import states_front
from structs import AUTH_HEAD, CIPHER_HEAD


def make(source, words=None):
    port, key = source.getrandbits(4), source.randbytes(20)
    frame = source.randbytes(section_unit.LEAD + 4 * (words or source.randrange(1, 80)))
    states = states_front(*hmac_states(key, sha1=True), rest=(source.getrandbits(32), source.getrandbits(32)))
    user = CIPHER_HEAD.pack(port=port, auth=source.randrange(5))
    icv = hmac.digest(key, frame[section_unit.ESP_AT :], "sha1")[:12]
    return states + frame, user, (frame + icv, AUTH_HEAD.pack(port=port, lead=1))


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, words) for words in (*range(1, 36), 370)])


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(2)
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(source, 70) for _ in range(count)])


def test_section_auth():
    bench.run("section_auth")
