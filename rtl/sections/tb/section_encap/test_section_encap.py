"""section_encap: outer header and inner packet as scapy builds them, padding for each cipher (RFC 4303, 2.4)."""

import random
import struct

import bench
import cocotb
import section_unit
from scapy.layers.inet import IP
from scapy.packet import Raw
from sections_model import DES, MAIN, PASS, PRIORITY, front, packet
from structs import ENCAP_HEAD, SA, SAD_HEAD

ICV = 12


def make(source, length=None):
    length = length or source.choice((20, 24, source.randrange(20, 90), source.randrange(20, 400)))
    tos, df, ttl = source.randrange(256), source.choice((0, 0x4000)), source.randrange(2, 256)
    inner = packet(length, ttl=ttl, tos=tos, flags=df, body=source.randbytes(length))
    cipher, port = source.choice((PASS, MAIN, DES, PRIORITY)), source.getrandbits(4)
    fields = {
        "spi": source.getrandbits(32), "sequence_number": source.getrandbits(32), "source": source.getrandbits(32),
        "destination": source.getrandbits(32),
    }  # fmt: skip
    key, states = source.randbytes(32), source.randbytes(48)
    flags = {"cipher": cipher, "auth": MAIN, "wide": source.getrandbits(1)}
    user = SAD_HEAD.pack(port=port, bytes=length, sa=SA.pack(encap=MAIN, **flags))
    header = struct.pack(">II", fields["spi"], fields["sequence_number"])
    # The cipher makes the IV of this block: SPI and number, which never come twice.
    nonce = struct.pack(">IQI", fields["spi"], 0, fields["sequence_number"]) if cipher in (MAIN, PRIORITY) else b""
    forwarded = IP(inner)
    forwarded.ttl -= 1
    del forwarded.chksum
    block = {MAIN: 16, PRIORITY: 16, DES: 8}.get(cipher, 4)
    padding = -(length + 2) % block
    body = nonce + bytes(forwarded)[:length] + bytes(range(1, padding + 1)) + bytes([padding, 4])
    addresses = {name: ".".join(map(str, fields[key].to_bytes(4))) for name, key in (("src", "source"), ("dst", "destination"))}
    outer = IP(tos=tos, ttl=64, proto=50, id=fields["sequence_number"] & 0xFFFF, flags="DF" if df else 0, **addresses)
    whole = bytes(outer / Raw(header + body + bytes(ICV)))
    # Without a cipher nobody wants a key.
    left = states if cipher == PASS else key + states
    return front(fields.values()) + key + states + inner, user, (left + bytes(4) + whole[:-ICV], ENCAP_HEAD.pack(port=port, **flags))


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, length) for length in (*range(20, 60), 1500) for _ in range(3)])


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    await bench.start(dut)
    source = random.Random(2)
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])
    await section_unit.cut_off(dut, lambda count: [make(source, source.randrange(90, 140)) for _ in range(count)])


def test_section_encap():
    bench.run("section_encap")
