"""Measures the throughput of tunnels side by side in one run: see README.md."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from commit import commit
from machine import RECORDS, machine, machine_name
from setups import ALL, BEFORE, ROOT, EsplanadePair, Setup, Unavailable
from harness.process import HarnessError, run

# For each test: its name, the arguments of iperf3, and the figure that counts.
TESTS = {
    "tcp-1": ("TCP, 1 stream", ["-P", "1"], "gbit_s"),
    "tcp-4": ("TCP, 4 streams", ["-P", "4"], "gbit_s"),
    "udp-64": ("UDP, 64 bytes", ["-u", "-b", "0", "-l", "64"], "packets_s"),
    "udp-1300": ("UDP, 1300 bytes", ["-u", "-b", "0", "-l", "1300"], "packets_s"),
}


def measure(setup: Setup, test: str, seconds: float) -> dict[str, float]:
    """Runs iperf3 once. For UDP it counts the data that arrived, not the data that was sent."""
    _, arguments, _ = TESTS[test]
    cpu, clock = setup.cpu_seconds(), time.monotonic()
    # The first second of TCP is slow start. For UDP iperf3 3.12 counts losses of the omitted time too, so nothing is
    # omitted.
    omit = [] if "-u" in arguments else ["-O", "1"]
    end = setup.iperf3(seconds, *omit, *arguments)
    cpu, clock = setup.cpu_seconds() - cpu, time.monotonic() - clock
    result = {"gateway_cores": round(cpu / clock, 3)}
    if "-u" in arguments:
        total = end["sum"]
        received = total["packets"] - total["lost_packets"]
        size = int(arguments[arguments.index("-l") + 1])
        result["packets_s"] = round(received / total["seconds"])
        result["gbit_s"] = round(received * size * 8 / total["seconds"] / 1e9, 4)
        result["lost_percent"] = round(total["lost_percent"], 2)
    else:
        result["gbit_s"] = round(end["sum_received"]["bits_per_second"] / 1e9, 4)
        result["retransmits"] = end["sum_sent"].get("retransmits", 0)
    return result


def bring_up(wanted: list[str], folder: Path, workers: int | None) -> tuple[list[Setup], dict[str, str]]:
    running, skipped = [], {}
    EsplanadePair.workers = workers
    for kind in ALL + BEFORE:
        if kind.name not in wanted:
            continue
        setup = kind(folder)
        try:
            setup.start()
        except (Unavailable, HarnessError, subprocess.TimeoutExpired) as error:
            setup.stop()
            skipped[kind.name] = str(error)
            print(f"SKIP {kind.label}: {error}", flush=True)
            continue
        running.append(setup)
        print(f"up   {kind.label}", flush=True)
    return running, skipped


def rounds(setups: list[Setup], tests: list[str], count: int, seconds: float) -> dict[str, dict[str, list[dict]]]:
    """Measures in turns (A B C, A B C, …), so that other work of the machine hits all setups alike."""
    runs: dict[str, dict[str, list[dict]]] = {setup.name: {test: [] for test in tests} for setup in setups}
    for number in range(count):
        for test in tests:
            for setup in setups:
                result = measure(setup, test, seconds)
                runs[setup.name][test].append(result)
                unit = TESTS[test][2]
                figure = f"{result['gbit_s']:.2f} Gbit/s" if unit == "gbit_s" else f"{result['packets_s']:,} packets/s"
                print(f"round {number + 1}  {test:<9} {setup.label:<28} {figure:>20}   "
                      f"gateways {result['gateway_cores']:.2f} cores", flush=True)
    return runs


def medians(runs: dict[str, dict[str, list[dict]]]) -> dict[str, dict[str, dict[str, float]]]:
    found = {}
    for name, tests in runs.items():
        found[name] = {}
        for test, results in tests.items():
            unit = TESTS[test][2]
            values = [result[unit] for result in results]
            found[name][test] = {key: statistics.median(result[key] for result in results) for key in results[0]}
            found[name][test] |= {"lowest": min(values), "highest": max(values)}
    return found


def table(record: dict) -> str:
    setups, tests, middle = record["setups"], record["tests"], record["medians"]
    titles = [*(TESTS[test][0] for test in tests), "gateway cores per Gbit/s of TCP"]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    base = middle.get("esplanade")
    for name, facts in setups.items():
        cells = []
        for test in tests:
            entry, unit = middle[name][test], TESTS[test][2]
            if unit == "gbit_s":
                cell = f"{entry['gbit_s']:.2f} Gbit/s"
            else:
                cell = f"{entry['packets_s'] / 1000:,.0f} kpps, {entry['gbit_s']:.2f} Gbit/s"
            if base and name not in ("esplanade", "veth") and entry[unit]:
                cell += f" (Esplanade {base[test][unit] / entry[unit]:.1f}×)"
            cells.append(cell)
        streams = [middle[name][test] for test in tests if TESTS[test][2] == "gbit_s" and middle[name][test]["gbit_s"]]
        cost = statistics.median(entry["gateway_cores"] / entry["gbit_s"] for entry in streams) if streams else None
        cells.append("" if cost is None or name == "veth" else f"{cost:.2f}")
        lines.append(f"| {facts['label']} ({facts['cipher']}) | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def markdown(record: dict) -> str:
    facts = record["machine"]
    text = (f"# Tunnels side by side, {record['date']}\n\n"
            f"{facts['cores']} × {facts['cpu']}, Linux {facts['kernel']}, governor: {facts['governor']}, "
            f"load at start {facts['load_at_start']:.2f}. Commit {record['commit']}.\n\n"
            f"`{record['command']}`: median of {record['rounds']} alternating rounds of {record['seconds']} s.\n\n"
            + table(record) + "\nSpread (lowest to highest of the rounds):\n\n")
    for name, setup in record["setups"].items():
        spans = []
        for test in record["tests"]:
            entry, unit = record["medians"][name][test], TESTS[test][2]
            scale, places = (1, 2) if unit == "gbit_s" else (1000, 0)
            spans.append(f"{test} {entry['lowest'] / scale:.{places}f}–{entry['highest'] / scale:.{places}f}")
        text += f"- {setup['label']} ({setup['version']}, MTU {setup['mtu']}): {', '.join(spans)}\n"
    for name, reason in record["skipped"].items():
        text += f"- {name} was not measured: {reason.splitlines()[0]}\n"
    return text


def pictures(record: dict, stem: Path) -> None:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    # These settings keep the file the same in every run.
    matplotlib.rcParams["svg.hashsalt"] = "tunnel"
    tests = record["tests"]
    figure, axes = pyplot.subplots(1, len(tests), figsize=(3.2 * len(tests), 3.4), layout="constrained", squeeze=False)
    names = list(record["setups"])
    for axis, test in zip(axes[0], tests):
        unit = TESTS[test][2]
        scale = 1 if unit == "gbit_s" else 1e-3
        entries = [record["medians"][name][test] for name in names]
        values = [entry[unit] * scale for entry in entries]
        spread = [[(entry[unit] - entry["lowest"]) * scale for entry in entries],
                  [(entry["highest"] - entry[unit]) * scale for entry in entries]]
        bars = axis.barh(range(len(names)), values, xerr=spread, capsize=2,
                         color=["#1f6f8b" if name == "esplanade" else "#b8c4cc" for name in names])
        axis.bar_label(bars, fmt="%.2f" if unit == "gbit_s" else "%.0f", padding=3, fontsize=8)
        axis.set_yticks(range(len(names)), [record["setups"][n]["label"] for n in names] if axis is axes[0][0]
                        else [""] * len(names), fontsize=8)
        axis.invert_yaxis()
        # The bare pair is far faster than any tunnel, so its bar may leave the picture.
        tunnels = [value for name, value in zip(names, values) if name != "veth"] or values
        axis.set_xlim(0, max(tunnels) * 1.35)
        axis.set_title(TESTS[test][0], fontsize=9)
        axis.set_xlabel("Gbit/s" if unit == "gbit_s" else "1000 packets/s received", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description="throughput of tunnels, side by side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default=",".join(kind.name for kind in ALL), help="which setups, with commas")
    parser.add_argument("--tests", default=",".join(TESTS), help="which tests, with commas")
    parser.add_argument("--workers", type=int, help="of Esplanade; its default if left out")
    parser.add_argument("--machine", help="name of the machine in the record; made from the CPU if left out")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    tests, wanted = options.tests.split(","), options.only.split(",")
    if unknown := (set(tests) - set(TESTS)) | (set(wanted) - {kind.name for kind in ALL + BEFORE}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    os.environ["PATH"] += os.pathsep + str(ROOT / "target/tools/bin") + os.pathsep + str(Path.home() / ".cargo/bin")

    facts = machine()
    if facts["load_at_start"] > 0.5:
        print(f"note: load is {facts['load_at_start']:.2f}: the machine is not idle, the figures will be low")
    folder = Path(tempfile.mkdtemp(prefix="esb-"))
    setups: list[Setup] = []
    try:
        setups, skipped = bring_up(wanted, folder, options.workers)
        described = {setup.name: {"label": setup.label, "cipher": setup.cipher, "version": setup.version(),
                                  "mtu": setup.mtu()} for setup in setups}
        runs = rounds(setups, tests, options.rounds, options.seconds)
    finally:
        for setup in setups:
            setup.stop()
        shutil.rmtree(folder, ignore_errors=True)

    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {"date": date, "command": " ".join(["bench/tunnel.py", *sys.argv[1:]]), "commit": commit(),
              "machine": facts, "iperf3": run(["iperf3", "--version"]).stdout.splitlines()[0],
              "rounds": options.rounds, "seconds": options.seconds, "tests": tests, "setups": described,
              "skipped": skipped, "medians": medians(runs), "runs": runs}
    print("\n" + table(record))
    if not options.no_record:
        RECORDS.mkdir(exist_ok=True)
        stem = f"{date}-tunnel-{options.machine or machine_name(facts)}"
        (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
        (RECORDS / f"{stem}.md").write_text(markdown(record))
        print(f"written: {(RECORDS / stem).relative_to(ROOT)}.json, .md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
