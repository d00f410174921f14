"""Times both walks in core cycles, with an engine that does nothing. Writes a record."""

from record import Bench

WHAT = "core cycles a packet without crypto: parse, policy, SA, sequence number, headers, batch, finish; one core"

if __name__ == "__main__":
    bench = Bench("esplanade-ipsec", "walk")
    bench.write(WHAT, {"cases": bench.cases()})
