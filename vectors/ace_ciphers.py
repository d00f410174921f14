"""The five AES finalists, written from their specifications: a model for the RTL of rtl/ace/, slow and plain.

    encrypt(name, key, block), decrypt(name, key, block)

Keys have 16, 24 or 32 bytes, blocks 16. The order of bytes is that of the field's libraries. The NIST submission of
Serpent prints keys and blocks with the last byte first. MARS is that of the second AES round (August 1999), with the
tweaked key expansion.
"""

import functools
import hashlib
import itertools
import struct

NAMES = ("rijndael", "serpent", "twofish", "rc6", "mars")
MASK = 0xFFFFFFFF


def rol(word, by):
    by &= 31
    return (word << by | word >> (32 - by)) & MASK


def ror(word, by):
    return rol(word, 32 - by & 31)


def words(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def data(values):
    return struct.pack(f"<{len(values)}I", *values)


def field(a, b, polynomial):
    """The product in GF(2^8)."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = a << 1 ^ (polynomial if a & 0x80 else 0)
        b >>= 1
    return product


# Rijndael: FIPS 197. The state is a list of bytes, column after column.


@functools.cache
def rijndael_boxes():
    box = []
    for a in range(256):
        inverse = next((b for b in range(256) if field(a, b, 0x11B) == 1), 0)
        box.append(functools.reduce(lambda x, by: x ^ (inverse << by | inverse >> 8 - by) & 0xFF, range(1, 5), inverse) ^ 0x63)
    return box, [box.index(a) for a in range(256)]


def rijndael_keys(key):
    box, _ = rijndael_boxes()
    n = len(key) // 4
    out, rcon = [list(key[4 * i : 4 * i + 4]) for i in range(n)], 1
    for i in range(n, 4 * (n + 7)):
        word = out[-1]
        if i % n == 0:
            word = [box[a] for a in word[1:] + word[:1]]
            word[0] ^= rcon
            rcon = field(rcon, 2, 0x11B)
        elif n > 6 and i % n == 4:
            word = [box[a] for a in word]
        out.append([a ^ b for a, b in zip(out[i - n], word)])
    return [sum(out[i : i + 4], []) for i in range(0, len(out), 4)]


def xor(a, b):
    return [x ^ y for x, y in zip(a, b)]


def mix(state, factors):
    return [
        functools.reduce(lambda x, k: x ^ field(state[c + k], factors[(k - r) % 4], 0x11B), range(4), 0)
        for c in range(0, 16, 4)
        for r in range(4)
    ]


def rijndael_encrypt(key, block):
    box, _ = rijndael_boxes()
    keys = rijndael_keys(key)
    state = xor(block, keys[0])
    for round_key in keys[1:]:
        state = [box[state[5 * i % 16]] for i in range(16)]
        state = xor(state if round_key is keys[-1] else mix(state, (2, 3, 1, 1)), round_key)
    return bytes(state)


def rijndael_decrypt(key, block):
    _, box = rijndael_boxes()
    keys = rijndael_keys(key)
    state = xor(block, keys[-1])
    for round_key in keys[-2::-1]:
        state = xor([box[state[-3 * i % 16]] for i in range(16)], round_key)
        if round_key is not keys[0]:
            state = mix(state, (14, 11, 13, 9))
    return bytes(state)


# Serpent: Anderson, Biham, Knudsen, "Serpent: A Proposal for the Advanced Encryption Standard", in bitslice form.

SERPENT_BOXES = [
    [int(digit, 16) for digit in row]
    for row in (
        "38f1a65bed42709c", "fc27905a1be86d34", "86793cafd1e40b52", "0fb8c963d124a75e",
        "1f83c0b6254a9e7d", "f52b4a9c03e8d671", "72c5846be91fd3a0", "1df0e82b74ca9356",
    )
]  # fmt: skip


def serpent_box(box, state):
    out = [0] * 4
    for bit in range(32):
        value = box[sum((state[i] >> bit & 1) << i for i in range(4))]
        for i in range(4):
            out[i] |= (value >> i & 1) << bit
    return out


def serpent_keys(key):
    padded = words(key if len(key) == 32 else key + b"\x01" + bytes(31 - len(key)))
    for i in range(132):
        padded.append(rol(padded[i] ^ padded[i + 3] ^ padded[i + 5] ^ padded[i + 7] ^ 0x9E3779B9 ^ i, 11))
    prekeys = padded[8:]
    return [serpent_box(SERPENT_BOXES[(35 - i) % 8], prekeys[4 * i : 4 * i + 4]) for i in range(33)]


def serpent_encrypt(key, block):
    keys, x = serpent_keys(key), words(block)
    for i in range(32):
        x = serpent_box(SERPENT_BOXES[i % 8], xor(x, keys[i]))
        if i < 31:
            x[0], x[2] = rol(x[0], 13), rol(x[2], 3)
            x[1], x[3] = rol(x[1] ^ x[0] ^ x[2], 1), rol(x[3] ^ x[2] ^ x[0] << 3 & MASK, 7)
            x[0], x[2] = rol(x[0] ^ x[1] ^ x[3], 5), rol(x[2] ^ x[3] ^ x[1] << 7 & MASK, 22)
    return data(xor(x, keys[32]))


def serpent_decrypt(key, block):
    keys = serpent_keys(key)
    x = xor(words(block), keys[32])
    for i in reversed(range(32)):
        if i < 31:
            x[0], x[2] = ror(x[0], 5) ^ x[1] ^ x[3], ror(x[2], 22) ^ x[3] ^ x[1] << 7 & MASK
            x[1], x[3] = ror(x[1], 1) ^ x[0] ^ x[2], ror(x[3], 7) ^ x[2] ^ x[0] << 3 & MASK
            x[0], x[2] = ror(x[0], 13), ror(x[2], 3)
        box = SERPENT_BOXES[i % 8]
        x = xor(serpent_box([box.index(a) for a in range(16)], x), keys[i])
    return data(x)


# Twofish: Schneier and others, "Twofish: A 128-Bit Block Cipher".

TWOFISH_NIBBLES = [
    [[int(digit, 16) for digit in row] for row in rows.split()]
    for rows in (
        "817d6f320b59eca4 ecb81235f4a6709d ba5e6d90c8f32471 d7f4126e9b3085ca",
        "28bdf76e31940ac5 1e2b4c376da5f908 4c75169a0ed82b3f b951c3de647f208a",
    )
]
TWOFISH_MDS = ((0x01, 0xEF, 0x5B, 0x5B), (0x5B, 0xEF, 0xEF, 0x01), (0xEF, 0x5B, 0x01, 0xEF), (0xEF, 0x01, 0xEF, 0x5B))
TWOFISH_RS = (
    (0x01, 0xA4, 0x55, 0x87, 0x5A, 0x58, 0xDB, 0x9E), (0xA4, 0x56, 0x82, 0xF3, 0x1E, 0xC6, 0x68, 0xE5),
    (0x02, 0xA1, 0xFC, 0xC1, 0x47, 0xAE, 0x3D, 0x19), (0xA4, 0x55, 0x87, 0x5A, 0x58, 0xDB, 0x9E, 0x03),
)  # fmt: skip
# Which q a byte goes through in front of each key word: of words 3, 2, 1, 0, and behind them all.
TWOFISH_ORDER = ((1, 1, 0, 0, 1), (0, 1, 1, 0, 0), (0, 0, 0, 1, 1), (1, 0, 1, 1, 0))


@functools.cache
def twofish_q(which, x):
    a, b = x >> 4, x & 15
    for first, second in (TWOFISH_NIBBLES[which][:2], TWOFISH_NIBBLES[which][2:]):
        a, b = a ^ b, a ^ (b >> 1 | b << 3 & 8) ^ a << 3 & 8
        a, b = first[a], second[b]
    return b << 4 | a


def matrix(rows, column, polynomial):
    return bytes(functools.reduce(lambda x, pair: x ^ field(*pair, polynomial), zip(column, row), 0) for row in rows)


@functools.cache
def twofish_column(place, y):
    return int.from_bytes(matrix([row[place : place + 1] for row in TWOFISH_MDS], [y], 0x169), "little")


def twofish_h(x, key_words):
    out = 0
    for place, order in enumerate(TWOFISH_ORDER):
        y = x >> 8 * place & 0xFF
        for which, word in zip(order[4 - len(key_words) :], reversed(key_words)):
            y = twofish_q(which, y) ^ word >> 8 * place & 0xFF
        out ^= twofish_column(place, twofish_q(order[4], y))
    return out


def twofish_keys(key):
    parts = words(key)
    s = [int.from_bytes(matrix(TWOFISH_RS, key[i : i + 8], 0x14D), "little") for i in range(0, len(key), 8)][::-1]
    keys = []
    for i in range(20):
        a = twofish_h(2 * i * 0x01010101, parts[0::2])
        b = rol(twofish_h((2 * i + 1) * 0x01010101, parts[1::2]), 8)
        keys += [a + b & MASK, rol(a + 2 * b & MASK, 9)]
    return s, keys


def twofish_f(s, keys, r, x0, x1):
    t0, t1 = twofish_h(x0, s), twofish_h(rol(x1, 8), s)
    return t0 + t1 + keys[2 * r + 8] & MASK, t0 + 2 * t1 + keys[2 * r + 9] & MASK


def twofish_encrypt(key, block):
    s, keys = twofish_keys(key)
    x = xor(words(block), keys)
    for r in range(16):
        f0, f1 = twofish_f(s, keys, r, x[0], x[1])
        x = [ror(x[2] ^ f0, 1), rol(x[3], 1) ^ f1, x[0], x[1]]
    return data(xor(x[2:] + x[:2], keys[4:]))


def twofish_decrypt(key, block):
    s, keys = twofish_keys(key)
    x = xor(words(block), keys[4:])
    for r in reversed(range(16)):
        f0, f1 = twofish_f(s, keys, r, x[0], x[1])
        x = [rol(x[2], 1) ^ f0, ror(x[3] ^ f1, 1), x[0], x[1]]
    return data(xor(x[2:] + x[:2], keys))


# RC6-32/20/b: Rivest, Robshaw, Sidney, Yin, "The RC6 Block Cipher".


def rc6_keys(key):
    key_words = words(key)
    s = [0xB7E15163 + 0x9E3779B9 * i & MASK for i in range(44)]
    a = b = 0
    for step in range(132):
        a = s[step % 44] = rol(s[step % 44] + a + b & MASK, 3)
        b = key_words[step % len(key_words)] = rol(key_words[step % len(key_words)] + a + b & MASK, a + b)
    return s


def rc6_f(x):
    return rol(x * (2 * x + 1) & MASK, 5)


def rc6_encrypt(key, block):
    s = rc6_keys(key)
    a, b, c, d = words(block)
    b, d = b + s[0] & MASK, d + s[1] & MASK
    for i in range(1, 21):
        t, u = rc6_f(b), rc6_f(d)
        a, c = rol(a ^ t, u) + s[2 * i] & MASK, rol(c ^ u, t) + s[2 * i + 1] & MASK
        a, b, c, d = b, c, d, a
    return data([a + s[42] & MASK, b, c + s[43] & MASK, d])


def rc6_decrypt(key, block):
    s = rc6_keys(key)
    a, b, c, d = words(block)
    a, c = a - s[42] & MASK, c - s[43] & MASK
    for i in reversed(range(1, 21)):
        a, b, c, d = d, a, b, c
        t, u = rc6_f(b), rc6_f(d)
        a, c = ror(a - s[2 * i] & MASK, u) ^ t, ror(c - s[2 * i + 1] & MASK, t) ^ u
    return data([a, b - s[0] & MASK, c, d - s[1] & MASK])


# MARS: Burwick and others, "MARS - a candidate cipher for AES", revised in September 1999.

def mars_box():
    """SHA-1 of a counter, e, pi and a number that was searched. Of two words of a half that share two bytes, the first is tripled."""
    box = words(b"".join(hashlib.sha1(data([5 * i, 0xB7E15162, 0x243F6A88, 0x02917D59])).digest() for i in range(103)))[:512]
    for i, j in itertools.combinations(range(512), 2):
        if i // 256 == j // 256 and data([box[i] ^ box[j]]).count(0) >= 2:
            box[i] = 3 * box[i] & MASK
    return box


MARS_BOX = mars_box()
MARS_FIX = (0xA4A8D57B, 0x5B5D193B, 0xC8A8309B, 0x73F9A978)


def mars_fix(word, before):
    """The key of a multiplication: its two lowest bits set, and no run of ten equal bits."""
    w, mask = word | 3, 0
    for bit in range(2, 31):
        runs = any(
            len({w >> at & 1 for at in range(low, low + 10)}) == 1 for low in range(max(0, bit - 9), min(22, bit) + 1)
        )
        if runs and w >> bit - 1 & 7 in (0, 7):
            mask |= 1 << bit
    return w ^ rol(MARS_FIX[word & 3], before) & mask


def mars_keys(key):
    n = len(key) // 4
    t = words(key) + [n] + [0] * (14 - n)
    keys = []
    for j in range(4):
        for i in range(15):
            t[i] ^= rol(t[i - 7] ^ t[i - 2], 3) ^ 4 * i + j
        for _ in range(4):
            for i in range(15):
                t[i] = rol(t[i] + MARS_BOX[t[i - 1] & 511] & MASK, 9)
        keys += [t[4 * i % 15] for i in range(10)]
    for i in range(5, 36, 2):
        keys[i] = mars_fix(keys[i], keys[i - 1])
    return keys


def mars_e(x, add, multiply):
    m, r = x + add & MASK, rol(rol(x, 13) * multiply & MASK, 5)
    left = MARS_BOX[m & 511] ^ r
    m, r = rol(m, r), rol(r, 5)
    return rol(left ^ r, r), m, r


def mars_encrypt(key, block):
    keys = mars_keys(key)
    a, b, c, d = (x + k & MASK for x, k in zip(words(block), keys))
    low, high = MARS_BOX[:256], MARS_BOX[256:]
    for i in range(8):
        b = (b ^ low[a & 255]) + high[a >> 8 & 255] & MASK
        c = c + low[a >> 16 & 255] & MASK
        d ^= high[a >> 24]
        a = ror(a, 24) + (d if i in (0, 4) else b if i in (1, 5) else 0) & MASK
        a, b, c, d = b, c, d, a
    for i in range(16):
        left, m, r = mars_e(a, keys[2 * i + 4], keys[2 * i + 5])
        a, c = rol(a, 13), c + m & MASK
        b, d = (b + left & MASK, d ^ r) if i < 8 else (b ^ r, d + left & MASK)
        a, b, c, d = b, c, d, a
    for i in range(8):
        a = a - (d if i in (2, 6) else b if i in (3, 7) else 0) & MASK
        b ^= high[a & 255]
        c = c - low[a >> 24] & MASK
        d = (d - high[a >> 16 & 255] & MASK) ^ low[a >> 8 & 255]
        a, b, c, d = b, c, d, rol(a, 24)
    return data([x - k & MASK for x, k in zip((a, b, c, d), keys[36:])])


def mars_decrypt(key, block):
    keys = mars_keys(key)
    a, b, c, d = (x + k & MASK for x, k in zip(words(block), keys[36:]))
    low, high = MARS_BOX[:256], MARS_BOX[256:]
    for i in reversed(range(8)):
        a, b, c, d = ror(d, 24), a, b, c
        d = (d ^ low[a >> 8 & 255]) + high[a >> 16 & 255] & MASK
        c = c + low[a >> 24] & MASK
        b ^= high[a & 255]
        a = a + (d if i in (2, 6) else b if i in (3, 7) else 0) & MASK
    for i in reversed(range(16)):
        a, b, c, d = ror(d, 13), a, b, c
        left, m, r = mars_e(a, keys[2 * i + 4], keys[2 * i + 5])
        c = c - m & MASK
        b, d = (b - left & MASK, d ^ r) if i < 8 else (b ^ r, d - left & MASK)
    for i in reversed(range(8)):
        a, b, c, d = d, a, b, c
        a = rol(a - (d if i in (0, 4) else b if i in (1, 5) else 0) & MASK, 24)
        d ^= high[a >> 24]
        c = c - low[a >> 16 & 255] & MASK
        b = (b - high[a >> 8 & 255] & MASK) ^ low[a & 255]
    return data([x - k & MASK for x, k in zip((a, b, c, d), keys)])


def encrypt(name, key, block):
    return globals()[f"{name}_encrypt"](key, block)


def decrypt(name, key, block):
    return globals()[f"{name}_decrypt"](key, block)
