"""Tables 5 to 8 of the Zynq paper, row by row: the paper's cycles and throughput beside ours. Ours are cycles, and
throughput at the paper's clock and at the clock of our placed and routed lane. They are simulated, not timed, and
every packet is compared with another implementation's.

A second part times AES-CTR with HMAC for several numbers of hash units. Writes a record with tables and a picture.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clocks
from commit import ROOT, commit
from designs import SIMULATED, digests
from machine import RECORDS
from pages import markdown_table
from paper_tables import CTR, GCM, SUITES, ZYNQ, ZYNQ_LUTS, ZYNQ_MHZ, ZYNQ_NAT_ERRATUM, ZYNQ_PARTS, ZynqPart, ZynqRow, mbit_s

FULL = 8  # the numbers of units for CTR in the paper's tables
UNITS = (FULL, 4, 2, 1)
LANES = ("esp_out", "esp_in")
# The parameters of the outbound lane as placed and routed. The multiplier's leaf changes no cycle.
SYNTHESISED = {name: clocks.shell("esp_out")[name] for name in ("RoundLatency", "SboxKind", "GhashStages")}


PACKETS = tuple(dict.fromkeys((row.bytes, row.udp) for row in ZYNQ))
SHORT = (64, False)  # these sizes are not in the paper
NOTES = (
    "The paper's eight rows agree with its formula, bits of the inner packet ÷ cycles × clock, which ours use too. It does "
    "not say whether its cycles are an interval between packets or a latency; ours are both: the interval in a row of "
    "packets, and the latency from the first beat in to the last beat out of a packet alone.",
    ZYNQ_NAT_ERRATUM,
    "The paper's clock is 185 MHz for AES-GCM and 150 MHz for AES-CTR with HMAC.",
    f"Both suites were measured in lanes with {FULL} hash units, which AES-GCM does not use; lanes with fewer units are without AES-GCM. The cipher has the parameters of "
    f"rtl/syn/shell_esp_out.sv, {', '.join(f'{name} {value}' for name, value in SYNTHESISED.items())}; "
    "the tables are small, with 8 policies and 16 SAs, which changes no cycle.",
)


def measure(lane: str, units: int, suites: tuple[int, ...], packets) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "rows.json", Path(folder) / "log"
        sizes = ",".join(f"{size}{'u' * udp}" for size, udp in packets)
        settings = SYNTHESISED | {"Gcm": int(GCM in suites)}
        with log.open("w") as out:
            done = subprocess.run(
                [str(ROOT / "rtl/run"), "python", str(ROOT / "rtl/esp/tb/lane_rates/test_lane_rates.py"), lane, str(units),
                 ",".join(map(str, suites)), sizes, str(file), *(f"{name}={value}" for name, value in settings.items())],
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if done.returncode or not file.exists():
            sys.exit(f"{lane} with {units} units failed:\n" + "\n".join(log.read_text().splitlines()[-20:]))
        return json.loads(file.read_text())


def measure_lane(lane: str, wanted) -> list[dict]:
    rows = []
    for units in wanted:
        rows += measure(lane, units, (CTR, GCM) if units == FULL else (CTR,), (*PACKETS, SHORT))
        print(f"measured {lane} with {units} hash units", file=sys.stderr, flush=True)
    return rows


def gbit(size: int, cycles: float, mhz: float) -> float:
    return round(mbit_s(size, cycles, mhz) / 1000, 3)


def compare(paper: ZynqRow, measured: list[dict]) -> list[dict]:
    """The paper's row beside the row of each lane."""
    rows = []
    for ours in measured:
        if (ours["suite"], ours["bytes"], ours["udp"]) != (paper.suite, paper.bytes, paper.udp):
            continue
        if ours["units"] != FULL:
            continue
        rows.append({
            "table": paper.table, "suite": SUITES[paper.suite], "bytes": paper.bytes, "nat": paper.udp, "lane": ours["module"],
            "paper_cycles": paper.cycles, "paper_gbit_s": paper.gbit_s, "paper_mhz": ZYNQ_MHZ[paper.suite],
            "interval": ours["interval"], "latency": ours["latency"], "ratio": round(paper.cycles / ours["interval"], 2),
            "gbit_s": gbit(paper.bytes, ours["interval"], ZYNQ_MHZ[paper.suite]),
        })  # fmt: skip
    return rows


