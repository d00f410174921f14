"""Rows of the key store as a host writes them, and packets as the cipher takes them."""

import hashlib
import hmac
import random
from dataclasses import dataclass

import gcm
import hmac_states
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

GCM256, GCM128, CTR256, CTR128 = range(4)


def words(data):
    return [int.from_bytes(data[at : at + 4]) for at in range(0, len(data), 4)]


def key_row(suite, material, generation=1):
    """(word, value) of a row for the key material of RFC 4106, section 8.1: key, salt; for CTR then the HMAC key."""
    length = 16 if suite & 1 else 32
    key, salt, auth = material[:length], material[length : length + 4], material[length + 4 :]
    if suite & 2:
        inner, outer = hmac_states.hmac_states(auth, False)
        rest = words(inner.to_bytes(32) + outer.to_bytes(32))
    else:
        rest = words(b"".join(power.to_bytes(16) for power in gcm.powers(key, 4)))
    return [(25, 0), *enumerate(words(key)), *enumerate(rest, 8), (24, *words(salt)), (25, generation)]


def material(source, suite):
    return source.randbytes((16 if suite & 1 else 32) + 4 + (32 if suite & 2 else 0))


@dataclass
class Packet:
    row: int
    suite: int
    material: bytes
    iv: bytes
    spi: int
    sequence: int
    esn: bool
    plain: bytes
    generation: int = 1

    def __post_init__(self):
        length = 16 if self.suite & 1 else 32
        key, salt, auth = self.material[:length], self.material[length : length + 4], self.material[length + 4 :]
        high, low = (self.sequence >> 32).to_bytes(4), (self.sequence & 0xFFFFFFFF).to_bytes(4)
        spi = self.spi.to_bytes(4)
        if self.suite & 2:
            self.sealed = Cipher(algorithms.AES(key), modes.CTR(salt + self.iv + b"\0\0\0\1")).encryptor().update(self.plain)
            text = spi + low + self.iv + self.sealed + (high if self.esn else b"")
            self.icv = hmac.new(auth, text, hashlib.sha256).digest()[:16]
        else:
            aad = spi + (high if self.esn else b"") + low
            sealed = AESGCM(key).encrypt(salt + self.iv, self.plain, aad)
            self.sealed, self.icv = sealed[:-16], sealed[-16:]

    def command(self, number=0):
        """cipher_cmd_t"""
        value = number << 2 | self.suite
        for part, width in (
            (self.row, 10), (self.generation, 7), (int.from_bytes(self.iv), 64), (self.spi, 32), (self.sequence >> 32, 32),
            (self.sequence & 0xFFFFFFFF, 32), (self.esn, 1), (len(self.plain), 16),
        ):
            value = value << width | part
        return value


def packet(source, rows, length=None):
    """A random packet under one of `rows`: {row: (suite, material)}."""
    row = source.choice(list(rows))
    suite, secret = rows[row]
    length = length or 4 * source.choice((1, 2, 3, 4, 5, 8, 16, 17, 40, source.randint(1, 90)))
    esn = source.random() < 0.5
    sequence = source.getrandbits(64 if esn else 32)
    return Packet(row, suite, secret, source.randbytes(8), source.getrandbits(32), sequence, esn, source.randbytes(length))


def rows(source, count, suites):
    made = {}
    for row in random.Random(count).sample(range(16), count):
        suite = source.choice(suites)
        made[row] = (suite, material(source, suite))
    return made
