#!/usr/bin/env python3
"""Writes vectors/esp/self-test.txt: known ESP and AH packets of every transform, with and without ESN.

The packets are sealed by packet_oracle.py (pyca/cryptography, OpenSSL, ace_ciphers.py), independent of aws-lc.
The file is text without JSON because the crypto crate embeds it.
"""

import pathlib
import struct

from packet_oracle import FINALISTS, INTEGRITY, Transform, check_primitives, finalist_transform, stream

SPI = 0x01234567


def transforms():
    for bits in (128, 192, 256):
        for icv in (16, 12, 8):
            yield Transform(f"AES_GCM_{icv}_{bits}", "gcm", bits, icv=icv)
            yield Transform(f"AES_CCM_{icv}_{bits}", "ccm", bits, icv=icv)
        yield Transform(f"AES_GCM_16_IIV_{bits}", "gcm", bits, icv=16, implicit_iv=True)
        yield Transform(f"AES_CCM_8_IIV_{bits}", "ccm", bits, icv=8, implicit_iv=True)
        yield Transform(f"NULL_AUTH_AES_GMAC_{bits}", "gmac", bits, icv=16)
        yield Transform(f"AH/AES_{bits}_GMAC", "ah-gmac", bits, icv=16)
    yield Transform("CHACHA20_POLY1305", "chacha", 256, icv=16)
    yield Transform("CHACHA20_POLY1305_IIV", "chacha", 256, icv=16, implicit_iv=True)
    for integrity in INTEGRITY:
        for bits in (128, 192, 256):
            yield Transform(f"AES_CBC_{bits}/{integrity}", "aes-cbc", bits, integrity)
            yield Transform(f"AES_CTR_{bits}/{integrity}", "ctr", bits, integrity)
        yield Transform(f"NULL/{integrity}", "null", 0, integrity)
        yield Transform(f"DES/{integrity}", "des", 64, integrity)
        yield Transform(f"3DES/{integrity}", "3des", 192, integrity)
        yield Transform(f"AH/{integrity}", integrity=integrity)
    for cipher in FINALISTS:
        for bits in (128, 192, 256):
            yield finalist_transform(cipher, bits)


def esp(transform, key, esn, sequence):
    body = stream(transform.name + "body", 32)
    sealed = transform.seal_esp(key, SPI, esn, sequence, body)
    begin = 8 + transform.iv_len
    return 0, sealed[:begin] + body + bytes(transform.icv_len), sealed


def ah(transform, key, esn, sequence):
    payload = stream(transform.name + "payload", 32)
    length = 20 + transform.ah_len(4) + len(payload)
    # All mutable fields are zero.
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, length, 7, 0, 0, 51, 0, b"\x0a\1\2\3", b"\x0a\4\5\6")
    sealed = header + transform.seal_ah(key, SPI, esn, sequence, 4, header, 17, payload) + payload
    icv = 20 + 12 + transform.iv_len
    end = icv + transform.icv_len
    return icv, sealed[:icv] + bytes(transform.icv_len) + sealed[end:], sealed


def main():
    check_primitives()
    lines = ["# source: vectors/generate_self_test.py (pyca/cryptography, OpenSSL, ace_ciphers.py)",
             "# transform esn sequence ah-icv-offset key-material unsealed sealed"]
    for transform in sorted(transforms(), key=lambda t: t.name):
        key = stream(transform.name + "key", transform.key_len)
        for esn, sequence in ((False, 7), (True, 0x1_0000_0005)):
            make = ah if transform.protocol == "ah" else esp
            icv, unsealed, sealed = make(transform, key, esn, sequence)
            flag = "esn" if esn else "noesn"
            lines.append(f"{transform.name} {flag} {sequence} {icv} {key.hex()} {unsealed.hex()} {sealed.hex()}")
    path = pathlib.Path(__file__).parent / "esp" / "self-test.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
