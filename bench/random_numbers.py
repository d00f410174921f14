"""Times the random numbers of IKE's nonces, cookies and identifiers: Mbit/s by the size of a request, on one core. Takes ten
seconds without compiling. Writes a record."""

import os

from record import Bench

WHAT = "Mbit/s of random numbers as IKE takes them, from the cryptographic library's generator, by the bytes of a request; one core"

if __name__ == "__main__":
    bench = Bench("esplanade-ike", "random", "bench/random_numbers.py")
    bench.build()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bench.write(WHAT, {"cases": bench.cases()})
