"""Measures the GPU engine on an OpenCL device, beside one core of the CPU engine, and writes a record: see README.md.

The rows have packets of random SAs. R1: 1024 bytes, AES-CBC with HMAC-SHA1. R2: the same, 64 to 1500 bytes. R3: six
light transforms, 1280 bytes. R3': five modern ones. R4: those with the lengths of IMIX. The PIPSEA paper does not name
its six transforms, so no row is its own.

Parts: `closed` has launches back to back, `open` packets that come at a set rate, `lanes` the lane efficiency beside the
model's, `walk` both walks around the engine.

With `--gateway` it measures gateways instead: iperf3 through pairs with the CPU alone, the GPU alone, and adaptive.
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
WHAT_GATEWAYS = "two gateways: TCP, one stream, through one pair of SAs with AES-128-GCM in UDP"
ENGINES = ["cpu", "gpu", "adaptive"]
# The figure by which the median run of a case is chosen.
FIGURES = {"closed": "gbits", "open": "latency_us", "lanes": "cipher", "walk": "gbits"}


class Pair(EsplanadePair):
    """Two gateways with this engine."""

    def __init__(self, folder: Path, engine: str, device: str):
        self.name, self.label = f"gpu-{engine}", f"engine = {engine}"
        super().__init__(folder)
        self.engine, self.device_name = engine, device

    def make(self, end, space):
        made = super().make(end, space)
        made.gateway["engine"] = self.engine
        if self.engine == "gpu":
            # The CPU would carry what leaves lanes idle, and this row is the device's.
            made.gateway["gpu"] = {"device": self.device_name, "residue": "yes"}
        elif self.engine == "adaptive":
            made.gateway["gpu"] = {"device": self.device_name}
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


def medians(runs: dict[tuple, list[dict]], loads: list[str]) -> list[dict]:
    """A row for each engine and load: the medians of its runs, and all of them."""
    def median(of: list[dict], figure: str) -> float:
        return round(statistics.median(run[figure] for run in of), 4)

    return [{"part": "gateway", "engine": engine, "load": load, "gbits": median(of, "gbits"), "cores": median(of, "cores"),
             "runs": of}
            for load in loads for engine in ENGINES if (of := runs[engine, load])]


def gateway_ratios(rows: list[dict]) -> dict[str, float]:
    """At each load, adaptive to the better of both engines alone. The goal is 0.97."""
    gbits = {(row["engine"], row["load"]): row["gbits"] for row in rows}
    loads = dict.fromkeys(row["load"] for row in rows)
    return {f"adaptive to the better engine, {load}": round(
        gbits["adaptive", load] / max(gbits["cpu", load], gbits["gpu", load]), 3) for load in loads}


def gateways(device: str, shares: list[float], seconds: float, rounds: int, folder: Path) -> list[dict]:
    """TCP as fast as it goes, and at shares of what the CPU alone carries. The engines take turns, load by load."""
    pairs: dict[str, Pair] = {}
    runs: dict[tuple, list[dict]] = {}

    def measure(engine: str, load: str, *arguments: str) -> dict:
        pair = pairs[engine]
        before = pair.cpu_seconds()
        end = pair.iperf3(seconds, *arguments)
        run = {"gbits": round(end["sum_received"]["bits_per_second"] / 1e9, 4),
               "cores": round((pair.cpu_seconds() - before) / seconds, 3)}
        print(engine, load, run, file=sys.stderr)
        return run

    try:
        for engine in ENGINES:
            pairs[engine] = Pair(folder, engine, device)
            pairs[engine].start()
        # The first run of each also warms the gateways up: it counts for nothing.
        for engine in ENGINES:
            measure(engine, "warm-up")
        most = statistics.median(measure("cpu", "all")["gbits"] for _ in range(3))
        loads = {"all": [], **{f"{share:.0%}": ["-b", f"{share * most * 1e9:.0f}"] for share in shares}}
        for number in range(rounds):
            for load, arguments in loads.items():
                # Another engine begins in each round.
                first = number % len(ENGINES)
                for engine in ENGINES[first:] + ENGINES[:first]:
                    runs.setdefault((engine, load), []).append(measure(engine, load, *arguments))
    finally:
        for pair in pairs.values():
            pair.stop()
    return medians(runs, list(loads))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="portable", help="a part of the device's name (default: PoCL)")
    options.add_argument("--packets", type=int, default=4096, help="packets of a launch")
    options.add_argument("--warp", type=int, help="lanes that run together (default: 64 for PoCL, else 32)")
    options.add_argument("--seconds", type=float, default=2, help="time of each case")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--gateway", action="store_true", help="measure gateways instead; needs root and a release build")
    options.add_argument("--loads", default="0.1,0.5", help="shares of what the CPU carries, beside all of it")
    options.add_argument("--no-record", action="store_true")
    chosen = options.parse_args()
    slug = re.sub(r"\W+", "-", chosen.device.lower())
    if chosen.gateway:
        shares = [float(share) for share in chosen.loads.split(",") if share]
        bench = Bench("esplanade-gpu", f"gpu-gateway-{slug}", f"bench/gpu.py {' '.join(sys.argv[1:])}")
        with tempfile.TemporaryDirectory() as folder:
            rows = gateways(chosen.device, shares, chosen.seconds, chosen.runs, Path(folder))
        results = {"device": chosen.device, "ratios": gateway_ratios(rows), "cases": rows}
        what, shown = WHAT_GATEWAYS, ""
    else:
        warp = chosen.warp or (64 if chosen.device == "portable" else 32)
        bench = Bench("esplanade-gpu", "gpu")
        bench.build()
        arguments = ["--device", chosen.device, "--packets", str(chosen.packets), "--seconds", str(chosen.seconds),
                     "--warp", str(warp)]
        cases = median_of([bench.cases(arguments) for _ in range(chosen.runs)])
        results = {"device": chosen.device, "packets": chosen.packets, "ratios": ratios(cases), "cases": cases}
        bench.name = f"gpu-{slug}"
        what, shown = WHAT, f" -- {' '.join(arguments)} ({chosen.runs} times, the median of each case)"
    print(json.dumps(results["ratios"], indent=1))
    if not chosen.no_record:
        bench.write(what, results, shown)
