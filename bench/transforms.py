"""Core cycles that the CPU engine takes to seal and open a packet with each transform; writes a record."""

from record import Bench

WHAT = "core cycles to seal and to open one packet of each transform on the CPU engine (opening: with a copy of it); one core"

if __name__ == "__main__":
    bench = Bench("esplanade-crypto", "transforms")
    bench.write(WHAT, {"cases": bench.cases()})
