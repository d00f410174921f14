"""Measures the GPU engine on an OpenCL device, beside one core of the CPU engine, and writes a record: see README.md.

The rows have packets of random SAs. R1: 1024 bytes, AES-CBC with HMAC-SHA1. R2: the same, 64 to 1500 bytes. R3: six
light transforms, 1280 bytes. R3': five modern ones. R4: those with the lengths of IMIX. The PIPSEA paper does not name
its six transforms, so no row is its own.

Parts: `closed` has launches back to back, `open` packets that come at a set rate, `lanes` the lane efficiency beside the
model's, `walk` both walks around the engine. `gateway` has two gateways with iperf3 between them, with `--gateway`.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

from record import Bench
from setups import EsplanadePair

WHAT = "GPU engine, sealing: packets in host memory to packets in host memory"
# The figure by which the median run of a case is chosen.
FIGURES = {"closed": "gbits", "open": "latency_us", "lanes": "cipher", "walk": "gbits"}


class Pair(EsplanadePair):
    """Two gateways with this engine."""

    engine, device = "cpu", ""

    def make(self, end, space):
        made = super().make(end, space)
        made.gateway["engine"] = self.engine
        if self.engine != "cpu":
            made.gateway["gpu"] = {"device": self.device, "residue": "yes"}
        return made


def median_of(runs: list[list[dict]]) -> list[dict]:
    """Takes the run with the median figure of each case. A load that not every run has is left out."""
    def key(case: dict, number: int) -> tuple:
        return case["part"], case.get("row"), case.get("engine"), case.get("arrangement"), number

    def keyed(run: list[dict]) -> dict[tuple, dict]:
        keys: dict[tuple, dict] = {}
        for case in run:
            number = sum(key(case, 0)[:-1] == known[:-1] for known in keys)
            keys[key(case, number)] = case
        return keys

    first, *others = map(keyed, runs)

    def of(same: list[dict]) -> dict:
        return sorted(same, key=lambda case: case[FIGURES[case["part"]]])[len(same) // 2]
    return [of([run[known] for run in (first, *others)]) for known in first if all(known in run for run in others)]


def ratios(cases: list[dict]) -> dict[str, float]:
    """The goals that do not depend on the device."""
    closed = {(case["row"], case.get("arrangement", case["engine"])): case for case in cases if case["part"] == "closed"}
    full = {row: closed[row, "full"]["gbits"] for row in ("R1", "R2", "R3", "R3'", "R4")}
    lanes = [case for case in cases if case["part"] == "lanes" and case["arrangement"] == "full"]
    # The third load of each row is three quarters of its highest throughput.
    at_load = {row: [case for case in cases if case["part"] == "open" and case["row"] == row][2]["latency_us"]
               for row in full}

    def harmonic(row: str) -> float:
        alone = [case["gbits"] for (of, name), case in closed.items() if of == row and name.endswith("alone")]
        return statistics.harmonic_mean(alone)

    found = {
        "R4 full to arrival": full["R4"] / closed["R4", "arrival"]["gbits"],
        "R2 to R1, throughput": full["R2"] / full["R1"],
        "R2 to R1, latency": at_load["R2"] / at_load["R1"],
        "R3 to R1, latency": at_load["R3"] / at_load["R1"],
        "R3 to its transforms alone": full["R3"] / harmonic("R3"),
        "R3' to its transforms alone": full["R3'"] / harmonic("R3'"),
        **{f"{case['row']} lanes to model, {stage}": case[stage] / case[f"{stage}_model"]
           for case in lanes for stage in ("cipher", "mac")},
        **{f"{row} to a CPU core": full[row] / closed[row, "cpu"]["gbits"] for row in full},
    }
    return {name: round(ratio, 3) for name, ratio in found.items()}


def gateways(device: str, engines: list[str], seconds: float, rounds: int) -> list[dict]:
    """TCP, and small UDP at a low load, through two gateways."""
    rows = []
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(Path(folder))
            pair.engine, pair.device = engine, device
            try:
                pair.start()
                ends = [pair.iperf3(seconds) for _ in range(rounds)]
                tcp = statistics.median(end["sum_received"]["bits_per_second"] / 1e9 for end in ends)
                rows.append({"part": "gateway", "engine": engine, "tcp_gbits": round(tcp, 3)})
                print(rows[-1], file=sys.stderr)
            finally:
                pair.stop()
    return rows


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="portable", help="a part of the device's name (default: PoCL)")
    options.add_argument("--packets", type=int, default=4096, help="packets of a launch")
    options.add_argument("--warp", type=int, help="lanes that run together (default: 64 for PoCL, else 32)")
    options.add_argument("--seconds", type=float, default=2, help="time of each case")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--gateway", action="store_true", help="measure two gateways too; needs root")
    chosen = options.parse_args()
    warp = chosen.warp or (64 if chosen.device == "portable" else 32)
    bench = Bench("esplanade-gpu", "gpu")
    bench.build()
    arguments = ["--device", chosen.device, "--packets", str(chosen.packets), "--seconds", str(chosen.seconds),
                 "--warp", str(warp)]
    cases = median_of([bench.cases(arguments) for _ in range(chosen.runs)])
    results = {"device": chosen.device, "packets": chosen.packets, "ratios": ratios(cases), "cases": cases}
    if chosen.gateway:
        results["cases"] += gateways(chosen.device, ["cpu", "gpu"], chosen.seconds, chosen.runs)
    print(json.dumps(results["ratios"], indent=1))
    bench.name = "gpu-" + re.sub(r"\W+", "-", chosen.device.lower())
    shown = f" -- {' '.join(arguments)} ({chosen.runs} times, the median of each case)"
    bench.write(WHAT, results, shown)
