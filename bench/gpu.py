"""Measures the GPU engine on an OpenCL device, beside one core of the CPU engine, and writes a record: see README.md.

The rows have packets of random SAs. R1: 1024 bytes, AES-CBC with HMAC-SHA1. R2: the same, 64 to 1500 bytes. R3: six
light transforms, 1280 bytes. R3': five modern ones. R4: those with the lengths of IMIX. The PIPSEA paper does not name
its six transforms, so no row is its own.
"""

import argparse
import json
import re

from record import Bench

WHAT = "GPU engine, sealing, closed loop: packets in host memory to packets in host memory"


def median_of(runs: list[list[dict]]) -> list[dict]:
    """Takes the run with the median throughput of each case."""
    return [sorted(same, key=lambda case: case["gbits"])[len(same) // 2] for same in zip(*runs)]


def ratios(cases: list[dict]) -> dict[str, float]:
    """The goals that do not depend on the device."""
    found = {(case["row"], case.get("arrangement", case["engine"])): case for case in cases}
    full = {row: found[row, "full"] for row in ("R1", "R2", "R3", "R3'", "R4")}
    return {
        "R4 full to arrival": round(full["R4"]["gbits"] / found["R4", "arrival"]["gbits"], 2),
        "R2 to R1, throughput": round(full["R2"]["gbits"] / full["R1"]["gbits"], 2),
        "R2 to R1, latency": round(full["R2"]["latency_us"] / full["R1"]["latency_us"], 2),
        "R3 to R1, latency": round(full["R3"]["latency_us"] / full["R1"]["latency_us"], 2),
        **{f"{row} to a CPU core": round(full[row]["gbits"] / found[row, "cpu"]["gbits"], 3) for row in full},
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="portable", help="a part of the device's name (default: PoCL)")
    options.add_argument("--packets", type=int, default=4096, help="packets of a launch")
    options.add_argument("--seconds", type=float, default=2, help="time of each case")
    options.add_argument("--runs", type=int, default=3)
    chosen = options.parse_args()
    bench = Bench("esplanade-gpu", "gpu")
    bench.build()
    arguments = ["--device", chosen.device, "--packets", str(chosen.packets), "--seconds", str(chosen.seconds)]
    cases = median_of([bench.cases(arguments) for _ in range(chosen.runs)])
    results = {"device": chosen.device, "packets": chosen.packets, "ratios": ratios(cases), "cases": cases}
    print(json.dumps(results["ratios"], indent=1))
    bench.name = "gpu-" + re.sub(r"\W+", "-", chosen.device.lower())
    shown = f" -- {' '.join(arguments)} ({chosen.runs} times, the median of each case)"
    bench.write(WHAT, results, shown)
