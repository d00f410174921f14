"""Runs the in-process benches of this checkout and of another one in turns on one core. Writes a record of the
ratios.

The other checkout is usually a worktree of an earlier commit: git worktree add ../before COMMIT
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from commit import commit
from record import Bench
from setups import ROOT

WHAT = "core cycles a packet, this checkout's bench and another's in turns on one core"
# The package of each bench.
BENCHES = {"walk": "esplanade-ipsec", "path": "esplanade-ipsec"}
# The measured fields. The other fields name the case.
MEASURED = {"cycles_min", "cycles_median", "repetitions", "samples", "mpps", "gbit_s"}


def built(checkout: Path, package: str, name: str) -> Path:
    """Builds the bench in that checkout and returns its binary."""
    command = ["cargo", "bench", "--locked", "--package", package, "--bench", name, "--no-run", "--message-format=json"]
    lines = subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = [message["executable"] for message in map(json.loads, lines)
             if message.get("executable") and message["target"]["name"] == name]
    return Path(found[-1])


def cases(program: Path, checkout: Path) -> dict[str, float]:
    """The median cycles of each case, as the program prints them."""
    printed = subprocess.run([program, "--bench"], cwd=checkout, check=True, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in printed.stdout.splitlines() if line.startswith("{")]
    return {" ".join(f"{key}={value}" for key, value in row.items() if key not in MEASURED): row["cycles_median"]
            for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--benches", default=",".join(BENCHES), help="some of these, with commas between")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()

    bench = Bench("", "compare", f"bench/compare.py BEFORE --benches {options.benches} --rounds {options.rounds}")
    checkouts = {"now": ROOT, "before": options.before.resolve()}
    programs = {name: {which: built(checkout, BENCHES[name], name) for which, checkout in checkouts.items()}
                for name in options.benches.split(",")}
    os.sched_setaffinity(0, {options.cpu})
    taken: dict[str, dict[str, list[float]]] = {}
    for round_ in range(options.rounds):
        for name, both in programs.items():
            # The order alternates, so that neither checkout always has the warmer clock.
            for which in sorted(both, reverse=round_ % 2 == 1):
                print(f"round {round_ + 1} of {options.rounds}: {name}, {which}", file=sys.stderr)
                for case, cycles in cases(both[which], checkouts[which]).items():
                    taken.setdefault(case, {}).setdefault(which, []).append(cycles)
    rows = []
    for case, both in taken.items():
        if len(both) == 2:
            now, before = (round(statistics.median(both[which]), 1) for which in ("now", "before"))
            rows.append({"case": case, "now": now, "before": before, "ratio": round(now / before, 3)})
            print(f"{case}: {now} now, {before} before, ratio {now / before:.2f}")
    print(f"median of the ratios: {statistics.median(row['ratio'] for row in rows):.3f}")
    if not options.no_record:
        bench.write(WHAT, {"before": commit(checkouts["before"]), "rounds": options.rounds, "cases": rows})


if __name__ == "__main__":
    main()
