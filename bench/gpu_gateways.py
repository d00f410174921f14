"""Measures pairs of gateways with the CPU alone, the GPU alone, and adaptive: see gpu.py."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from setups import EsplanadePair

WHAT = "two gateways: TCP, one stream, through one pair of SAs with AES-128-GCM in UDP"
ENGINES = ["cpu", "gpu", "adaptive"]


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
            made.gateway["gpu"] = {"device": self.device_name}
            made.gateway["trial"] = "gpu-residue"
        elif self.engine == "adaptive":
            made.gateway["gpu"] = {"device": self.device_name}
        return made


def medians(runs: dict[tuple, list[dict]], loads: list[str]) -> list[dict]:
    """A row for each engine and load: the medians of its runs, and all of them."""
    def median(of: list[dict], figure: str) -> float:
        return round(statistics.median(run[figure] for run in of), 4)

    return [{"part": "gateway", "engine": engine, "load": load, "gbits": median(of, "gbits"), "cores": median(of, "cores"),
             "runs": of}
            for load in loads for engine in ENGINES if (of := runs[engine, load])]


def ratios(rows: list[dict]) -> dict[str, float]:
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
