"""Gateway 2.0 (esp_sections) from outside: its configuration, its traffic, and what must come out, by other people's crypto."""

import hashlib
import hmac
import ipaddress
import os
import struct
import subprocess
import zlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hmac_states import hmac_states
from sources import benches, module
from verilated import BUILD, COVERAGE, program

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
except ImportError:
    from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES

PASS, MAIN, DES, PRIORITY = range(4)
DISCARD, BYPASS, PROTECT = range(3)
POLICY_TABLE, SAD_TABLE = 10, 11
ICV = 12


def pearson_table():
    table, seed = list(range(256)), 1
    for i in range(255, 0, -1):
        seed = (seed * 1103515245 + 12345) & 0xFFFFFFFF
        j = (seed >> 16) % (i + 1)
        table[i], table[j] = table[j], table[i]
    return table


PEARSON = pearson_table()


def pearson(data):
    value = 0
    for byte in data:
        value = PEARSON[value ^ byte]
    return value


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address(text):
    return ipaddress.ip_address(text).packed


def packet(length, source="10.1.0.1", destination="10.2.0.1", protocol=17, ports=(1000, 2000), ttl=64, tos=0, flags=0, body=None):
    """An IPv4 packet of `length` bytes in all."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, tos, length, 7, flags, ttl, protocol, 0, address(source), address(destination))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    rest = struct.pack("!HH", *ports) + (body or bytes(i * 7 & 255 for i in range(length)))
    return header + rest[: length - 20]


def selectors(frame):
    """What is hashed and compared: addresses, protocol, ports (0 where there are none)."""
    source, destination, protocol = frame[12:16], frame[16:20], frame[9]
    fragment = struct.unpack_from("!H", frame, 6)[0] & 0x1FFF
    ports = frame[20:24] if protocol in (6, 17) and not fragment and len(frame) >= 24 else bytes(4)
    return source + destination + bytes([protocol]) + ports


class Policy:
    """Gives entries their places: four in a bucket."""

    def __init__(self):
        self.used = {}

    def entry(self, key, action, row=0, generation=0):
        """The writes that enter one policy: (address, data)."""
        bucket = pearson(key)
        way = self.used.get(bucket, 0)
        assert way < 4, "the bucket is full"
        self.used[bucket] = way + 1
        words = [*struct.unpack("<4I", key.ljust(16, b"\0")), generation << 13 | 1 << 12 | action << 10 | row]
        return [(POLICY_TABLE << 16 | bucket << 8 | way << 6 | word, data) for word, data in enumerate(words)]


def front(words):
    """Words as they go in front of a packet: four in a beat, each with its lowest byte first."""
    return struct.pack(f"<{len(words)}I", *words)


def key_words(key):
    return struct.unpack("!8I", key.ljust(32, b"\0"))


def state_words(inner, outer):
    return [state >> shift & 0xFFFFFFFF for state in (inner, outer) for shift in range(128, -1, -32)]


def key_front(key):
    return front(key_words(key))


def states_front(inner, outer, rest=(0, 0)):
    """Of HMAC-SHA1: two and a half beats, then two words that nobody reads."""
    return front([*state_words(inner, outer), *rest])


@dataclass
class Sa:
    row: int
    spi: int
    key: bytes
    auth_key: bytes
    cipher: int = MAIN
    source: str = "192.0.2.1"
    destination: str = "198.51.100.1"
    last_used: int = 0
    auth: int = MAIN
    generation: int = 0

    def writes(self):
        states = state_words(*hmac_states(self.auth_key, sha1=True))
        addresses = [int(ipaddress.ip_address(a)) for a in (self.source, self.destination)]
        words = {0: self.spi, 2: addresses[0], 3: addresses[1], 22: self.last_used}
        words |= {4 + i: word for i, word in enumerate(key_words(self.key))} | {12 + i: word for i, word in enumerate(states)}
        words[1] = 1 | (len(self.key) == 32) << 1 | self.cipher << 4 | self.auth << 8 | self.generation << 12
        return [(SAD_TABLE << 16 | self.row << 6 | word, data) for word, data in words.items()]

    @property
    def block(self):
        return {PASS: 4, DES: 8}.get(self.cipher, 16)

    def ecb(self):
        algorithm = TripleDES(self.key * (24 // len(self.key))) if self.cipher == DES else algorithms.AES(self.key)
        return Cipher(algorithm, modes.ECB())

    def open(self, frame):
        """Checks the protected frame field by field; returns its sequence number and the inner packet."""
        assert checksum(frame[:20]) == 0 and frame[0] == 0x45 and frame[8] == 64 and frame[9] == 50
        length, ident, fragment = struct.unpack_from("!HHH", frame, 2)
        assert length == len(frame)
        assert frame[12:20] == address(self.source) + address(self.destination)
        spi, sequence = struct.unpack_from("!II", frame, 20)
        assert spi == self.spi and ident == sequence & 0xFFFF
        covered, icv = frame[20:-ICV], frame[-ICV:]
        assert icv == hmac.digest(self.auth_key, covered, "sha1")[:ICV], "ICV"
        body = covered[8:]
        if self.cipher == DES:
            decryptor = self.ecb().decryptor()
            body = decryptor.update(body)
        elif self.cipher != PASS:
            nonce = struct.pack("!IQI", spi, 0, sequence)
            assert body[:16] == self.ecb().encryptor().update(nonce), "IV"
            decryptor = Cipher(algorithms.AES(self.key), modes.CBC(body[:16])).decryptor()
            body = decryptor.update(body[16:])
        padding, next_header = body[-2:]
        assert next_header == 4 and padding < self.block
        assert body[-2 - padding : -2] == bytes(range(1, padding + 1))
        inner = body[: -2 - padding]
        assert frame[1] == inner[1] and fragment == struct.unpack_from("!H", inner, 6)[0] & 0x4000
        return sequence, inner


def forwarded(frame):
    """The packet with its TTL one less."""
    header = frame[:8] + bytes([frame[8] - 1, frame[9], 0, 0]) + frame[12:20]
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + frame[20:]


class Simulation:
    """esp_sections compiled with a harness (esp_sections/harness.cpp), for one set of parameters."""

    def __init__(self, parameters):
        self.parameters, self.ports = parameters, parameters.get("Ports", 1)
        self.runs = 0
        name = "sections-" + ("coverage-" if COVERAGE else "") + "-".join(f"{key}{value}" for key, value in sorted(parameters.items()))
        self.build = BUILD / (name if len(name) <= 80 else f"sections-{zlib.crc32(name.encode()):08x}")
        self.program = program(
            module("esp_sections"), self.build, parameters, benches()["esp_sections"] / "harness.cpp", prefix="Vesp_sections",
            flags=[f"-DPORTS={self.ports}"],
        )  # fmt: skip

    def run(self, script, idle=0, back_pressure=0, seed=1, sad_percent=50):
        """Runs a script (lines for the harness); returns its output as lists of words."""
        self.runs += 1
        done = subprocess.run(
            [str(self.program), *map(str, (idle, back_pressure, seed, sad_percent))],
            input="\n".join(script) + "\n", capture_output=True, text=True, check=True, timeout=600,
            env=os.environ | {"RTL_COVERAGE_FILE": f"{COVERAGE}/{self.build.name}-{os.getpid()}-{self.runs}.dat"},
        )  # fmt: skip
        return [line.split() for line in done.stdout.splitlines()]


def config(writes):
    return [f"c {address:x} {data:x}" for address, data in writes]


def beats(port, frame):
    """The script's lines for a frame."""
    for at in range(0, len(frame), 16):
        part = frame[at : at + 16]
        yield raw_beat(port, part, (1 << len(part)) - 1, at + 16 >= len(frame))


def raw_beat(port, data, keep, last):
    """Behind the data stands what nobody is to read, as in streams.filled."""
    return f"b {port} {(data + hashlib.md5(data).digest()[len(data) :]).hex()} {keep:x} {int(last)}"