def at_our_clock(record: dict) -> None:
    """Adds the newest clocks. For GCM they come from lanes without hash units. For CTR they come from the routed
    lanes with the most hash units."""
    record["clocks"] = []
    intervals = {(r["module"], r["units"], r["bytes"], r["udp"]): r["interval"] for r in record["units"]}
    for lane in LANES:
        for suite in (GCM, CTR):
            units, routed = 0, clocks.routed(lane, HmacUnits=0)
            if suite == CTR:
                measured = [units for module, units, *_ in intervals if module == lane]
                units, routed = next(((n, found) for n in UNITS if n in measured and (found := clocks.routed(lane, HmacUnits=n))), (FULL, {}))
            what = f"The clock of {lane} with {units} hash units"
            record["clocks"].append(f"{what}: {clocks.described(routed)}." if routed else f"{what}: no record of place and route.")
            for row in record["rows"]:
                if (row["lane"], row["suite"]) == (lane, SUITES[suite]):
                    interval = row["interval"] if units in (0, FULL) else intervals[lane, units, row["bytes"], row["nat"]]
                    row["routed_units"] = units
                    row["routed"] = {part: gbit(row["bytes"], interval, best["mhz"]) for part, best in routed.items()}


HEAD = (
    "table", "suite", "packet", "lane", "paper, cycles", "ours, interval", "paper ÷ ours", "ours, latency", "paper, Gbit/s",
    "ours at the paper's clock, Gbit/s", "ours at our clock, Gbit/s",
)  # fmt: skip


def line(row: dict) -> list[str]:
    routed = ", ".join(f"{gbit_s:.2f} ({part})" for part, gbit_s in row["routed"].items()) or "no record"
    if row["routed"] and row["routed_units"] not in (0, FULL):
        routed += f", {row['routed_units']} hash units"
    return [
        str(row["table"]), row["suite"], f"{row['bytes']} B{' in UDP' if row['nat'] else ''}", row["lane"], str(row["paper_cycles"]),
        f"{row['interval']:g}", f"{row['ratio']:.2f}×", str(row["latency"]), f"{row['paper_gbit_s']:.3f}",
        f"{row['gbit_s']:.3f} ({row['paper_mhz']} MHz)", routed,
    ]  # fmt: skip


UNITS_HEAD = ("lane", "units", "packet", "interval", "paper ÷ ours", "latency", "Gbit/s at 150 MHz")


def units_line(row: dict) -> list[str]:
    paper = next((p.cycles for p in ZYNQ if (p.suite, p.bytes, p.udp) == (CTR, row["bytes"], row["udp"])), None)
    return [
        row["module"], str(row["units"]), f"{row['bytes']} B{' in UDP' if row['udp'] else ''}", f"{row['interval']:g}",
        f"{paper / row['interval']:.2f}×" if paper else "", str(row["latency"]),
        f"{gbit(row['bytes'], row['interval'], ZYNQ_MHZ[CTR]):.3f}",
    ]  # fmt: skip


PARTS_HEAD = (
    "table", "part", "paper, MHz", "paper, logic", "paper, Gbit/s", "ours, LUT4", "ours, flip-flops", "ours, MHz", "ours, Gbit/s", "record",
)  # fmt: skip


def built(part: ZynqPart | None, module: str) -> dict[str, object]:
    """A module's cells, clocks and Gbit/s, from its newest record of synthesis. A lane has no rate: it is in tables 5 to 8."""
    record = clocks.synthesised(module)
    reached = {name: best["mhz"] for name, best in clocks.routed(module, **({} if part else {"HmacUnits": 0})).items()}
    rates = {name: part.bits / part.cycles * mhz / 1000 for name, mhz in reached.items()} if part else {}
    return {"record": record, "cells": record["synthesis"]["cells"] if record else {}, "mhz": reached, "gbit_s": rates}


def parts_lines() -> list[list[str]]:
    """Tables 2 to 4: the parts alone, and then the lanes."""
    wanted = [("2", part.name, str(part.mhz), f"{part.slices} slices", f"{part.gbit_s:g}", part.module, part) for part in ZYNQ_PARTS]
    wanted += [("3, 4", f"the core: {lane}, AES-GCM only", "150, 185", f"{ZYNQ_LUTS} LUT", "", lane, None) for lane in LANES]
    lines = []
    for *paper, module, part in wanted:
        ours = built(part, module)
        lines.append([
            *paper, *(str(ours["cells"].get(kind, "–")) for kind in ("LUT4", "TRELLIS_FF")),
            ", ".join(f"{mhz} ({name})" for name, mhz in ours["mhz"].items()) or "–", ", ".join(f"{rate:.3g}" for rate in ours["gbit_s"].values()) or "–",
            f"{ours['record']['file']}.json" if ours["record"] else "none",
        ])  # fmt: skip
    return lines


