#!/usr/bin/env python3
"""Writes vectors/ace/*.json: known answers of the five AES finalists, from the model in ace_ciphers.py.

    generate_ace.py            writes the files
    generate_ace.py check      holds them and the model against Crypto++ (libcrypto++-dev)

The published answers are typed here with their sources; the model must give them. The variable-key and variable-text
cases are those of the NIST submissions (ecb_vk, ecb_vt), with the bytes in the order of the field's libraries; of keys
longer than 128 bits only every eighth bit is taken. A chain encrypts its own result, as the submissions' Monte Carlo
test (ecb_e_m) does within one key, for fewer steps.
"""

import json
import pathlib
import random
import sys
import tempfile

import ace_ciphers
import ace_oracle

HERE = pathlib.Path(__file__).parent / "ace"
CHAIN = 50

# name: (source, [(key, plaintext, ciphertext)])
PUBLISHED = {
    "rijndael": [
        ("FIPS 197, appendix C", [
            ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
            ("000102030405060708090a0b0c0d0e0f1011121314151617", "00112233445566778899aabbccddeeff", "dda97ca4864cdfe06eaf70a0ec0d7191"),
            ("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "00112233445566778899aabbccddeeff", "8ea2b7ca516745bfeafc49904b496089"),
        ]),
        ("FIPS 197, appendix B", [
            ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
        ]),
    ],
    "serpent": [
        ("Serpent's AES submission, as in Crypto++'s serpentv.dat", [
            ("80000000000000000000000000000000", "00000000000000000000000000000000", "264e5481eff42a4606abda06c0bfda3d"),
            ("00000000000000000000000000000000", "d29d576fcea3a3a7ed9099f29273d78e", "b2288b968ae8b08648d1ce9606fd992d"),
            ("ffeeddccbbaa99887766554433221100", "1032547698badcfeefcdab8967452301", "d5baa00a4bb9d8a7c981c8dc90d89d92"),
            ("000000000000000000000000000000000000000000000000", "d29d576fceaba3a7ed9899f2927bd78e", "130e353e1037c22405e8faefb2c3c3e9"),
            ("8899aabbccddeeffffeeddccbbaa99887766554433221100", "1032547698badcfeefcdab8967452301", "da860842b720802bf404a4c71034879a"),
            ("000102030405060708090a0b0c0d0e0f1011121314151617", "4528caccb954d450655e8cfd71cbfac7", "00112233445566778899aabbccddeeff"),
            ("0000000000000000000000000000000000000000000000000000000000000000", "92074732d84e1841a013a0034c52bf50", "81c4eb7b8ad9a8d0f2aa5d7bd626b560"),
            ("00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100", "1032547698badcfeefcdab8967452301", "93df9a3cafe387bd999eebe393a17fca"),
            ("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "3da46ffa6f4d6f30cd258333e5a61369", "00112233445566778899aabbccddeeff"),
        ]),
    ],
    "twofish": [
        ("Twofish paper, appendix A and table of its ecb_tbl", [
            ("00000000000000000000000000000000", "00000000000000000000000000000000", "9f589f5cf6122c32b6bfec2f2ae8c35a"),
            ("00000000000000000000000000000000", "9f589f5cf6122c32b6bfec2f2ae8c35a", "d491db16e7b1c39e86cb086b789f5419"),
            ("9f589f5cf6122c32b6bfec2f2ae8c35a", "d491db16e7b1c39e86cb086b789f5419", "019f9809de1711858faac3a3ba20fbc3"),
            ("d491db16e7b1c39e86cb086b789f5419", "019f9809de1711858faac3a3ba20fbc3", "6363977de839486297e661c6c9d668eb"),
            ("0123456789abcdeffedcba98765432100011223344556677", "00000000000000000000000000000000", "cfd1d2e5a9be9cdf501f13b892bd2248"),
            ("88b2b2706b105e36b446bb6d731a1e88efa71f788965bd44", "39da69d6ba4997d585b6dc073ca341b2", "182b02d81497ea45f9daacdc29193a65"),
            ("0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff", "00000000000000000000000000000000", "37527be0052334b89f0cfccae87cfa20"),
            ("d43bb7556ea32e46f2a282b7d45b4e0d57ff739d4dc92c1bd7fc01700cc8216f", "90afe91bb288544f2c32dc239b2635e6", "6cb4561c40bf0a9705931cb6d408e7fa"),
        ]),
    ],
    "rc6": [
        ("RC6 paper, appendix", [
            ("00000000000000000000000000000000", "00000000000000000000000000000000", "8fc3a53656b1f778c129df4e9848a41e"),
            ("0123456789abcdef0112233445566778", "02132435465768798a9bacbdcedfe0f1", "524e192f4715c6231f51f6367ea43f18"),
            ("000000000000000000000000000000000000000000000000", "00000000000000000000000000000000", "6cd61bcb190b30384e8a3f168690ae82"),
            ("0123456789abcdef0112233445566778899aabbccddeeff0", "02132435465768798a9bacbdcedfe0f1", "688329d019e505041e52e92af95291d4"),
            ("0000000000000000000000000000000000000000000000000000000000000000", "00000000000000000000000000000000", "8f5fbd0510d15fa893fa3fda6e857ec2"),
            ("0123456789abcdef0112233445566778899aabbccddeeff01032547698badcfe", "02132435465768798a9bacbdcedfe0f1", "c8241816f0d7e48920ad16a1674e5d48"),
        ]),
    ],
    "mars": [
        ("IBM's submission for the second AES round, as in Crypto++'s mars.txt", [
            ("80000000000000000000000000000000", "00000000000000000000000000000000", "b3e2ad5608ac1b6733a7cb4fdf8f9952"),
            ("00000000000000000000000000000000", "00000000000000000000000000000000", "dcc07b8dfb0738d6e30a22dfcf27e886"),
            ("00000000000000000000000000000000", "dcc07b8dfb0738d6e30a22dfcf27e886", "33caffbddc7f1dda0f9c15fa2f30e2ff"),
            ("cb14a1776abbc1cdafe7243def2cea02", "f94512a9b42d034ec4792204d708a69b", "225da2cb64b73f79069f21a5e3cb8522"),
            ("86edf4da31824cabef6a4637c40b0bab", "4df955ad5b398d66408d620a2b27e1a9", "a4b737340ae6d2cafd930ba97d86129f"),
            ("000000000000000000000000000000000000000000000000", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "97778747d60e425c2b4202599db856fb"),
            ("d158860838874d9500000000000000000000000000000000", "93a953a82c10411dd158860838874d95", "4fa0e5f64893131712f01408d233e9f7"),
            ("791739a58b04581a93a953a82c10411dd158860838874d95", "6761c42d3e6142d2a84fbfadb383158f", "f706bc0fd97e28b6f1af4e17d8755fff"),
            ("0000000000000000000000000000000000000000000000000000000000000000", "62e45b4cf3477f1dd65063729d9aba8f", "0f4b897ea014d21fbc20f1054a42f719"),
            ("fba167983e7aef22317ce28c02aae1a3e8e5cc3cedbea82a99dbc39ad65e7227", "1344aba4d3c44708a8a72116d4f49384", "458335d95ea42a9f4dccd41aecc2390d"),
        ]),
    ],
}  # fmt: skip


def single_bit(length, bit):
    return (1 << 8 * length - 1 - bit).to_bytes(length, "big")


def cases(name):
    """Every case of a file; `chain` is how often the result is encrypted again."""
    for source, answers in PUBLISHED[name]:
        for i, (key, text, cipher) in enumerate(answers):
            assert ace_ciphers.encrypt(name, bytes.fromhex(key), bytes.fromhex(text)).hex() == cipher, (name, source, i)
            yield {"name": f"published {i}", "source": source, "key": key, "input": text, "output": cipher}
    for length, step in ((16, 1), (24, 8), (32, 8)):
        for bit in range(0, 8 * length, step):
            yield computed(name, f"variable key {8 * length} {bit}", single_bit(length, bit), bytes(16))
        for bit in range(0, 128, step):
            yield computed(name, f"variable text {8 * length} {bit}", bytes(length), single_bit(16, bit))
        yield computed(name, f"chain {8 * length}", bytes(length), bytes(16), CHAIN)


def computed(name, title, key, text, chain=1):
    result = text
    for _ in range(chain):
        result = ace_ciphers.encrypt(name, key, result)
    return {"name": title, "key": key.hex(), "input": text.hex(), "output": result.hex(), **({"chain": chain} if chain > 1 else {})}


def write():
    HERE.mkdir(exist_ok=True)
    for name in ace_ciphers.NAMES:
        found = list(cases(name))
        head = {"source": "ace_ciphers.py, checked against Crypto++ 8.7; cases with a source of their own are published ones", "algorithm": name}
        lines = ",\n".join("  " + json.dumps(case) for case in found)
        (HERE / f"{name}.json").write_text(json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n ]\n}\n")
        print(f"{name}: {len(found)} cases")


def check(oracle):
    """Every case of the files, and the model on random keys and blocks, in both directions."""
    source = random.Random(1)
    for name in ace_ciphers.NAMES:
        for case in json.loads((HERE / f"{name}.json").read_text())["cases"]:
            key, result = bytes.fromhex(case["key"]), bytes.fromhex(case["input"])
            for _ in range(case.get("chain", 1)):
                result = oracle(name, key, result, True)
            assert result.hex() == case["output"], (name, case["name"])
        for _ in range(100):
            key, block = source.randbytes(source.choice((16, 24, 32))), source.randbytes(16)
            assert ace_ciphers.encrypt(name, key, block) == oracle(name, key, block, True), name
            assert ace_ciphers.decrypt(name, key, block) == oracle(name, key, block, False), name


def main():
    if sys.argv[1:] != ["check"]:
        write()
        return
    with tempfile.TemporaryDirectory() as scratch:
        oracle = ace_oracle.load(scratch)
        if oracle is None:
            print("SKIP ace: no Crypto++ (tools/deps.sh installs libcrypto++-dev)")
            return
        check(oracle)
    print("ok")


if __name__ == "__main__":
    main()
