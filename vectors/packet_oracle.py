"""ESP (RFC 4303) and AH (RFC 4302) over pyca/cryptography, for generate_packets.py. The AES finalists besides Rijndael
come from ace_ciphers.py.

It knows nothing of Esplanade and shares no code with it. What scapy can do is checked against scapy there.
"""

import hashlib
import hmac
import struct

import ace_ciphers
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives import cmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305


def stream(label, length):
    """Fixed bytes that look random."""
    return hashlib.shake_128(label.encode()).digest(length)


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def aes_block(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def aes_xcbc(key, message):
    """RFC 3566 §4, all 128 bits."""
    k1, k2, k3 = (aes_block(key, bytes([n]) * 16) for n in (1, 2, 3))
    blocks = [message[i : i + 16] for i in range(0, len(message), 16)] or [b""]
    state = bytes(16)
    for block in blocks[:-1]:
        state = aes_block(k1, xor(state, block))
    last = blocks[-1]
    if len(last) == 16:
        return aes_block(k1, xor(xor(last, state), k2))
    return aes_block(k1, xor(xor((last + b"\x80").ljust(16, b"\0"), state), k3))


def aes_cmac(key, message):
    mac = cmac.CMAC(algorithms.AES(key))
    mac.update(message)
    return mac.finalize()


def hmac_of(name):
    return lambda key, message: hmac.new(key, message, name).digest()


def finalist_cbc(name, key, iv, body):
    out, before = b"", iv
    for at in range(0, len(body), 16):
        before = ace_ciphers.encrypt(name, key, xor(body[at : at + 16], before))
        out += before
    return out


def finalist_ctr(name, key, nonce, iv, body):
    """RFC 3686 §4, with another cipher in the place of AES."""
    blocks = -(-len(body) // 16)
    counters = (nonce + iv + struct.pack(">I", number) for number in range(1, blocks + 1))
    return xor(body, b"".join(ace_ciphers.encrypt(name, key, counter) for counter in counters))


# IANA name: (MAC, key length, ICV length)
INTEGRITY = {
    "HMAC_SHA2_256_128": (hmac_of("sha256"), 32, 16),
    "HMAC_SHA2_384_192": (hmac_of("sha384"), 48, 24),
    "HMAC_SHA2_512_256": (hmac_of("sha512"), 64, 32),
    "HMAC_SHA1_96": (hmac_of("sha1"), 20, 12),
    "HMAC_MD5_96": (hmac_of("md5"), 16, 12),
    "AES_XCBC_96": (aes_xcbc, 16, 12),
    "AES_CMAC_96": (aes_cmac, 16, 12),
}


def check_primitives():
    """RFC 3566 §4.6: what no library here computes."""
    key = bytes(range(16))
    for message, answer in (
        (b"", "75f0251d528ac01c4573dfd584d79f29"),
        (bytes(range(3)), "5b376580ae2f19afe7219ceef172756f"),
        (bytes(range(16)), "d2a246fa349b68a79998a4394ff7a263"),
        (bytes(range(20)), "47f51b4564966215b8985c63055ed308"),
        (bytes(range(32)), "f54f0ec8d2b9f3d36807734bd5283fd4"),
    ):
        assert aes_xcbc(key, message).hex() == answer


class Transform:
    """Cipher, its key length in bits, integrity; for AH only integrity (and key bits for GMAC)."""

    def __init__(self, name, cipher=None, bits=0, integrity=None, icv=None, implicit_iv=False):
        self.name, self.cipher, self.implicit_iv = name, cipher, implicit_iv
        self.cipher_len = bits // 8
        self.integrity = integrity
        # (cipher, mode) of an AES finalist besides Rijndael
        self.finalist = tuple(cipher.split("-")) if cipher in FINALISTS else None
        self.salt_len = {"gcm": 4, "gmac": 4, "chacha": 4, "ctr": 4, "ccm": 3}.get(cipher, 0)
        self.mac, self.auth_len, self.icv_len = INTEGRITY[integrity] if integrity else (None, 0, icv)
        self.iv_len = {"null": 0, "aes-cbc": 16}.get(cipher, 8)
        if implicit_iv:
            self.iv_len = 0
        if self.finalist:
            self.salt_len, self.iv_len = (0, 16) if self.finalist[1] == "cbc" else (4, 8)
        self.align = {"aes-cbc": 16, "des": 8, "3des": 8}.get(cipher, 4)
        if self.finalist and self.finalist[1] == "cbc":
            self.align = 16
        self.protocol = "ah" if cipher in (None, "ah-gmac") else "esp"
        if self.protocol == "ah":
            self.iv_len = 8 if cipher == "ah-gmac" else 0
            self.salt_len = 4 if cipher == "ah-gmac" else 0
        self.key_len = self.cipher_len + self.salt_len + self.auth_len

    @property
    def file(self):
        return f"{self.protocol}-{self.name.lower().replace('/', '-').replace('_', '-')}".replace("ah-ah-", "ah-")

    def iv(self, sequence):
        """Counter modes take the sequence number, as a gateway does; CBC fixed bytes."""
        if self.cipher in ("aes-cbc", "des", "3des") or self.finalist and self.finalist[1] == "cbc":
            return stream(f"iv {sequence}", self.iv_len)
        return struct.pack(">Q", sequence)

    def pad(self, payload, next_header):
        length = -(len(payload) + 2) % self.align
        return payload + bytes(range(1, length + 1)) + bytes([length, next_header])

    def seal_esp(self, key, spi, esn, sequence, body):
        """`body` is payload, padding and trailer; a whole number of blocks."""
        header = struct.pack(">II", spi, sequence & 0xFFFFFFFF)
        aad = struct.pack(">IQ", spi, sequence) if esn else header
        secret, rest = key[: self.cipher_len], key[self.cipher_len :]
        iv = self.iv(sequence)
        shown = b"" if self.implicit_iv or self.cipher == "null" else iv
        if self.cipher in ("gcm", "chacha"):
            aead = AESGCM(secret) if self.cipher == "gcm" else ChaCha20Poly1305(secret)
            sealed = aead.encrypt(rest + iv, body, aad)
            # A shorter GCM tag is the beginning of the long one (NIST SP 800-38D §5.2.1.2).
            return header + shown + sealed[: len(body) + self.icv_len]
        if self.cipher == "ccm":
            return header + shown + AESCCM(secret, tag_length=self.icv_len).encrypt(rest + iv, body, aad)
        if self.cipher == "gmac":
            # RFC 4543 §3.3
            return header + iv + body + AESGCM(secret).encrypt(rest + iv, b"", aad + iv + body)
        cipher = {
            "aes-cbc": lambda: Cipher(algorithms.AES(secret), modes.CBC(iv)),
            "des": lambda: Cipher(TripleDES(secret * 3), modes.CBC(iv)),
            "3des": lambda: Cipher(TripleDES(secret), modes.CBC(iv)),
            "ctr": lambda: Cipher(algorithms.AES(secret), modes.CTR(rest[:4] + iv + b"\0\0\0\1")),
        }.get(self.cipher)
        if cipher:
            encryptor = cipher().encryptor()
            body = encryptor.update(body) + encryptor.finalize()
        if self.finalist:
            name, mode = self.finalist
            body = finalist_cbc(name, secret, iv, body) if mode == "cbc" else finalist_ctr(name, secret, rest[:4], iv, body)
        packet = header + shown + body
        high = struct.pack(">I", sequence >> 32) if esn else b""
        return packet + self.mac(rest[self.salt_len :], packet + high)[: self.icv_len]

    def seal_ah(self, key, spi, esn, sequence, version, headers, next_header, payload, reserved=0, filler=0):
        """`headers` stand before AH and already say that AH follows; their lengths count AH."""
        align = 4 if version == 4 else 8
        field = self.iv_len + self.icv_len
        padding = bytes([filler]) * (-(12 + field) % align)
        length = (12 + field + len(padding)) // 4 - 2
        head = struct.pack(">BBHII", next_header, length, reserved, spi, sequence & 0xFFFFFFFF)
        iv = struct.pack(">Q", sequence)[: self.iv_len]
        high = struct.pack(">I", sequence >> 32) if esn else b""
        covered = zero_mutable(version, headers) + head + iv + bytes(self.icv_len) + padding + payload + high
        if self.cipher == "ah-gmac":
            icv = AESGCM(key[:-4]).encrypt(key[-4:] + iv, b"", covered)
        else:
            icv = self.mac(key, covered)[: self.icv_len]
        return head + iv + icv + padding

    def ah_len(self, version):
        align = 4 if version == 4 else 8
        return -(-(12 + self.iv_len + self.icv_len) // align) * align


def zero_mutable(version, headers):
    """RFC 4302 §3.3.3.1 and appendix A."""
    out = bytearray(headers)
    if version == 4:
        for at in (1, 6, 7, 8, 10, 11):
            out[at] = 0
        at = 20
        while at < len(out):
            kind = out[at]
            if kind == 0:
                break
            length = 1 if kind == 1 else out[at + 1]
            if kind not in (1, 0x82, 0x85, 0x86, 0x94, 0x95):
                out[at : at + length] = bytes(length)
            at += length
        return bytes(out)
    out[0:4] = b"\x60\0\0\0"
    out[7] = 0
    kind, at = out[6], 40
    while at < len(out):
        following, length = out[at], 8 + out[at + 1] * 8
        if kind in (0, 60):
            option = at + 2
            while option < at + length:
                if out[option] == 0:
                    option += 1
                    continue
                data = out[option + 1]
                if out[option] & 0x20:
                    out[option + 2 : option + 2 + data] = bytes(data)
                option += 2 + data
        kind, at = following, at + length
    return bytes(out)


FINALISTS = ("serpent-cbc", "twofish-cbc", "mars-ctr", "rc6-ctr", "serpent-ctr", "twofish-ctr")


def finalist_transform(cipher, bits):
    """A transform for private use."""
    name = cipher.upper().replace("-", "_")
    return Transform(f"{name}_{bits}/HMAC_SHA2_256_128", cipher, bits, "HMAC_SHA2_256_128")


def all_transforms():
    found = []
    for bits in (128, 192, 256):
        for icv in (16, 12, 8):
            found.append(Transform(f"AES_GCM_{icv}_{bits}", "gcm", bits, icv=icv))
            found.append(Transform(f"AES_CCM_{icv}_{bits}", "ccm", bits, icv=icv))
        found.append(Transform(f"NULL_AUTH_AES_GMAC_{bits}", "gmac", bits, icv=16))
        found.append(Transform(f"AH/AES_{bits}_GMAC", "ah-gmac", bits, icv=16))
    found.append(Transform("CHACHA20_POLY1305", "chacha", 256, icv=16))
    found.append(Transform("AES_GCM_16_IIV_128", "gcm", 128, icv=16, implicit_iv=True))
    found.append(Transform("AES_GCM_16_IIV_256", "gcm", 256, icv=16, implicit_iv=True))
    found.append(Transform("AES_CCM_8_IIV_128", "ccm", 128, icv=8, implicit_iv=True))
    found.append(Transform("AES_CCM_8_IIV_256", "ccm", 256, icv=8, implicit_iv=True))
    found.append(Transform("CHACHA20_POLY1305_IIV", "chacha", 256, icv=16, implicit_iv=True))
    modern = [name for name in INTEGRITY if name != "HMAC_MD5_96"]
    for index, integrity in enumerate(modern):
        # Every key length and every integrity algorithm; not every combination of both.
        bits = (128, 192, 256)[index % 3]
        found.append(Transform(f"AES_CBC_{bits}/{integrity}", "aes-cbc", bits, integrity))
        bits = (256, 128, 192)[index % 3]
        found.append(Transform(f"AES_CTR_{bits}/{integrity}", "ctr", bits, integrity))
        found.append(Transform(f"NULL/{integrity}", "null", 0, integrity))
    found.append(Transform("AES_CBC_256/HMAC_SHA2_256_128", "aes-cbc", 256, "HMAC_SHA2_256_128"))
    for integrity in ("HMAC_MD5_96", "HMAC_SHA1_96"):
        found.append(Transform(f"DES/{integrity}", "des", 64, integrity))
        found.append(Transform(f"3DES/{integrity}", "3des", 192, integrity))
    found.append(Transform("NULL/HMAC_MD5_96", "null", 0, "HMAC_MD5_96"))
    found += [Transform(f"AH/{name}", integrity=name) for name in INTEGRITY]
    # Each cipher and mode once; generate_self_test.py has every key length.
    found += map(finalist_transform, FINALISTS, (128, 192, 256, 256, 192, 128))
    return found