def text(record: dict) -> str:
    lines = [
        f"# The Zynq paper's tables, {record['date']}", "",
        f"Commit {record['commit']}, `{record['command']}`, simulated with Verilator.", "",
        *(f"- {note}" for note in (*record["notes"], *record["clocks"])), "", *markdown_table(HEAD, map(line, record["rows"]), 4),
        "## Tables 2 to 4: the parts", "",
        "The paper's on a Zynq-7000, whose LUTs have six inputs, four to a slice; ours on the parts named, with LUTs of four inputs, and with the "
        "shell's registers. SHA-256 takes 32 cycles a block there and 33 here, GHASH two and one.", "",
        *markdown_table(PARTS_HEAD, parts_lines(), 2),
    ]  # fmt: skip
    if record["units"]:
        lines += [f"## {SUITES[CTR]} over the number of hash units", ""]
        lines += markdown_table(UNITS_HEAD, map(units_line, record["units"]), 1)
    return "\n".join(lines)


def pictures(record: dict, stem: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "zynq"
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.2))
    for colour, (size, udp) in enumerate((*PACKETS, SHORT)):
        for lane, style in (("esp_out", "o-"), ("esp_in", "x")):
            points = sorted((r["units"], gbit(size, r["interval"], ZYNQ_MHZ[CTR])) for r in record["units"]
                            if (r["module"], r["bytes"], r["udp"]) == (lane, size, udp))  # fmt: skip
            axis.plot(*zip(*points), style, color=f"C{colour}", label=f"{size} B{' in UDP' if udp else ''}, {lane}")
        for paper in ZYNQ:
            if (paper.suite, paper.bytes, paper.udp) == (CTR, size, udp):
                axis.axhline(paper.gbit_s, color=f"C{colour}", linestyle=":", linewidth=1)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted(UNITS), map(str, sorted(UNITS)))
    axis.set_xlabel("SHA-256 units")
    axis.set_ylabel("Gbit/s at the paper's 150 MHz (dotted: the paper)")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})


def show(record: dict) -> None:
    for shown in (HEAD, *map(line, record["rows"]), UNITS_HEAD, *map(units_line, record["units"])):
        print(" | ".join(shown))
    fewer = sum(row["interval"] < row["paper_cycles"] for row in record["rows"])
    print(f"{fewer} of {len(record['rows'])} rows in fewer cycles than the paper's")


def write(record: dict, stem: str) -> None:
    (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=2) + "\n")
    (RECORDS / f"{stem}.md").write_text(text(record))
    print(f"written: {(RECORDS / stem).relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", help="hash units to measure, instead of the usual ones; writes no record")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--clocks", action="store_true", help="measure nothing: put the newest clocks into the newest record")
    arguments = parser.parse_args()
    if arguments.clocks:
        path = max(RECORDS.glob("*-zynq.json"))
        record = json.loads(path.read_text()) | {"notes": NOTES}
        at_our_clock(record)
        show(record)
        write(record, path.stem)
        return
    begun, sources = commit(), digests(*SIMULATED["zynq"])
    wanted = [int(units) for units in arguments.units.split(",")] if arguments.units else None
    with ThreadPoolExecutor() as lanes:
        measured = sum(lanes.map(lambda lane: measure_lane(lane, wanted or UNITS), LANES), [])
    record = {
        "what": "The ESP core's lanes in simulation: rows of packets, and packets alone", "date": datetime.date.today().isoformat(),
        "commit": begun, "sources": sources, "command": " ".join(["bench/zynq.py", *sys.argv[1:]]), "notes": NOTES,
        "rows": [row for paper in ZYNQ for row in compare(paper, measured)],
        "units": sorted((row for row in measured if row["suite"] == CTR), key=lambda row: (row["module"] != "esp_out", row["units"])),
    }  # fmt: skip
    at_our_clock(record)
    show(record)
    if not arguments.no_record and wanted is None:
        write(record, f"{record['date']}-zynq")


if __name__ == "__main__":
    main()
