#!/usr/bin/env python3
"""Writes vectors/esp/self-test.txt: one known ESP packet per transform.

The packets are sealed by pyca/cryptography (OpenSSL), independent of aws-lc.
The file is text without JSON because the crypto crate embeds it.
"""

import hashlib
import hmac
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HASHES = {
    "HMAC_SHA2_256_128": (hashlib.sha256, 32),
    "HMAC_SHA2_384_192": (hashlib.sha384, 48),
    "HMAC_SHA2_512_256": (hashlib.sha512, 64),
}


def stream(label, length):
    """Fixed bytes that look random."""
    return hashlib.shake_128(label.encode()).digest(length)


def gcm(bits, esn, sequence):
    name = f"AES_GCM_16_{bits}"
    key = stream(name + "key", bits // 8 + 4)
    header = struct.pack(">II", 0x01234567, sequence & 0xFFFFFFFF)
    iv = struct.pack(">Q", sequence)
    body = stream(name + "body", 96)
    aad = header[:4] + struct.pack(">Q", sequence) if esn else header
    sealed = AESGCM(key[:-4]).encrypt(key[-4:] + iv, body, aad)
    return name, key, header + iv + body + bytes(16), header + iv + sealed


def cbc(bits, integrity, esn, sequence):
    name = f"AES_CBC_{bits}/{integrity}"
    digest, length = HASHES[integrity]
    key = stream(name + "key", bits // 8 + length)
    header = struct.pack(">II", 0x01234567, sequence & 0xFFFFFFFF)
    iv = stream(name + "iv", 16)
    body = stream(name + "body", 96)
    encryptor = Cipher(algorithms.AES(key[: bits // 8]), modes.CBC(iv)).encryptor()
    packet = header + iv + encryptor.update(body) + encryptor.finalize()
    high = struct.pack(">I", sequence >> 32) if esn else b""
    icv = hmac.new(key[bits // 8 :], packet + high, digest).digest()[: length // 2]
    return name, key, header + iv + body + bytes(length // 2), packet + icv


def main():
    lines = ["# source: vectors/generate_self_test.py (pyca/cryptography, OpenSSL)",
             "# transform esn sequence key-material unsealed sealed"]
    for esn, sequence in ((False, 7), (True, 0x1_0000_0005)):
        packets = [gcm(bits, esn, sequence) for bits in (128, 192, 256)]
        packets += [cbc(bits, integrity, esn, sequence) for integrity in HASHES for bits in (128, 192, 256)]
        for name, key, unsealed, sealed in packets:
            flag = "esn" if esn else "noesn"
            lines.append(f"{name} {flag} {sequence} {key.hex()} {unsealed.hex()} {sealed.hex()}")
    path = pathlib.Path(__file__).parent / "esp" / "self-test.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
