"""Times the CPU engine with the suites and packets of VPN-AB's table II and 10,000 keys, sealing and opening, alone on one
core and then on two cores at once; then both walks around it with 10,000 SAs. Takes two minutes on an idle machine, without
compiling. Writes a record, which bench/papers.py shows beside the paper.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from engine import collect
from paper_tables import VPN_AB, VPN_AB_SIZES, VPN_AB_TUNNELS
from record import Bench

WHAT = ("core cycles to seal and to open one tunnelled packet in batches, with keys in random order: the CPU engine by tier, on one "
        "core, and on two cores that do the same at the same time; and those of the walks around it, on one core")
CORES = 2
ARGUMENTS = ["--packets", "--suites", ",".join(VPN_AB), "--sizes", ",".join(VPN_AB_SIZES), "--keys", str(VPN_AB_TUNNELS),
             "--batches", "128", "--samples", "15"]  # fmt: skip
# Outbound each packet finds one of as many policies; inbound it finds its SA by the SPI.
WALKS = tuple(f"{direction} 64 bytes {VPN_AB_TUNNELS} SAs {policies} policies" for direction, policies in (("outbound", VPN_AB_TUNNELS), ("inbound", 1)))


def pinned(bench: Bench, cpu: int, arguments: list[str]) -> list[dict]:
    """The lines of one core. Only this thread is pinned, and the bench that it starts."""
    os.sched_setaffinity(0, {cpu})
    return bench.cases(arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case-ms", type=int, default=1000, help="milliseconds for a case of the engine")
    parser.add_argument("--repetitions", type=int, default=200, help="of a walk")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    arguments = [*ARGUMENTS, "--case-ms", str(options.case_ms)]
    bench = Bench("esplanade-crypto", "engine", f"bench/vpn_ab.py (engine {' '.join(arguments)})")
    if not options.no_record and bench.commit().endswith("-dirty"):
        sys.exit("a record is of a commit: commit the changes first, or say --no-record")
    cpus = sorted(os.sched_getaffinity(0))[-CORES:]
    wanted = [cpus[-1:], cpus] if len(cpus) == CORES else [cpus]
    if len(wanted) == 1:
        print(f"SKIP {CORES} cores: this machine has one")
    walk = Bench("esplanade-ipsec", "walk")
    for each in (bench, walk):
        each.build()
    cases, walks = [], []
    for used in wanted:
        with ThreadPoolExecutor(len(used)) as threads:
            for cpu, rows in zip(used, threads.map(lambda cpu: pinned(bench, cpu, arguments), used)):
                found, _ = collect([row for row in rows if "who" in row])
                cases += [{"cores": len(used), "cpu": cpu} | case for case in found]
    for name in WALKS:
        with ThreadPoolExecutor(1) as thread:
            walks += thread.submit(pinned, walk, cpus[-1], ["--cases", name, "--repetitions", str(options.repetitions)]).result()
    bench.name = "vpn-ab"
    if not options.no_record:
        bench.write(WHAT, {"cases": cases, "walks": walks})


if __name__ == "__main__":
    main()
