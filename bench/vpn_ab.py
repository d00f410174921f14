"""Times the CPU engine with the suites and sizes of VPN-AB's table II and 10,000 keys, alone on one core and then on two
cores at once. Writes a record, which bench/papers.py shows beside the paper."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from engine import collect
from paper_tables import VPN_AB, VPN_AB_SIZES, VPN_AB_TUNNELS
from record import Bench

WHAT = ("core cycles to seal and to open one packet in batches, with keys in random order: the CPU engine by tier, on one core, "
        "and on two cores that do the same at the same time")
CORES = 2
ARGUMENTS = ["--suites", ",".join(VPN_AB), "--sizes", ",".join(VPN_AB_SIZES), "--keys", str(VPN_AB_TUNNELS), "--batches", "128",
             "--samples", "15", "--case-ms", "1000"]  # fmt: skip


def pinned(bench: Bench, cpu: int) -> list[dict]:
    """The cases of one core. Only this thread is pinned, and the bench that it starts."""
    os.sched_setaffinity(0, {cpu})
    cases, _ = collect([row for row in bench.cases(ARGUMENTS) if "who" in row])
    return cases


def main() -> None:
    cpus = sorted(os.sched_getaffinity(0))[-CORES:]
    wanted = [cpus[-1:], cpus] if len(cpus) == CORES else [cpus]
    if len(wanted) == 1:
        print(f"SKIP {CORES} cores: this machine has one")
    bench = Bench("esplanade-crypto", "engine", f"bench/vpn_ab.py (engine {' '.join(ARGUMENTS)})")
    bench.build()
    cases = []
    for used in wanted:
        with ThreadPoolExecutor(len(used)) as threads:
            for cpu, found in zip(used, threads.map(lambda cpu: pinned(bench, cpu), used)):
                cases += [{"cores": len(used), "cpu": cpu} | case for case in found]
    bench.name = "vpn-ab"
    bench.write(WHAT, {"cases": cases})


if __name__ == "__main__":
    main()
