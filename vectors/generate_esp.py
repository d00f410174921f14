#!/usr/bin/env python3
"""Writes vectors/esp/*.json: whole ESP packets in tunnel mode, one file per transform.

Two independent oracles seal: scapy, and the functions below over pyca/cryptography. Valid packets are
sealed by both and must agree; invalid ones need trailers that scapy does not write.

Needs: pip install scapy cryptography
"""

import hashlib
import hmac
import json
import pathlib
import struct

import scapy
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Raw

SPI = 0x5E100001
TOP = 1000  # highest sequence number received before each packet
WINDOW = 64
SELECTORS = [["10.1.0.0/16", "10.2.0.0/16"], ["2001:db8:1::/48", "2001:db8:2::/48"]]
OUTER = {4: ("198.51.100.2", "192.0.2.1"), 6: ("2001:db8:ffff::2", "2001:db8:ffff::1")}
TRANSFORMS = {
    "AES_GCM_16_128": ("aes-gcm-16-128", 16, 0),
    "AES_GCM_16_192": ("aes-gcm-16-192", 24, 0),
    "AES_GCM_16_256": ("aes-gcm-16-256", 32, 0),
    "AES_CBC_128/HMAC_SHA2_256_128": ("aes-cbc-128-hmac-sha2-256-128", 16, 32),
    "AES_CBC_256/HMAC_SHA2_256_128": ("aes-cbc-256-hmac-sha2-256-128", 32, 32),
}


def stream(label, length):
    """Fixed bytes that look random."""
    return hashlib.shake_128(label.encode()).digest(length)


class Sa:
    def __init__(self, transform, esn):
        self.transform, self.esn = transform, esn
        _, self.cipher_len, self.auth_len = TRANSFORMS[transform]
        self.gcm = self.auth_len == 0
        self.key = stream(f"{transform} {esn}", self.cipher_len + (4 if self.gcm else self.auth_len))
        self.align = 4 if self.gcm else 16

    def iv(self, sequence):
        return struct.pack(">Q", sequence) if self.gcm else stream(f"iv {sequence}", 16)

    def pad(self, payload, next_header):
        length = -(len(payload) + 2) % self.align
        return payload + bytes(range(1, length + 1)) + bytes([length, next_header])

    def seal(self, sequence, body):
        """RFC 4303 over pyca/cryptography; `body` is payload, padding and trailer."""
        header = struct.pack(">II", SPI, sequence & 0xFFFFFFFF)
        iv = self.iv(sequence)
        if self.gcm:
            aad = struct.pack(">IQ", SPI, sequence) if self.esn else header
            return header + iv + AESGCM(self.key[:-4]).encrypt(self.key[-4:] + iv, body, aad)
        cipher = Cipher(algorithms.AES(self.key[: self.cipher_len]), modes.CBC(iv)).encryptor()
        packet = header + iv + cipher.update(body) + cipher.finalize()
        high = struct.pack(">I", sequence >> 32) if self.esn else b""
        return packet + hmac.new(self.key[self.cipher_len :], packet + high, hashlib.sha256).digest()[:16]

    def seal_scapy(self, sequence, inner):
        names = ("AES-GCM", None) if self.gcm else ("AES-CBC", "SHA2-256-128")
        crypt_key = self.key if self.gcm else self.key[: self.cipher_len]
        sa = SecurityAssociation(
            ESP, spi=SPI, seq_num=sequence & 0xFFFFFFFF, crypt_algo=names[0], crypt_key=crypt_key, auth_algo=names[1],
            auth_key=None if self.gcm else self.key[self.cipher_len :],
            tunnel_header=IP(src="192.0.2.9", dst="192.0.2.8"))
        packet = sa.encrypt(inner, seq_num=sequence & 0xFFFFFFFF, iv=self.iv(sequence),
                            esn_en=self.esn, esn=sequence >> 32)
        return bytes(packet[ESP])


def inner_packet(version, length, upper="udp", dst=None, tos=0):
    payload = Raw(stream(f"payload {length}", length))
    if version == 4:
        ip = IP(src="10.2.0.7", dst=dst or "10.1.0.9", tos=tos, ttl=63, id=77)
        layers = {"udp": UDP(sport=5000, dport=40001), "tcp": TCP(sport=40002, dport=40000), "icmp": ICMP(id=3, seq=4)}
    else:
        ip = IPv6(src="2001:db8:2::7", dst=dst or "2001:db8:1::9", tc=tos, hlim=63)
        layers = {"udp": IPv6ExtHdrHopByHop() / UDP(sport=5000, dport=40001), "tcp": TCP(sport=40002, dport=40000),
                  "icmp": ICMPv6EchoRequest(id=3, seq=4)}
    packet = ip / layers[upper] / payload
    return type(packet)(bytes(packet))


def frame(version, udp, esp, tos=0):
    src, dst = OUTER[version]
    if version == 4:
        ip = IP(src=src, dst=dst, tos=tos, ttl=64, flags="DF", id=1, proto=17 if udp else 50)
    else:
        ip = IPv6(src=src, dst=dst, tc=tos, hlim=64, nh=17 if udp else 50)
    if not udp:
        return bytes(ip / Raw(esp))
    datagram = UDP(sport=4500, dport=4500) if version == 6 else UDP(sport=4500, dport=4500, chksum=0)
    return bytes(ip / datagram / Raw(esp))


