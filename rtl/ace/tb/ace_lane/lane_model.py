"""What ace_lane is to answer: frames as lists of 32-bit words, and ESP with a cipher in counter mode and HMAC-SHA-256-128."""

import hmac
import sys
from dataclasses import dataclass

import bench
from hmac_states import hmac_states

sys.path.insert(0, str(bench.VECTORS))
import ace_ciphers  # noqa: E402
import ace_oracle  # noqa: E402

SEALED, OPENED, BAD_ICV, MALFORMED, NO_KEY = 1, 2, 3, 4, 5
ORACLE = ace_oracle.load(bench.BUILD)


def words(data):
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


@dataclass(frozen=True)
class Key:
    cipher: bytes
    nonce: bytes
    auth: bytes

    def frame(self):
        states = b"".join(state.to_bytes(32, "big") for state in hmac_states(self.auth, False))
        return [1 << 24 | (16, 24, 32).index(len(self.cipher)), *words(self.cipher.ljust(32, b"\0") + self.nonce + states)]

    def stream(self, name, iv, length, model=False):
        """Key stream from Crypto++, or from the model where it is missing."""
        encrypt = ace_ciphers.encrypt if model or not ORACLE else lambda *arguments: ORACLE(*arguments, True)
        blocks = (self.nonce + iv + count.to_bytes(4, "big") for count in range(1, (length + 15) // 16 + 1))
        return b"".join(encrypt(name, self.cipher, block) for block in blocks)[:length]


@dataclass(frozen=True)
class Packet:
    """ESP in clear; `high` is the sequence number's high half, which does not travel."""

    spi: bytes
    low: bytes
    high: bytes
    iv: bytes
    body: bytes
    esn: bool

    def sealed(self, name, key, model=False):
        """Ciphertext and ICV."""
        stream = key.stream(name, self.iv, len(self.body), model)
        text = bytes(a ^ b for a, b in zip(self.body, stream, strict=True))
        return text, self.icv(key, text)

    def icv(self, key, text):
        return hmac.digest(key.auth, self.spi + self.low + self.iv + text + (self.high if self.esn else b""), "sha256")[:16]

    def frame(self, body, icv=None):
        head = 2 << 24 | self.esn << 17 | (icv is not None) << 16 | len(body)
        return [head, *words(self.spi + self.low + self.high + self.iv + body + (icv or b""))]

    def seal(self):
        """The frame that asks for sealing."""
        return self.frame(self.body)

    def open(self, name, key):
        return self.frame(*self.sealed(name, key))


def answer(status, body=b"", icv=b""):
    return [status << 24 | len(body), *words(body + icv)]


def random_key(source, lengths):
    return Key(source.randbytes(source.choice(lengths)), source.randbytes(4), source.randbytes(source.choice((16, 32, 64))))


def random_packet(source, length, esn=None):
    esn = source.random() < 0.5 if esn is None else esn
    return Packet(source.randbytes(4), source.randbytes(4), source.randbytes(4), source.randbytes(8), source.randbytes(length), esn)
