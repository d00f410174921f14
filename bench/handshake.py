"""Counts full IKE_SA_INIT and IKE_AUTH handshakes per second, in process: on one core and on two. Writes a record."""

import os

from record import Bench

WHAT = ("IKE_SA_INIT + IKE_AUTH per second, X25519, AES-GCM-128, both ends in one process; with a pre-shared key, and with an "
        "ECDSA P-256 certificate of one end. `threads` run the work with public keys; without any the endpoints run it themselves")
# Cores, and threads of the pool.
RUNS = [(1, 0), (1, 1), (2, 2)]

if __name__ == "__main__":
    bench = Bench("esplanade-ike", "handshake")
    bench.build()
    usable = sorted(os.sched_getaffinity(0))
    results = []
    for cores, threads in RUNS:
        if cores > len(usable):
            print(f"left out, as there are not {cores} cores: {threads} threads")
            continue
        os.sched_setaffinity(0, usable[:cores])
        for case in bench.cases(["--threads", str(threads)]):
            results.append({"cores": cores, **case})
    os.sched_setaffinity(0, usable)
    bench.write(WHAT, {"rounds": 5, "handshakes_s": results}, how=" -- --threads N")
