"""The states behind HMAC's key pads, which hashlib does not give: compression as FIPS 180-4 writes it. What comes of
them is checked against the hmac module."""

from math import isqrt

MASK = 0xFFFFFFFF


def primes(count):
    found = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found


def cube_root(value):
    root = 1 << (value.bit_length() + 2) // 3
    while root**3 > value:
        root = (2 * root + value // root**2) // 3
    return root


SHA256_K = [cube_root(prime << 96) & MASK for prime in primes(64)]
SHA256_INITIAL = [isqrt(prime << 64) & MASK for prime in primes(8)]
SHA1_INITIAL = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0]


def rotl(x, n):
    return (x << n | x >> (32 - n)) & MASK


def rotr(x, n):
    return rotl(x, 32 - n)


def sha256_block(state, block):
    w = [int.from_bytes(block[i : i + 4], "big") for i in range(0, 64, 4)]
    for t in range(16, 64):
        s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3
        s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10
        w.append((w[t - 16] + s0 + w[t - 7] + s1) & MASK)
    a, b, c, d, e, f, g, h = state
    for t in range(64):
        t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + (e & f ^ ~e & g) + SHA256_K[t] + w[t]
        t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = (t1 + t2) & MASK, a, b, c, (d + t1) & MASK, e, f, g
    return [(x + y) & MASK for x, y in zip(state, (a, b, c, d, e, f, g, h))]


def sha1_block(state, block):
    w = [int.from_bytes(block[i : i + 4], "big") for i in range(0, 64, 4)]
    for t in range(16, 80):
        w.append(rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1))
    a, b, c, d, e = state
    for t in range(80):
        f, k = (
            (b & c | ~b & d, 0x5A827999), (b ^ c ^ d, 0x6ED9EBA1), (b & c | b & d | c & d, 0x8F1BBCDC), (b ^ c ^ d, 0xCA62C1D6)
        )[t // 20]
        a, b, c, d, e = (rotl(a, 5) + f + e + k + w[t]) & MASK, a, rotl(b, 30), c, d
    return [(x + y) & MASK for x, y in zip(state, (a, b, c, d, e))]


def hmac_states(key, sha1):
    """Inner and outer state for a key of at most a block, the first word in the highest bits."""
    compress, initial = (sha1_block, SHA1_INITIAL) if sha1 else (sha256_block, SHA256_INITIAL)
    states = []
    for pad in (0x36, 0x5C):
        words = compress(initial, bytes(byte ^ pad for byte in key.ljust(64, b"\0")))
        states.append(int.from_bytes(b"".join(word.to_bytes(4, "big") for word in words), "big"))
    return tuple(states)
