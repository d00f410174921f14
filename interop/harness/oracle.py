"""Uses scapy as an independent implementation of ESP and AH: it opens packets that a gateway sealed, and seals
packets that a gateway must open."""

from __future__ import annotations

import csv
import socket
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import algorithms, modes
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, CRYPT_ALGOS, ESP, CryptAlgo, SecurityAssociation
from scapy.packet import Packet, Raw

from .capture import frames

# scapy's AES-GCM supports ICVs of 16 bytes only. This algorithm uses `crypt_icv_size`.
CRYPT_ALGOS["AES-GCM-short"] = CryptAlgo(
    "AES-GCM-short", cipher=algorithms.AES, key_size=(16, 24, 32), mode=modes.GCM, salt_size=4, block_size=1, iv_size=8,
    icv_size=16, format_mode_iv=lambda sa, iv, **_: sa.crypt_salt + iv)

# scapy's name of the cipher, and the length of its ICV if it is an AEAD.
CIPHERS = {"AES-GCM with 16 octet ICV [RFC4106]": ("AES-GCM", 16), "AES-GCM [RFC4106]": ("AES-GCM", 16),
           "AES-GCM with 12 octet ICV [RFC4106]": ("AES-GCM-short", 12),
           "AES-GCM with 8 octet ICV [RFC4106]": ("AES-GCM-short", 8),
           "AES-CBC [RFC3602]": ("AES-CBC", None), "AES-CTR [RFC3686]": ("AES-CTR", None), "NULL": ("NULL", None),
           "TripleDES-CBC [RFC2451]": ("3DES", None), "DES-CBC [RFC2405]": ("DES", None)}
INTEGRITY = {"NULL": "NULL", "HMAC-SHA-256-128 [RFC4868]": "SHA2-256-128",
             "HMAC-SHA-384-192 [RFC4868]": "SHA2-384-192", "HMAC-SHA-512-256 [RFC4868]": "SHA2-512-256",
             "HMAC-SHA-1-96 [RFC2404]": "HMAC-SHA1-96", "HMAC-MD5-96 [RFC2403]": "HMAC-MD5-96",
             "ANY 96 bit authentication [no checking]": "AES-CMAC-96"}
# IANA's names, as in `ipsec_sa` lines.
AEADS = {"AES_CCM_16": ("AES-CCM", 16), "AES_CCM_12": ("AES-CCM", 12), "AES_CCM_8": ("AES-CCM", 8),
         "CHACHA20_POLY1305": ("CHACHA20-POLY1305", 16), "NULL_AUTH_AES_GMAC": ("AES-NULL-GMAC", 16)}
AH_INTEGRITY = {"HMAC_SHA2_256_128": "SHA2-256-128", "HMAC_SHA2_384_192": "SHA2-384-192",
                "HMAC_SHA2_512_256": "SHA2-512-256", "HMAC_SHA1_96": "HMAC-SHA1-96", "AES_CMAC_96": "AES-CMAC-96"}


@dataclass
class EspSa:
    """One direction of a child SA, from a line `esp_sa:…` or `ipsec_sa:…` of an exported key file."""
    source: str
    destination: str
    spi: int
    cipher: str
    cipher_key: bytes
    integrity: str
    integrity_key: bytes
    icv_bytes: int | None = None
    # AH has neither a cipher nor a trailer.
    is_ah: bool = False
    transport: bool = False

    @property
    def version(self) -> int:
        return 6 if ":" in self.source else 4

    def _association(self, esn: bool, high: int = 0) -> SecurityAssociation:
        keys = {"auth_algo": self.integrity, "auth_key": self.integrity_key or None, "esn_en": esn, "esn": high,
                "tunnel_header": None if self.transport else self._header()}
        if self.is_ah:
            return SecurityAssociation(AH, spi=self.spi, **keys)
        return SecurityAssociation(ESP, spi=self.spi, crypt_algo=self.cipher, crypt_key=self.cipher_key,
                                   crypt_icv_size=self.icv_bytes, **keys)

    def _header(self) -> Packet:
        return (IPv6 if self.version == 6 else IP)(src=self.source, dst=self.destination)

    def open(self, esp: bytes, *, esn: bool = False, high: int = 0) -> Packet:
        """Opens an ESP packet and returns the inner packet. Raises scapy's IPSecIntegrityError if the ICV is
        wrong."""
        return self.open_frame(bytes(self.wrap(esp, udp=None)), esn=esn, high=high)

    def open_frame(self, frame: bytes, *, esn: bool = False, high: int = 0) -> Packet:
        """Opens a packet with its IP header, which AH covers."""
        outer = (IPv6 if self.version == 6 else IP)(frame)
        inner = bytes(self._association(esn, high).decrypt(outer, verify=True, esn_en=esn, esn=high))
        # scapy has not parsed the bytes behind AH.
        return (IP if inner[0] >> 4 == 4 else IPv6)(inner)

    def seal(self, inner: Packet, sequence: int, *, esn: bool = False, iv: bytes | None = None) -> bytes:
        """Seals a packet. Returns the ESP packet from its SPI to its ICV."""
        return bytes(self._seal(inner, sequence, esn, iv)[ESP])

    def seal_frame(self, inner: Packet, sequence: int, *, esn: bool = False) -> bytes:
        """Seals a packet. Returns it as it goes onto the wire, without UDP."""
        return bytes(self._seal(inner, sequence, esn))

    def _seal(self, inner: Packet, sequence: int, esn: bool, iv: bytes | None = None) -> Packet:
        high = sequence >> 32
        return self._association(esn, high).encrypt(inner, seq_num=sequence & 0xFFFFFFFF, iv=iv, esn_en=esn, esn=high)

    def wrap(self, esp: bytes, *, udp: tuple[int, int] | None) -> Packet:
        """The packet on the wire: inside UDP with these ports, or with protocol 50."""
        header = IPv6(src=self.source, dst=self.destination) if self.version == 6 else IP(src=self.source,
                                                                                        dst=self.destination)
        if udp:
            # The payload is Raw, because scapy would otherwise parse it and build it again in its own way.
            return header / UDP(sport=udp[0], dport=udp[1]) / Raw(esp)
        if self.version == 6:
            header.nh = 50
        else:
            header.proto = 50
        return header / Raw(esp)


