"""Times the ciphers of the ACE paper on the CPU engine, for the software column of its tables. Writes a record.

Counter mode and HMAC-SHA2-256 with keys of 128 bits: core cycles to expand both keys, and to seal one packet at a time.
"""

from paper_tables import CIPHERS
from record import Bench

WHAT = "core cycles to expand a key, and to seal and to open one packet, of the ACE paper's ciphers on the CPU engine; one core"
NAMES = {"RIJNDAEL": "AES"}


def transform(cipher: str) -> str:
    return f"{NAMES.get(cipher.upper(), cipher.upper())}_CTR_128/HMAC_SHA2_256_128"


if __name__ == "__main__":
    bench = Bench("esplanade-crypto", "transforms", "bench/ace_software.py")
    bench.build()
    cases = [case for cipher in CIPHERS for case in bench.cases([transform(cipher.name)])]
    bench.name = "ace-software"
    bench.write(WHAT, {"cases": cases})
