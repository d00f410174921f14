"""Counts full IKE_SA_INIT and IKE_AUTH handshakes per second and core, in process. Writes a record."""

import re
import sys

from record import Bench

WHAT = "IKE_SA_INIT + IKE_AUTH per second, PSK, X25519, AES-GCM-128; initiator and responder on one core"

if __name__ == "__main__":
    bench = Bench("esplanade-ike", "handshake")
    printed = bench.run()
    found = re.search(r"median (\d+), best (\d+)", printed)
    if not found:
        sys.exit(f"no rates in: {printed[-500:]}")
    bench.write(WHAT, {"handshakes_s": {"median": int(found[1]), "best": int(found[2]), "rounds": 5}})
