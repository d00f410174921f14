#!/usr/bin/env python3
"""Fills and checks vectors/primitives.

  primitives.py import WYCHEPROOF CRYPTOGRAPHY_VECTORS   writes the files made from others' collections
  primitives.py check                                    computes every case with pyca/cryptography

WYCHEPROOF is the directory of Wycheproof's *_test.json; CRYPTOGRAPHY_VECTORS that of the Python package
cryptography_vectors. Only what IPsec can use is kept: keys, nonces and tags of its lengths. The rfc*.json
files that are not written here were typed from the RFCs.
"""

import hmac
import json
import pathlib
import re
import sys

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

from packet_oracle import aes_cmac, aes_xcbc

HERE = pathlib.Path(__file__).parent / "primitives"


def write(name, source, licence, algorithm, cases):
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    head = {"source": source, "licence": licence, "algorithm": algorithm}
    text = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n ]\n}\n"
    (HERE / name).write_text(text)
    print(f"{name}: {len(cases)} cases")


# Wycheproof file, algorithm, and which groups fit.
WYCHEPROOF = [
    ("aes_gcm", "AES-GCM", lambda g: g["ivSize"] == 96 and g["tagSize"] == 128),
    ("aes_ccm", "AES-CCM", lambda g: g["ivSize"] == 88 and g["tagSize"] in (64, 96, 128)),
    ("aes_gmac", "AES-GMAC", lambda g: g["ivSize"] == 96 and g["tagSize"] == 128),
    ("aes_cmac", "AES-CMAC", lambda g: g["keySize"] == 128),
    ("chacha20_poly1305", "ChaCha20-Poly1305", lambda g: g["ivSize"] == 96),
    ("hmac_sha1", "HMAC-SHA1", lambda g: g["keySize"] <= 512),
    ("hmac_sha256", "HMAC-SHA256", lambda g: g["keySize"] <= 512),
    ("hmac_sha384", "HMAC-SHA384", lambda g: g["keySize"] <= 1024),
    ("hmac_sha512", "HMAC-SHA512", lambda g: g["keySize"] <= 1024),
]


def import_wycheproof(directory):
    for name, algorithm, fits in WYCHEPROOF:
        data = json.loads((directory / f"{name}_test.json").read_text())
        cases = []
        for group in filter(fits, data["testGroups"]):
            for test in group["tests"]:
                case = {"name": f"{test['tcId']} {test['comment']}".strip(), "key": test["key"]}
                if "iv" in test:
                    case["iv"] = test["iv"]
                if "aad" in test:
                    case["aad"] = test["aad"]
                case["input"] = test["msg"]
                if "ct" in test:
                    case["output"] = test["ct"]
                case["icv"] = test["tag"]
                if test["result"] == "invalid":
                    case["valid"] = False
                cases.append(case)
        source = f"Wycheproof {data['generatorVersion']}, {name}_test.json, trimmed to the lengths of IPsec"
        write(f"wycheproof-{name.replace('_', '-')}.json", source, "Apache-2.0", algorithm, cases)


def blocks(text):
    """The KEY = VALUE groups of a NIST or RFC file; values of enclosing sections hold on."""
    outer, case = {}, {}
    for line in text.splitlines() + [""]:
        line = line.strip()
        match = re.fullmatch(r"\[?(\w+) = (\w*)\]?", line)
        if match and line.startswith("["):
            outer[match[1].upper()] = match[2]
        elif match:
            case[match[1].upper()] = match[2]
        elif not line and case:
            yield {**outer, **case}
            case = {}


