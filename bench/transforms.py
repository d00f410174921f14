"""Times the CPU engine with each transform: core cycles to seal and to open a packet. Writes a record."""

from record import Bench

WHAT = "core cycles to seal and to open one packet of each transform on the CPU engine (opening: with a copy of it); one core"

if __name__ == "__main__":
    bench = Bench("esplanade-crypto", "transforms")
    bench.write(WHAT, {"cases": bench.cases()})
