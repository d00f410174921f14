"""The vectors that units of Gateway 2.0 can make: ESP packets and known answers of their algorithms."""

import json
from dataclasses import dataclass

import bench

ICV_BYTES = {"96": 12, "128": 16, "192": 24, "256": 32}  # by the end of a transform's name
# What a receiver finds wrong that has to do with neither ciphertext nor ICV.
SEALED_RIGHT = {
    None, "replayed", "before-window", "bad-padding", "dummy", "bad-next-header", "malformed-inner", "selector-mismatch", "ecn-not-capable",
}  # fmt: skip


@dataclass
class Packet:
    name: str
    key: bytes  # of the cipher, then of the MAC
    head: bytes  # SPI and sequence number
    body: bytes  # IV and ciphertext
    extended: bytes  # what only the MAC covers: the upper half of an extended sequence number (RFC 4303, 2.2.1)
    icv: bytes
    clear: bytes  # stands in the plaintext


def known_answers(name):
    """Those of vectors/primitives that are valid, as bytes by what they are."""
    cases = json.loads((bench.VECTORS / "primitives" / f"{name}.json").read_text())["cases"]
    parts = ("key", "iv", "input", "output", "icv")
    return [{part: bytes.fromhex(case[part]) for part in parts if part in case} for case in cases if case.get("valid", True)]


def packets(ciphers, macs=None):
    """The packets of vectors/packets and vectors/esp with these ciphers and, if told, MACs."""
    found = []

    def fits(transform):
        cipher, _, mac = transform.partition("/")
        return cipher in ciphers and (macs is None or mac in macs)

    def add(name, key, sequence, esn, esp, clear):
        icv = ICV_BYTES[name.split(" ")[0].rpartition("_")[2]]
        extended = (sequence >> 32).to_bytes(4, "big") if esn else b""
        assert int.from_bytes(esp[4:8], "big") == sequence & 0xFFFFFFFF
        found.append(Packet(name, bytes.fromhex(key), esp[:8], esp[8:-icv], extended, esp[-icv:], clear))

    for path in sorted((bench.VECTORS / "packets").glob("esp-*.json")):
        vectors = json.loads(path.read_text())
        for case in vectors["cases"] if fits(vectors["transform"]) else ():
            if case["drop"] not in SEALED_RIGHT:
                continue
            frame, sequence = bytes.fromhex(case["frame"]), int(case["sequence"], 16)
            # A header in front may have options or extensions.
            esp = frame[frame.index(bytes.fromhex(vectors["spi"]) + (sequence & 0xFFFFFFFF).to_bytes(4, "big")) :]
            # A tunnel's end may change TOS and checksum; in transport mode the IP header is not inside.
            delivered = bytes.fromhex(case["delivered"] or "")
            outside = 12 if case["mode"] == "tunnel" else 20 if delivered[:1] == b"\x45" else 48
            add(f"{vectors['transform']} {case['name']}", case["key"], sequence, case["esn"], esp, delivered[outside:])
    for line in (bench.VECTORS / "esp" / "self-test.txt").read_text().splitlines():
        transform, esn, sequence, _, key, unsealed, sealed = line.split() if line[0] != "#" else ["#"] * 7
        if fits(transform):
            # Behind header and IV, 32 bytes.
            icv = ICV_BYTES[transform.rpartition("_")[2]]
            clear = bytes.fromhex(unsealed)[: -icv][-32:]
            add(f"{transform} {esn}", key, int(sequence), esn == "esn", bytes.fromhex(sealed), clear)
    return found
