"""section_auth: the first 12 bytes of an HMAC-SHA1 over ESP header and body, hmac's or a vector's, stand behind the packet (RFC 2404)."""

import hmac
import random

import bench
import cocotb
import section_unit
import section_vectors
from hmac_states import hmac_states
from sections_model import states_front
from structs import AUTH_HEAD, CIPHER_HEAD


def make(source, words=None):
    key, covered = source.randbytes(20), source.randbytes(8 + 4 * (words or source.randrange(1, 80)))
    return around(source, key, covered, hmac.digest(key, covered, "sha1")[:12])


def around(source, key, covered, icv):
    """`covered` begins with SPI and sequence number."""
    port, frame = source.getrandbits(4), source.randbytes(section_unit.ESP_AT) + covered
    states = states_front(*hmac_states(key, sha1=True), rest=(source.getrandbits(32), source.getrandbits(32)))
    user = CIPHER_HEAD.pack(port=port, auth=source.randrange(5))
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


@cocotb.test()
async def vectors(dut):
    """ESP packets of every cipher, and of RFC 2202 and Wycheproof what could be one: whole words, three at least."""
    await bench.start(dut)
    source, exchanged = random.Random(3), []
    for name, count in (("rfc2202-hmac-sha1", 2), ("wycheproof-hmac-sha1", 9)):
        cases = [case for case in section_vectors.known_answers(name) if len(case["input"]) >= 12 and len(case["input"]) % 4 == 0]
        cases = [case for case in cases if len(case["icv"]) >= 12]
        assert len(cases) == count
        exchanged += [around(source, case["key"], case["input"], case["icv"][:12]) for case in cases]
    ciphers = [f"AES_{mode}_{bits}" for mode in ("CBC", "CTR") for bits in (128, 192, 256)]
    packets = section_vectors.packets([*ciphers, "DES", "3DES", "NULL"], ["HMAC_SHA1_96"])
    assert len(packets) >= 250
    # What is extended in the sequence number comes last in what is hashed, as if it were part of the packet.
    exchanged += [around(source, packet.key[-20:], packet.head + packet.body + packet.extended, packet.icv) for packet in packets]
    dut._log.info(f"{len(exchanged)} vectors")
    await section_unit.exchange(dut, exchanged, cycles=200000)


def test_section_auth():
    bench.run("section_auth")