def read_keys(lines: list[str]) -> list[EspSa]:
    readers = {"esp_sa": _wireshark_sa, "ipsec_sa": _other_sa}
    found = []
    for line in lines:
        table, _, record = line.partition(":")
        if table in readers:
            found.append(readers[table](next(csv.reader([record]))))
    return found


def _wireshark_sa(columns: list[str]) -> EspSa:
    _, source, destination, spi, cipher, key, integrity, integrity_key = columns[:8]
    name, icv_bytes = CIPHERS[cipher]
    return EspSa(source, destination, int(spi, 16), name, bytes.fromhex(key[2:]), INTEGRITY[integrity],
                 bytes.fromhex(integrity_key[2:]), icv_bytes)


def _other_sa(columns: list[str]) -> EspSa:
    source, destination, spi, transform, _, key = columns
    material = bytes.fromhex(key[2:])
    if transform.startswith("AH/"):
        integrity = AH_INTEGRITY[transform.removeprefix("AH/")]
        return EspSa(source, destination, int(spi, 16), "NULL", b"", integrity, material, is_ah=True)
    cipher, icv_bytes = next(aead for name, aead in AEADS.items() if transform.startswith(name))
    return EspSa(source, destination, int(spi, 16), cipher, material, "NULL", b"", icv_bytes)


def key_lines(sas: list[EspSa]) -> list[str]:
    """Makes key lines from SAs, for peers whose keys come from elsewhere."""
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
    # The bytes of ESP from the SPI on, or of AH from the next header on.
    esp: bytes
    # The bytes with the IP header.
    frame: bytes
    is_ah: bool = False

    @property
    def spi(self) -> int:
        return int.from_bytes(self.esp[4:8] if self.is_ah else self.esp[:4], "big")

    @property
    def sequence(self) -> int:
        return int.from_bytes(self.esp[8:12] if self.is_ah else self.esp[4:8], "big")


def esp_packets(file: Path, port: int = 4500) -> list[EspPacket]:
    """All packets of ESP (UDP-encapsulated or not) and AH in a capture."""
    found = []
    for frame in frames(file):
        kind = frame[12:14]
        # The length comes from the header and not from the frame, because short frames are padded.
        if kind == b"\x08\x00":
            frame = frame[14:14 + int.from_bytes(frame[16:18], "big")]
            source, destination = (socket.inet_ntop(socket.AF_INET, frame[place:place + 4]) for place in (12, 16))
            protocol, body = frame[9], frame[(frame[0] & 15) * 4:]
        elif kind == b"\x86\xdd":
            frame = frame[14:54 + int.from_bytes(frame[18:20], "big")]
            source, destination = (socket.inet_ntop(socket.AF_INET6, frame[place:place + 16]) for place in (8, 24))
            protocol, body = frame[6], frame[40:]
        else:
            continue
        if protocol in (50, 51):
            found.append(EspPacket(source, destination, None, body, frame, protocol == 51))
        elif protocol == 17 and len(body) > 12:
            ports = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
            if port in ports and body[8:12] != b"\0\0\0\0":
                found.append(EspPacket(source, destination, ports, body[8:], frame))
    return found