def case(sa, name, sequence, esp, outer=4, udp=False, inner=None, drop=None, top=TOP, tos=0):
    return {"name": name, "esn": sa.esn, "key": sa.key.hex(), "sequence": f"{sequence:x}", "replay_top": f"{top:x}",
            "outer_version": outer, "udp": udp, "outer_tos": tos, "frame": frame(outer, udp, esp, tos).hex(),
            "inner": inner.hex() if inner is not None else None, "drop": drop}


def valid_cases(sa, base):
    uppers = ("udp", "tcp", "icmp")
    count = 0
    for inner_version in (4, 6):
        for outer in (4, 6):
            for udp in (False, True):
                for length in (0, 1, 33, 1200):
                    sequence = base + 1 + count
                    inner = inner_packet(inner_version, length, uppers[count % 3])
                    body = sa.pad(bytes(inner), 4 if inner_version == 4 else 41)
                    esp = sa.seal(sequence, body)
                    assert esp == sa.seal_scapy(sequence, inner), "the two oracles disagree"
                    wrap = "udp" if udp else "raw"
                    esn = "esn" if sa.esn else "noesn"
                    yield case(sa, f"v{inner_version} in v{outer} {wrap} {esn} {length}", sequence, esp, outer, udp,
                               bytes(inner), top=base)
                    count += 1


def flip(data, at):
    changed = bytearray(data)
    changed[at] ^= 0x40
    return bytes(changed)


def invalid_cases(sa, base):
    next_one = base + 1
    inner = bytes(inner_packet(4, 100))
    good = sa.seal(next_one, sa.pad(inner, 4))

    def add(name, drop, esp, sequence=next_one, tos=0):
        return case(sa, name, sequence, esp, drop=drop, top=base, tos=tos)

    yield add("ICV changed", "authentication-failed", flip(good, -1))
    yield add("payload changed", "authentication-failed", flip(good, 40))
    yield add("IV changed", "authentication-failed", flip(good, 9))
    yield add("sequence number changed", "authentication-failed", flip(good, 7))
    yield add("SPI changed", "unknown-spi", flip(good, 0))
    yield add("last block cut off", "authentication-failed", good[: -sa.align])
    yield add("not whole blocks", "malformed-esp", good[:-1])
    yield add("header only", "malformed-esp", good[:8])
    yield add("shorter than a header", "malformed-esp", good[:7])
    yield add("the newest again", "replayed", sa.seal(base, sa.pad(inner, 4)), base)
    old = base - WINDOW
    if not sa.esn:
        yield add("left of the window", "before-window", sa.seal(old, sa.pad(inner, 4)), old)
    else:
        # The receiver takes it for a number of the next subspace (RFC 4303 appendix A2).
        yield add("left of the window", "authentication-failed", sa.seal(old, sa.pad(inner, 4)), old)
    bad = bytearray(sa.pad(inner[:-1], 4))
    bad[-3] ^= 1
    yield add("wrong padding", "bad-padding", sa.seal(next_one, bytes(bad)))
    long = bytearray(sa.pad(inner, 4))
    long[-2] = 255
    yield add("padding longer than the body", "bad-padding", sa.seal(next_one, bytes(long)))
    yield add("next header UDP", "bad-next-header", sa.seal(next_one, sa.pad(inner, 17)))
    yield add("dummy packet", "dummy", sa.seal(next_one, sa.pad(stream("dummy", 50), 59)))
    yield add("IPv4 inside, next header IPv6", "malformed-inner", sa.seal(next_one, sa.pad(inner, 41)))
    yield add("inner packet cut short", "malformed-inner", sa.seal(next_one, sa.pad(inner[:-5], 4)))
    yield add("no inner packet", "malformed-inner", sa.seal(next_one, sa.pad(b"", 4)))
    other = bytes(inner_packet(4, 10, dst="10.9.0.1"))
    yield add("destination outside the selectors", "selector-mismatch", sa.seal(next_one, sa.pad(other, 4)))
    other = bytes(inner_packet(6, 10, dst="2001:db8:9::1"))
    yield add("IPv6 outside the selectors", "selector-mismatch", sa.seal(next_one, sa.pad(other, 41)))
    yield add("congestion on a path that cannot say so", "ecn-not-capable", good, tos=3)
    padded = inner + bytes(20)
    yield case(sa, "traffic flow confidentiality padding", next_one, sa.seal(next_one, sa.pad(padded, 4)), inner=inner,
               top=base)
    marked = bytes(inner_packet(4, 64, tos=0xB9))
    ce = bytes(inner_packet(4, 64, tos=0xBB))
    yield case(sa, "ECN carried into the inner header", next_one, sa.seal(next_one, sa.pad(marked, 4)), inner=ce,
               top=base, tos=3)


def main():
    directory = pathlib.Path(__file__).parent / "esp"
    for transform, (name, _, _) in TRANSFORMS.items():
        cases = []
        for esn, base in ((False, TOP), (True, TOP), (True, 0x1_FFFF_FFF0)):
            sa = Sa(transform, esn)
            cases += valid_cases(sa, base)
            cases += invalid_cases(sa, base)
        document = {
            "source": f"vectors/generate_esp.py (scapy {scapy.__version__} and pyca/cryptography)",
            "transform": transform, "spi": f"{SPI:x}", "replay_window": WINDOW, "selectors": SELECTORS, "cases": cases,
        }
        (directory / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
