#!/usr/bin/env python3
"""Writes vectors/ah-mutable.json: IP headers before an AH, as sent and as the ICV sees them (RFC 4302 §3.3.3.1).

The oracle is scapy's zero_mutable_fields(), with one exception: scapy does not predict IPv4 source routes, so
those cases have arrived at their last hop.

Needs: pip install scapy
"""

import json
import pathlib
import random
import warnings

import scapy
from scapy.layers.inet import IP, UDP, IPOption, IPOption_LSRR, IPOption_NOP, IPOption_RR
from scapy.layers.inet import IPOption_Router_Alert, IPOption_Security, IPOption_SSRR, IPOption_Timestamp
from scapy.layers.inet6 import (
    HBHOptUnknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    RouterAlert,
)
from scapy.layers.ipsec import AH, zero_mutable_fields
from scapy.packet import Raw

rng = random.Random(4302)


def v4(text="198.51.100."):
    return text + str(rng.randrange(1, 255))


def v6():
    return f"2001:db8::{rng.randrange(1, 65536):x}"


def unknown_option():
    # Numbers that scapy has no layout for.
    number = rng.choice([10, 13, 14, 15, 16, 17, 22, 29, 30, 31])
    return IPOption(copy_flag=rng.randrange(2), optclass=rng.randrange(4), option=number, value=rng.randbytes(rng.randrange(0, 7)))


def v4_option():
    routers = [v4() for _ in range(rng.randrange(1, 3))]
    return rng.choice(
        [
            lambda: IPOption_NOP(),
            lambda: IPOption_RR(routers=routers),
            lambda: IPOption_LSRR(routers=routers, pointer=4 + 4 * len(routers)),
            lambda: IPOption_SSRR(routers=routers, pointer=4 + 4 * len(routers)),
            lambda: IPOption_Router_Alert(),
            lambda: IPOption_Security(security=rng.randrange(65536)),
            lambda: IPOption_Timestamp(timestamp=rng.randrange(1 << 32)),
            lambda: IPOption(copy_flag=1, optclass=0, option=rng.choice([5, 6]), value=rng.randbytes(4)),
            unknown_option,
        ]
    )()


def v6_options():
    return [
        rng.choice(
            [
                lambda: RouterAlert(),
                lambda: HBHOptUnknown(otype=rng.choice([0x1E, 0x3E, 0x5E, 0x7E, 0x9E, 0xBE, 0xDE, 0xFE]), optdata=rng.randbytes(rng.randrange(0, 12))),
            ]
        )()
        for _ in range(rng.randrange(1, 4))
    ]


def case(name, packet):
    packet = packet.__class__(bytes(packet / AH(spi=0x1234, seq=7, icv=bytes(12), nh=17, payloadlen=4) / UDP() / Raw(b"payload")))
    sent = bytes(packet)
    seen = bytes(zero_mutable_fields(packet.__class__(sent), sending=True))
    return {"name": name, "key": "", "input": sent.hex(), "output": seen.hex()}


def cases():
    yield case("v4 plain", IP(src=v4(), dst=v4(), ttl=33, tos=0xB9, id=77, flags="DF"))
    for n in range(60):
        options = []
        for _ in range(rng.randrange(1, 6)):
            option = v4_option()
            if sum(len(o) for o in [*options, option]) <= 40:
                options.append(option)
        while sum(len(o) for o in options) % 4:
            options.append(IPOption_NOP())
        yield case(f"v4 options {n}", IP(src=v4(), dst=v4(), tos=rng.randrange(256), ttl=rng.randrange(256), options=options))
    yield case("v6 plain", IPv6(src=v6(), dst=v6(), tc=0xB9, fl=0xABCDE, hlim=3))
    for n in range(60):
        packet = IPv6(src=v6(), dst=v6(), tc=rng.randrange(256), fl=rng.randrange(1 << 20), hlim=rng.randrange(256))
        if rng.random() < 0.5:
            packet /= IPv6ExtHdrHopByHop(options=v6_options())
        if rng.random() < 0.3:
            packet /= IPv6ExtHdrDestOpt(options=v6_options())
        if rng.random() < 0.5:
            addresses = [v6() for _ in range(rng.randrange(1, 5))]
            packet /= IPv6ExtHdrRouting(type=0, addresses=addresses, segleft=len(addresses))
        if rng.random() < 0.5:
            packet /= IPv6ExtHdrDestOpt(options=v6_options())
        yield case(f"v6 extension headers {n}", packet)


def main():
    warnings.simplefilter("ignore")
    document = {"source": f"vectors/generate_ah.py (scapy {scapy.__version__})", "cases": list(cases())}
    path = pathlib.Path(__file__).with_name("ah-mutable.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
