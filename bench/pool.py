"""Measures the cost of a late engine: round trips, TCP and CPU time with `engine = pool` and artificial delays,
beside `engine = cpu`. Also measures the cost of changing a child's engine under load. Writes a record."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from record import Bench
from setups import EsplanadePair

WHAT = "one tunnel with the CPU engine in the workers and in helper threads that hold every batch for some time"
# The delays in milliseconds; None is `engine = cpu`. The last delay resembles an engine that stands still, but is not
# lost.
DELAYS = [None, 0, 1, 5, 400]
STALLED = DELAYS[-1]
# The delays that are measured while the engine changes under load.
SWAPPED = [0, 1]
SWAPS, SWAPS_A_SECOND = 100, 10


class Pair(EsplanadePair):
    delay: int | None = None
    # The CPU engine comes first, and the pool runs beside it.
    beside = False

    def make(self, end, space):
        made = super().make(end, space)
        if self.delay is not None:
            made.gateway.update(engine="cpu" if self.beside else "pool", trial=f"pool-delay-ms={self.delay}", pool_threads=2)
        return made


def ping_ms(pair: Pair, count: int) -> dict[str, float]:
    """Round trips in milliseconds, one after the other. Each passes through four engines."""
    done = pair.a.run(["ping", "-n", "-i", "0.01", "-c", count, "-I", pair.address_a, pair.address_b],
                      check=False, timeout=120)
    times = sorted(float(value) for value in re.findall(r"time=([\d.]+)", done.stdout))
    return {"sent": count, "back": len(times), "median_ms": statistics.median(times) if times else None}


def cores(pair: Pair, seconds: float, argv: list | None = None) -> float:
    """The cores that both gateways use together, while they are idle or a command runs."""
    cpu, clock = pair.cpu_seconds(), time.monotonic()
    if argv:
        pair.a.run(argv, check=False, timeout=seconds + 30)
    else:
        time.sleep(seconds)
    return round((pair.cpu_seconds() - cpu) / (time.monotonic() - clock), 4)


def tcp_gbit_s(pair: Pair, seconds: float) -> float:
    return round(pair.iperf3(seconds)["sum_received"]["bits_per_second"] / 1e9, 3)


def measure(pair: Pair, rounds: int) -> dict[str, object]:
    row: dict[str, object] = {"engine": "cpu" if pair.delay is None else "pool", "delay_ms": pair.delay or 0}
    row["idle_cores"] = cores(pair, 3)
    if pair.delay == STALLED:
        flood = ["iperf3", "-c", pair.address_b, "-B", pair.address_a, "-u", "-b", "20M", "-l", "1200", "-t", "5"]
        row["loaded_cores"] = cores(pair, 5, flood)
    else:
        row["ping"] = ping_ms(pair, 200)
        row["tcp_gbit_s"] = statistics.median(tcp_gbit_s(pair, 3) for _ in range(rounds))
        row["engine_failed"] = sum(end.counter("drops.engine-failed") for end in pair.daemons)
    return row


def swapped(pair: Pair, rounds: int) -> dict[str, object]:
    """TCP through a child whose engine keeps changing, beside the same child without changes."""
    row: dict[str, object] = {"engine": "cpu and pool in turns", "delay_ms": pair.delay, "swaps": SWAPS}
    runs: dict[bool, list[dict]] = {False: [], True: []}
    for _ in range(rounds):
        for swaps in runs:
            done = threading.Event()
            swapper = threading.Thread(target=swap, args=(pair, done))
            if swaps:
                swapper.start()
            try:
                end = pair.iperf3(SWAPS / SWAPS_A_SECOND)
            finally:
                done.set()
                if swaps:
                    swapper.join()
            runs[swaps].append({"gbit_s": end["sum_received"]["bits_per_second"] / 1e9,
                                "retransmits": end["sum_sent"]["retransmits"]})
    for key in ("gbit_s", "retransmits"):
        row[key], row[f"{key}_without_swaps"] = (
            round(statistics.median(run[key] for run in runs[swaps]), 3) for swaps in (True, False))
    for reason in ("engine-failed", "replayed", "before-window", "authentication-failed"):
        row[reason.replace("-", "_")] = sum(end.counter(f"drops.{reason}") for end in pair.daemons)
    return row


def swap(pair: Pair, done: threading.Event) -> None:
    """Moves the child from engine to engine, at one end and then at the other."""
    for count in range(SWAPS):
        end, engine = pair.daemons[count % 2], ("pool", "cpu")[count // 2 % 2]
        end.command("engine", "net", engine)
        if done.wait(1 / SWAPS_A_SECOND):
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    bench = Bench("", "pool", f"bench/pool.py --rounds {options.rounds}")
    rows = []
    for beside, delay in [(False, delay) for delay in DELAYS] + [(True, delay) for delay in SWAPPED]:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(Path(folder))
            pair.beside, pair.delay = beside, delay
            try:
                pair.start()
                rows.append((swapped if beside else measure)(pair, options.rounds))
                print(rows[-1], file=sys.stderr)
            finally:
                pair.stop()
    if not options.no_record:
        bench.write(WHAT, {"rounds": options.rounds, "cases": rows})


if __name__ == "__main__":
    main()