def import_cryptography(directory):
    licence = "Apache-2.0 OR BSD-3-Clause"
    package = "as in cryptography_vectors"
    cases = []
    for bits in (128, 192, 256):
        text = (directory / f"ciphers/AES/CTR/aes-{bits}-ctr.txt").read_text()
        for case in blocks(text):
            if "KEY" in case:
                cases.append({"name": f"{bits} bits, {case['COUNT']}", "key": case["KEY"].lower(), "iv": case["IV"].lower(),
                              "input": case["PLAINTEXT"].lower(), "output": case["CIPHERTEXT"].lower()})
    write("rfc3686-aes-ctr.json", f"RFC 3686 section 6, {package}; iv is the first counter block", licence, "AES-CTR", cases)
    for name in ("md5", "sha1"):
        text = (directory / f"HMAC/rfc-2202-{name}.txt").read_text()
        cases = [{"name": f"case {n + 1}", "key": case["KEY"], "input": case["MSG"], "icv": case["MD"]}
                 for n, case in enumerate(case for case in hmac_cases(text)) if len(case["KEY"]) <= 128]
        rfc = {"md5": 2403, "sha1": 2404}[name]
        write(f"rfc2202-hmac-{name}.json", f"RFC 2202 (cited by RFC {rfc}), {package}, without keys longer than a block", licence, f"HMAC-{name.upper()}", cases)
    cases = []
    for bits in (128, 192, 256):
        text = (directory / f"ciphers/AES/CCM/VNT{bits}.rsp").read_text()
        key, nlen = None, None
        for line in text.splitlines():
            match = re.fullmatch(r"\[?(\w+) = (\w+)\]?", line.strip())
            if not match:
                continue
            field, value = match.groups()
            if field == "Nlen":
                nlen = int(value)
            elif field == "Key":
                key = value
            elif field == "Count":
                fields = {"name": f"VNT{bits} {value}", "key": key}
            elif field in ("Nonce", "Adata", "Payload"):
                fields[{"Nonce": "iv", "Adata": "aad", "Payload": "input"}[field]] = value
            elif field == "CT" and nlen == 11:
                fields["output"], fields["icv"] = value[:-32], value[-32:]
                cases.append(fields)
    write("nist-aes-ccm.json", f"NIST CAVS 11.0 CCM-VNT, nonces of 11 bytes (RFC 4309), {package}", licence, "AES-CCM", cases)


def import_des(directory):
    for name, algorithm, keys in (("1", "DES-CBC", ("KEY1",)), ("3", "3DES-CBC", ("KEY1", "KEY2", "KEY3"))):
        cases = []
        for case in blocks((directory / f"ciphers/3DES/CBC/TCBCMMT{name}.rsp").read_text()):
            if "PLAINTEXT" in case:
                cases.append({"name": f"TCBCMMT{name} {len(cases)}", "key": "".join(case[key] for key in keys),
                              "iv": case["IV"], "input": case["PLAINTEXT"], "output": case["CIPHERTEXT"]})
        write(f"nist-{algorithm.lower()}.json", f"NIST CAVS TCBCMMT{name}, as in cryptography_vectors",
              "Apache-2.0 OR BSD-3-Clause", algorithm, cases)


def hmac_cases(text):
    case = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+) = (\w+)", line.strip())
        if match:
            case[match[1].upper()] = match[2]
            if match[1] == "MD":
                yield case
                case = {}


def compute(algorithm, key, iv, aad, plain, icv_len):
    """Ciphertext and tag."""
    if algorithm in ("AES-GCM", "AES-GMAC", "ChaCha20-Poly1305", "AES-CCM"):
        if algorithm == "AES-GMAC":
            aad, plain = plain, b""
        aead = {"AES-GCM": AESGCM, "AES-GMAC": AESGCM, "ChaCha20-Poly1305": ChaCha20Poly1305,
                "AES-CCM": lambda key: AESCCM(key, tag_length=icv_len)}[algorithm](key)
        sealed = aead.encrypt(iv, plain, aad)
        return sealed[: len(plain)], sealed[len(plain) :]
    if algorithm in ("DES-CBC", "3DES-CBC"):
        encryptor = Cipher(TripleDES(key * (24 // len(key))), modes.CBC(iv)).encryptor()
        return encryptor.update(plain) + encryptor.finalize(), b""
    if algorithm in ("AES-CTR", "AES-CBC"):
        mode = {"AES-CTR": modes.CTR, "AES-CBC": modes.CBC}[algorithm](iv)
        encryptor = Cipher(algorithms.AES(key), mode).encryptor()
        return encryptor.update(plain) + encryptor.finalize(), b""
    if algorithm in ("AES-XCBC", "AES-CMAC"):
        mac = {"AES-XCBC": aes_xcbc, "AES-CMAC": aes_cmac}[algorithm](key, plain)
    else:
        mac = hmac.new(key, plain, algorithm.removeprefix("HMAC-").lower()).digest()
    return b"", mac[:icv_len]


def check():
    for path in sorted(HERE.glob("*.json")):
        file = json.loads(path.read_text())
        for case in file["cases"]:
            field = lambda name: bytes.fromhex(case.get(name, ""))
            tag = field("icv")
            made = compute(file["algorithm"], field("key"), field("iv"), field("aad"), field("input"), len(tag))
            same = made == (field("output"), tag)
            assert same == case.get("valid", True), (path.name, case["name"])
        print(f"{path.name}: {len(file['cases'])} cases agree")


def main():
    if sys.argv[1:2] == ["import"] and len(sys.argv) == 4:
        import_wycheproof(pathlib.Path(sys.argv[2]))
        import_cryptography(pathlib.Path(sys.argv[3]))
        import_des(pathlib.Path(sys.argv[3]))
    elif sys.argv[1:] == ["check"]:
        check()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
