"""Measures the GPU engine beside one core of the CPU engine, and writes a record: see README.md. The device is the one
that a gateway opens: CUDA's first, or OpenCL's.

The rows have packets of random SAs. R1: 1024 bytes, AES-CBC with HMAC-SHA1. R2: the same, 64 to 1500 bytes. R3: six
light transforms, 1280 bytes. R3': five modern ones. R4: those with the lengths of IMIX. The PIPSEA paper does not name
its six transforms, so no row is its own.

Parts: `closed` has launches back to back, `open` packets that come at a set rate, `lanes` the lane efficiency beside the
model's, `walk` both walks around the engine. Each is there for both forms of the kernels, constant-time and with tables.

With `--gateway` it measures gateways instead: iperf3 through pairs with the CPU alone, the GPU alone, and adaptive.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import RECORDS
from record import Bench

WHAT = "GPU engine, sealing: packets in host memory to packets in host memory"
# The figure by which the median run of a case is chosen. Lines of other parts are notes.
FIGURES = {"closed": "gbits", "open": "latency_us", "lanes": "cipher", "walk": "gbits"}
ROWS = ("R1", "R2", "R3", "R3'", "R4")
# The part of its highest throughput at which the latencies of rows are compared.
COMPARED_LOAD = 0.75
# A bench that goes on for so many seconds after its budget hangs.
GRACE = 45
# What NVIDIA's driver says of its GPUs.
FACTS = ("name,driver_version,vbios_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,"
         "pcie.link.gen.current,pcie.link.width.current,ecc.mode.current,mig.mode.current,compute_mode")


def median_of(runs: list[list[dict]]) -> list[dict]:
    """Takes the run with the median figure of each case. A load that not every run has is left out."""
    def key(case: dict, number: int) -> tuple:
        return case["part"], case.get("row"), case.get("engine"), case.get("tables"), case.get("arrangement"), number

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
    """The goals that do not depend on the device, as far as the cases are there."""
    found = {}
    for form, prefix in ((False, ""), (True, "tables: ")):
        of_form = [case for case in cases if case.get("engine") == "cpu" or case.get("tables", False) == form]
        found.update({prefix + name: round(ratio, 3) for name, ratio in ratios_of(of_form).items()})
    return found


def ratios_of(cases: list[dict]) -> dict[str, float]:
    """The same for one form of the kernels."""
    closed = {(case["row"], case.get("arrangement", case["engine"])): case["gbits"]
              for case in cases if case["part"] == "closed"}
    full = {row: closed.get((row, "full")) for row in ROWS}
    loads = [case for case in cases if case["part"] == "open" and case["share"] == COMPARED_LOAD]
    at_load = {row: next((case["latency_us"] for case in loads if case["row"] == row), None) for row in ROWS}

    def harmonic(row: str) -> float | None:
        alone = [gbits for (of, name), gbits in closed.items() if of == row and name.endswith("alone")]
        return statistics.harmonic_mean(alone) if alone else None

    wanted = {
        "R4 full to arrival": (full["R4"], closed.get(("R4", "arrival"))),
        "R2 to R1, throughput": (full["R2"], full["R1"]),
        "R2 to R1, latency": (at_load["R2"], at_load["R1"]),
        "R3 to R1, latency": (at_load["R3"], at_load["R1"]),
        "R3 to its transforms alone": (full["R3"], harmonic("R3")),
        "R3' to its transforms alone": (full["R3'"], harmonic("R3'")),
        **{f"{case['row']} lanes to model, {stage}": (case[stage], case[f"{stage}_model"])
           for case in cases if case["part"] == "lanes" and case["arrangement"] == "full" for stage in ("cipher", "mac")},
        **{f"{row} to a CPU core": (full[row], closed.get((row, "cpu"))) for row in ROWS},
    }
    return {name: first / second for name, (first, second) in wanted.items() if first and second}


def gpus() -> list[dict[str, str]]:
    """What NVIDIA's driver says, where it is."""
    if not (program := shutil.which("nvidia-smi")):
        return []
    asked = subprocess.run([program, f"--query-gpu={FACTS}", "--format=csv,noheader"], capture_output=True, text=True)
    lines = asked.stdout.splitlines() if asked.returncode == 0 else []
    return [dict(zip(FACTS.split(","), line.split(", "))) for line in lines]


