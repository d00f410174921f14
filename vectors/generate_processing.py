#!/usr/bin/env python3
"""Writes vectors/fragments.json, icmp-errors.json and mss.json with scapy as the oracle.

fragments: `input` is a whole packet, `output` its fragments one behind the other.
icmp-errors: `input` is a packet, `output` the error message about it.
mss: `input` is a SYN, `output` the same with an MSS of at most 1200.

Needs: pip install scapy
"""

import json
import pathlib
import random

import scapy
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    PadN,
    RouterAlert,
    fragment6,
)
from scapy.packet import Raw

rng = random.Random(791)
HERE = pathlib.Path(__file__).parent
A4, B4, A6, B6 = "10.1.0.9", "10.2.0.7", "2001:db8:1::9", "2001:db8:2::7"


def case(name, source, result):
    return {"name": name, "key": "", "input": source.hex(), "output": result.hex()}


def fragments():
    for mtu, length in [(576, 1400), (68, 300), (1280, 5000), (1500, 1480), (1500, 1481), (577, 556), (577, 557)]:
        packet = IP(src=A4, dst=B4, id=rng.randrange(65536), tos=0x28, ttl=9) / UDP(sport=5, dport=6) / Raw(rng.randbytes(length))
        packet = IP(bytes(packet))
        pieces = fragment(packet, fragsize=(mtu - 20) & ~7)
        yield case(f"v4 mtu {mtu} payload {length}", bytes(packet), b"".join(bytes(piece) for piece in pieces))
    for mtu, length in [(1280, 1400), (1280, 1232), (1400, 6000)]:
        for extensions in [None, IPv6ExtHdrHopByHop(options=[RouterAlert(), PadN(optdata=b"")])]:
            whole = IPv6(src=A6, dst=B6, tc=0x28, fl=0x12345, hlim=9)
            whole = whole / extensions if extensions else whole
            payload = UDP(sport=5, dport=6) / Raw(rng.randbytes(length))
            # The checksum is made in the whole packet, so that fragments and packet agree.
            payload = UDP(bytes(IPv6(bytes(whole / payload))[UDP]))
            pieces = fragment6(whole / IPv6ExtHdrFragment(id=rng.randrange(1 << 32)) / payload, mtu)
            name = f"v6 mtu {mtu} payload {length}{' hop-by-hop' if extensions else ''}"
            yield case(name, bytes(whole / payload), b"".join(bytes(piece) for piece in pieces))


def icmp_errors():
    problems = {
        "too big 1372": (ICMP(type=3, code=4, nexthopmtu=1372), ICMPv6PacketTooBig(mtu=1372)),
        "prohibited": (ICMP(type=3, code=13), ICMPv6DestUnreach(code=1)),
    }
    for name, (v4, v6) in problems.items():
        for length in [0, 1, 507, 520, 521, 1183, 1184, 1185, 1401]:
            about = bytes(IP(src=A4, dst=B4, flags="DF", id=1) / UDP(sport=5, dport=6) / Raw(rng.randbytes(length)))
            error = IP(src=B4, dst=A4, flags="DF", id=0, tos=0xC0, ttl=64) / v4 / Raw(about[:548])
            yield case(f"v4 {name} payload {length}", about, bytes(error))
            about = bytes(IPv6(src=A6, dst=B6) / UDP(sport=5, dport=6) / Raw(rng.randbytes(length)))
            error = IPv6(src=B6, dst=A6, hlim=64) / v6 / Raw(about[:1232])
            yield case(f"v6 {name} payload {length}", about, bytes(error))


def mss():
    layouts = [
        [("MSS", None)],
        [("MSS", None), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)],
        [("NOP", None), ("MSS", None), ("NOP", None), ("NOP", None), ("NOP", None)],
        [("WScale", 7), ("MSS", None), ("EOL", None)],
        [("SAckOK", b""), ("WScale", 7), ("MSS", None)],
        [("SAckOK", b"")],
        [],
    ]
    for index, layout in enumerate(layouts):
        for value in [536, 1200, 1201, 1460, 8960, 65535]:
            for flags in ["S", "SA", "A"]:
                for ip in [IP(src=A4, dst=B4), IPv6(src=A6, dst=B6), IPv6(src=A6, dst=B6) / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0\0")])]:
                    seq, data = rng.randrange(1 << 32), rng.randbytes(rng.randrange(2))

                    def syn(mss_value):
                        options = [(kind, mss_value if kind == "MSS" else v) for kind, v in layout]
                        return bytes(ip / TCP(sport=80, dport=1234, seq=seq, flags=flags, options=options) / Raw(data))

                    lower = min(value, 1200) if "S" in flags else value
                    yield case(f"layout {index} mss {value} {flags}", syn(value), syn(lower))


def main():
    source = f"vectors/generate_processing.py (scapy {scapy.__version__})"
    for name, cases in [("fragments", fragments()), ("icmp-errors", icmp_errors()), ("mss", mss())]:
        document = {"source": source, "cases": list(cases)}
        (HERE / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
