"""What a host computes when it installs a key for AES-GCM."""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def encrypt_block(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def multiply(a, b):
    """SP 800-38D, algorithm 1; x^0 is the most significant bit."""
    product = 0
    for i in range(127, -1, -1):
        if b >> i & 1:
            product ^= a
        a = a >> 1 ^ (0xE1 << 120 if a & 1 else 0)
    return product


def powers(key, count):
    """H, H^2, .. as numbers whose most significant byte is the block's first."""
    h = int.from_bytes(encrypt_block(key, bytes(16)))
    found = [h]
    while len(found) < count:
        found.append(multiply(found[-1], h))
    return found
