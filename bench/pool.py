"""What a late engine costs: round trips, TCP and CPU time with `engine = pool` and artificial delays, beside `engine = cpu`;
writes a record."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from record import Bench
from setups import EsplanadePair

WHAT = "one tunnel with the CPU engine in the workers and in helper threads that hold every batch for some time"
# Milliseconds; None is `engine = cpu`. The last is as good as an engine that stands still, but is not lost.
DELAYS = [None, 0, 1, 5, 400]
STALLED = DELAYS[-1]


class Pair(EsplanadePair):
    delay: int | None = None

    def make(self, end, space):
        made = super().make(end, space)
        if self.delay is not None:
            made.gateway.update(engine="pool", pool_delay_ms=self.delay, pool_threads=2)
        return made


def ping_ms(pair: Pair, count: int) -> dict[str, float]:
    """Round trips that follow one upon the other, each through four engines."""
    done = pair.a.run(["ping", "-n", "-i", "0.01", "-c", count, "-I", pair.address_a, pair.address_b],
                      check=False, timeout=120)
    times = sorted(float(value) for value in re.findall(r"time=([\d.]+)", done.stdout))
    return {"sent": count, "back": len(times), "median_ms": statistics.median(times) if times else None}


def cores(pair: Pair, seconds: float, argv: list | None = None) -> float:
    """Of both gateways together, while they have nothing to do or a command runs."""
    cpu, clock = pair.cpu_seconds(), time.monotonic()
    if argv:
        pair.a.run(argv, check=False, timeout=seconds + 30)
    else:
        time.sleep(seconds)
    return round((pair.cpu_seconds() - cpu) / (time.monotonic() - clock), 4)


def tcp_gbit_s(pair: Pair, seconds: float) -> float:
    done = pair.a.run(["iperf3", "-J", "-c", pair.address_b, "-B", pair.address_a, "-t", seconds], timeout=seconds + 30)
    return round(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e9, 3)


def drops(pair: Pair) -> int:
    """Of any engine, at both ends."""
    found = re.findall(r'"engine-failed": "(\d+)"', json.dumps([end.status()["counters"] for end in pair.daemons]))
    return sum(map(int, found))


def measure(pair: Pair, rounds: int) -> dict[str, object]:
    row: dict[str, object] = {"engine": "cpu" if pair.delay is None else "pool", "delay_ms": pair.delay or 0}
    row["idle_cores"] = cores(pair, 3)
    if pair.delay == STALLED:
        flood = ["iperf3", "-c", pair.address_b, "-B", pair.address_a, "-u", "-b", "20M", "-l", "1200", "-t", "5"]
        row["loaded_cores"] = cores(pair, 5, flood)
    else:
        row["ping"] = ping_ms(pair, 200)
        row["tcp_gbit_s"] = statistics.median(tcp_gbit_s(pair, 3) for _ in range(rounds))
        row["engine_failed"] = drops(pair)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    bench = Bench("", "pool", f"bench/pool.py --rounds {options.rounds}")
    rows = []
    for delay in DELAYS:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(Path(folder))
            pair.delay = delay
            try:
                pair.start()
                rows.append(measure(pair, options.rounds))
                print(rows[-1], file=sys.stderr)
            finally:
                pair.stop()
    if not options.no_record:
        bench.write(WHAT, {"rounds": options.rounds, "cases": rows})


if __name__ == "__main__":
    main()
