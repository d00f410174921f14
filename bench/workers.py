"""Measures the gain from workers for the flows of one SA: TCP through one tunnel, with one and with two workers. If
ESPLANADE_BEFORE names another build, both builds run in turns. Writes a record."""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from pathlib import Path

from record import Bench
from setups import EsplanadeBefore, EsplanadeBeforeRaw, EsplanadePair, EsplanadeRaw, Unavailable
from harness.namespaces import Namespace
from harness.process import run

WHAT = "TCP of one SA with one and two workers: rate, retransmissions, each worker's share of the CPU time"
KINDS = [EsplanadePair, EsplanadeBefore, EsplanadeRaw, EsplanadeBeforeRaw]


def ticks(space: Namespace) -> dict[str, int]:
    """The CPU time of each worker so far, in clock ticks."""
    found = {}
    for pid in run(["ip", "netns", "pids", space.name], check=False).stdout.split():
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            stat = task.read_text()
            name, fields = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
            if name.startswith("worker-"):
                found[name] = int(fields[11]) + int(fields[12])
    return found


# The arguments of iperf3 for each test.
TESTS = {"1 flow": ["-P", "1"], "8 flows": ["-P", "8"], "8 flows each way": ["-P", "8", "--bidir"]}


def measure(pair: EsplanadePair, test: str, seconds: float) -> dict[str, object]:
    ends = (pair.a, pair.b)
    before = [ticks(end) for end in ends]
    end = pair.iperf3(seconds, *TESTS[test])
    after = [ticks(end) for end in ends]

    def total(whose: str, figure: str) -> float:
        return sum(end.get(whose + way, {}).get(figure, 0) for way in ("", "_bidir_reverse"))

    spent = [[now[name] - then[name] for name in sorted(now)] for now, then in zip(after, before)]
    return {"gbit_s": round(total("sum_received", "bits_per_second") / 1e9, 3),
            "retransmits": total("sum_sent", "retransmits"),
            "sender_ticks": spent[0], "receiver_ticks": spent[1]}


def dropped(end) -> dict[str, int]:
    """What an end has dropped, by reason, without the zeros."""
    drops = end.status()["counters"]["drops"]
    return {reason: int(count) for reason, count in drops.items() if int(count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    bench = Bench("", "workers", f"bench/workers.py --rounds {options.rounds} --seconds {options.seconds}")
    runs: dict[tuple, list[dict]] = {}
    pairs: list[EsplanadePair] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for kind, workers in itertools.product(KINDS, (1, 2)):
                named = type(kind.__name__, (kind,), {"name": f"{kind.name}-{workers}"})
                pair = named(Path(folder))
                pair.workers = workers
                if kind not in (EsplanadeBefore, EsplanadeBeforeRaw):
                    pair.child = {"peer_replay_window": 8192}
                try:
                    pair.start()
                except Unavailable as error:
                    print(f"SKIP {kind.label}: {error}")
                    pair.stop()
                    continue
                pairs.append(pair)
            for round_, test, pair in itertools.product(range(options.rounds), TESTS, pairs):
                result = measure(pair, test, options.seconds)
                runs.setdefault((pair.label, pair.workers, test), []).append(result)
                print(f"round {round_ + 1} of {options.rounds}: {pair.label}, workers {pair.workers}, {test}: {result}",
                      file=sys.stderr)
            drops = {f"{pair.label}, workers {pair.workers}": [dropped(end) for end in pair.daemons]
                     for pair in pairs}
        finally:
            for pair in pairs:
                pair.stop()
    rows = []
    for (label, workers, test), results in runs.items():
        row = {"setup": label, "workers": workers, "test": test}
        for key in ("gbit_s", "retransmits"):
            row[key] = statistics.median(result[key] for result in results)
        for key in ("sender_ticks", "receiver_ticks"):
            summed = [sum(of) for of in zip(*(result[key] for result in results))]
            row[key.replace("ticks", "percent")] = [round(100 * of / max(sum(summed), 1)) for of in summed]
        rows.append(row)
        print(row)
    if not options.no_record:
        bench.write(WHAT, {"rounds": options.rounds, "seconds": options.seconds, "cases": rows, "drops": drops})


if __name__ == "__main__":
    main()