def measure(bench: Bench, chosen: argparse.Namespace) -> None:
    warp = chosen.warp or (64 if chosen.device == "portable" else 32)
    arguments = ["--device", chosen.device, "--packets", str(chosen.packets), "--seconds", str(chosen.seconds),
                 "--warp", str(warp), "--forms", chosen.forms, "--rows", chosen.rows]
    limit = None
    if chosen.budget:
        arguments += ["--budget", str(chosen.budget / chosen.runs)]
        limit = chosen.budget / chosen.runs + GRACE
    bench.machine["gpus"] = gpus()
    print(json.dumps(bench.machine), flush=True)
    runs = [bench.cases(arguments, limit) for _ in range(chosen.runs)]
    cases = median_of([[case for case in run if case["part"] in FIGURES] for run in runs])
    notes = [case for run in runs for case in run if case["part"] not in FIGURES]
    results = {"device": chosen.device, "packets": chosen.packets, "ratios": ratios(cases), "notes": notes,
               "failures": bench.failures, "cases": cases}
    print(json.dumps(results["ratios"], indent=1))
    bench.name = f"gpu-{slug(chosen.device)}"
    shown = f" {'' if bench.program else '-- '}{' '.join(arguments)} ({chosen.runs} times, the median of each case)"
    bench.write(WHAT, results, shown, chosen.records)
    if failed := [note["why"] for note in notes if note["part"] == "failed"] + bench.failures:
        sys.exit("\n".join(failed))


def measure_gateways(chosen: argparse.Namespace) -> None:
    # It needs packages that a machine with a prebuilt bench may lack.
    import gpu_gateways

    shares = [float(share) for share in chosen.loads.split(",") if share]
    bench = Bench("esplanade-gpu", f"gpu-gateway-{slug(chosen.device)}", f"bench/gpu.py {' '.join(sys.argv[1:])}")
    with tempfile.TemporaryDirectory() as folder:
        rows = gpu_gateways.gateways(chosen.device, shares, chosen.seconds, chosen.runs, Path(folder))
    results = {"device": chosen.device, "ratios": gpu_gateways.ratios(rows), "cases": rows}
    print(json.dumps(results["ratios"], indent=1))
    bench.write(gpu_gateways.WHAT, results, "", chosen.records)


def slug(device: str) -> str:
    return re.sub(r"\W+", "-", device.lower())


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="portable", help="a part of the device's name (default: PoCL)")
    options.add_argument("--packets", type=int, default=4096, help="packets of a launch")
    options.add_argument("--warp", type=int, help="lanes that run together (default: 64 for PoCL, else 32)")
    options.add_argument("--seconds", type=float, default=2, help="time of each case")
    options.add_argument("--budget", type=float, help="seconds of all cases: each gets its share, or is left out")
    options.add_argument("--rows", default=",".join(ROWS), help="default: %(default)s")
    options.add_argument("--forms", default="constant-time,tables", help="default: %(default)s")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--gateway", action="store_true", help="measure gateways instead; needs root and a release build")
    options.add_argument("--loads", default="0.1,0.5", help="of --gateway: shares of what the CPU carries, beside all of it")
    options.add_argument("--prebuild", type=Path, metavar="FOLDER", help="build the bench for --program, no more")
    options.add_argument("--program", type=Path, help="a bench that --prebuild has made; cargo is not used")
    options.add_argument("--records", type=Path, default=RECORDS, metavar="FOLDER", help="where the record goes")
    asked = options.parse_args()
    if asked.gateway:
        sys.exit(measure_gateways(asked))
    program = asked.program and asked.program.resolve()
    bench = Bench("esplanade-gpu", "gpu", program=program)
    if asked.prebuild:
        bench.prebuild(asked.prebuild, ["differential"])
    else:
        bench.build()
        measure(bench, asked)
