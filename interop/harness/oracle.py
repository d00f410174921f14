"""scapy as an independent ESP implementation: opens what a gateway sealed, seals what it must open."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapReader

CIPHERS = {"AES-GCM with 16 octet ICV [RFC4106]": "AES-GCM", "AES-GCM [RFC4106]": "AES-GCM",
           "AES-CBC [RFC3602]": "AES-CBC"}
INTEGRITY = {"NULL": "NULL", "HMAC-SHA-256-128 [RFC4868]": "SHA2-256-128",
             "HMAC-SHA-384-192 [RFC4868]": "SHA2-384-192", "HMAC-SHA-512-256 [RFC4868]": "SHA2-512-256"}
ICV_BYTES = {"NULL": 16, "SHA2-256-128": 16, "SHA2-384-192": 24, "SHA2-512-256": 32}


@dataclass
class EspSa:
    """One direction of a child SA, out of a line `esp_sa:…` of an exported key file."""
    source: str
    destination: str
    spi: int
    cipher: str
    cipher_key: bytes
    integrity: str
    integrity_key: bytes

    @property
    def version(self) -> int:
        return 6 if ":" in self.source else 4

    def _association(self, esn: bool, high: int = 0) -> SecurityAssociation:
        header = (IPv6 if self.version == 6 else IP)(src=self.source, dst=self.destination)
        return SecurityAssociation(
            ESP, spi=self.spi, crypt_algo=self.cipher, crypt_key=self.cipher_key, auth_algo=self.integrity,
            auth_key=self.integrity_key or None, tunnel_header=header, esn_en=esn, esn=high)

    def open(self, esp: bytes, *, esn: bool = False, high: int = 0) -> Packet:
        """The inner packet. Raises scapy's IPSecIntegrityError when the ICV is wrong."""
        outer = (IPv6 if self.version == 6 else IP)(src=self.source, dst=self.destination) / ESP(esp)
        return self._association(esn, high).decrypt(outer, verify=True, esn_en=esn, esn=high)

    def seal(self, inner: Packet, sequence: int, *, esn: bool = False, iv: bytes | None = None) -> bytes:
        """The ESP packet from its SPI to its ICV."""
        association = self._association(esn, sequence >> 32)
        sealed = association.encrypt(inner, seq_num=sequence & 0xFFFFFFFF, iv=iv, esn_en=esn, esn=sequence >> 32)
        return bytes(sealed[ESP])

    def wrap(self, esp: bytes, *, udp: tuple[int, int] | None) -> Packet:
        """The packet on the wire: inside UDP with these ports, or protocol 50."""
        header = IPv6(src=self.source, dst=self.destination) if self.version == 6 else IP(src=self.source,
                                                                                        dst=self.destination)
        if udp:
            # Raw, or scapy would take the payload apart and put it together its own way.
            return header / UDP(sport=udp[0], dport=udp[1]) / Raw(esp)
        if self.version == 6:
            header.nh = 50
        else:
            header.proto = 50
        return header / Raw(esp)


def read_keys(lines: list[str]) -> list[EspSa]:
    found = []
    for line in lines:
        table, _, record = line.partition(":")
        if table != "esp_sa":
            continue
        columns = next(csv.reader([record]))
        _, source, destination, spi, cipher, key, integrity, integrity_key = columns[:8]
        found.append(EspSa(source, destination, int(spi, 16), CIPHERS[cipher], bytes.fromhex(key[2:]),
                           INTEGRITY[integrity], bytes.fromhex(integrity_key[2:])))
    return found


def key_lines(sas: list[EspSa]) -> list[str]:
    """The other way round, for peers whose keys we have by other means."""
    ciphers = {"AES-GCM": "AES-GCM with 16 octet ICV [RFC4106]", "AES-CBC": "AES-CBC [RFC3602]"}
    integrity = {value: key for key, value in INTEGRITY.items()}
    return [f'esp_sa:"IPv{sa.version}","{sa.source}","{sa.destination}","0x{sa.spi:08x}","{ciphers[sa.cipher]}",'
            f'"0x{sa.cipher_key.hex()}","{integrity[sa.integrity]}",'
            f'"{"0x" + sa.integrity_key.hex() if sa.integrity_key else ""}"' for sa in sas]


@dataclass
class EspPacket:
    source: str
    destination: str
    udp: tuple[int, int] | None
    esp: bytes

    @property
    def spi(self) -> int:
        return int.from_bytes(self.esp[:4], "big")

    @property
    def sequence(self) -> int:
        return int.from_bytes(self.esp[4:8], "big")


def esp_packets(file: Path, port: int = 4500) -> list[EspPacket]:
    """Every ESP packet of a capture, UDP-encapsulated or not."""
    found = []
    with PcapReader(str(file)) as reader:
        for frame in reader:
            if not isinstance(frame, Ether):
                continue
            header = frame.payload
            if not isinstance(header, (IP, IPv6)):
                continue
            protocol = header.proto if isinstance(header, IP) else header.nh
            # The checked length, not the frame's: short frames are padded.
            if isinstance(header, IP):
                body = bytes(header)[header.ihl * 4:header.len]
            else:
                body = bytes(header)[40:40 + header.plen]
            if protocol == 50:
                found.append(EspPacket(header.src, header.dst, None, body))
            elif protocol == 17 and len(body) > 12:
                ports = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
                if port in ports and body[8:12] != b"\0\0\0\0":
                    found.append(EspPacket(header.src, header.dst, ports, body[8:]))
    return found
