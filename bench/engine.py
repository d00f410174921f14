"""Runs the CPU engine beside intel-ipsec-mb, OpenSSL and aws-lc in one process. Writes a record, a table and plots.

Builds bench/peers against the installed headers. If IPSEC_MB_DIR names the folder of a newer intel-ipsec-mb, builds
against its headers too. Arguments other than --cpu and --no-record go to the bench: see its head.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from commit import ROOT
from machine import RECORDS, machine_name
from record import Bench

PEERS = Path(__file__).with_name("peers")
WHAT = ("core cycles to seal and to open one packet, in place, in batches: the CPU engine by tier and other libraries, in turns "
        "on the same packets with the same keys; medians and minima; a library's best interface counts")
# The meaning of PEER_ARCH in ipsec_mb.c. The last two have no more than the aesni tier has.
ARCHS = {3: "AVX-512", 2: "AVX2", 1: "AVX2 without VAES", 0: "SSE"}
NARROW = (ARCHS[1], ARCHS[0])
COLOURS = {"Esplanade": ["#1f6f8b", "#53a2be", "#a5cfdd"], "intel": ["#c1440e", "#e08e5b", "#efc4a5", "#7d6b5d", "#a99c91", "#d3cbc4"],
           "OpenSSL": ["#5a7d2a"]}


def build_peers(folder: Path, avx512: bool) -> tuple[list[Path], dict[str, str]]:
    """Builds shared objects with the table of peer.h. Returns them, and the reasons why others are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [("openssl", "openssl.c", [], ["-lcrypto"])]
    places: list[tuple[str, list[str], list[str]]] = [("installed", [], [])]
    if prefix := os.environ.get("IPSEC_MB_DIR"):
        lib = next((path for path in (Path(prefix) / "lib", Path(prefix) / "lib64") if path.is_dir()), Path(prefix))
        include = next((path for path in (Path(prefix) / "include", Path(prefix)) if path.is_dir()), Path(prefix))
        places.append(("other", [f"-I{include}"], [f"-L{lib}", f"-Wl,-rpath,{lib}"]))
    for place, includes, libs in places:
        for arch in (3, 1, 0) if avx512 else (2, 1, 0):
            wanted.append((f"ipsec-mb-{place}-{arch}", "ipsec_mb.c", [*includes, f"-DPEER_ARCH={arch}"],
                           [*libs, "-lIPSec_MB"]))
    built, missing = [], {}
    for name, source, flags, libs in wanted:
        out = folder / f"{name}.so"
        command = ["cc", "-std=gnu11", "-O3", "-march=native", "-Wall", "-fPIC", "-shared", *flags, str(PEERS / source),
                   "-o", str(out), *libs]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            reason = "" if done.returncode == 0 else done.stderr.strip().splitlines()[0]
        except OSError as error:
            reason = str(error)
        if reason:
            missing[name] = reason.replace(f"{ROOT}/", "")
            print(f"SKIP {name}: {missing[name]}")
        else:
            built.append(out)
    return built, missing


def collect(rows: list[dict]) -> tuple[list[dict], list[dict]]:
    """Groups the contenders of each case, and the times of key set-up."""
    cases: dict[tuple, dict] = {}
    for row in rows:
        what = ("suite", "direction", "size", "bytes", "asked", "keys", "batch")
        case = {key: row[key] for key in what if key in row}
        entry = cases.setdefault(tuple(case.items()), case | {"contenders": {}})
        entry["contenders"][row["who"]] = {
            key: row[name] for key, name in (("median", "cycles_median"), ("min", "cycles_min"), ("samples", "samples"),
                                             ("ghz", "ghz"), ("way", "way")) if row[name] != ""}
    found = list(cases.values())
    return [case for case in found if case["direction"] != "key"], [case for case in found if case["direction"] == "key"]


def fastest_tier(names: list[str]) -> str | None:
    """The fastest tier. Tiers come in the order of their speed."""
    own = [name for name in names if name.startswith("Esplanade")]
    return own[-1] if own else None


def best_other(contenders: dict[str, dict], narrow_suite: str | None = None) -> str | None:
    """The fastest contender that is not one of our kernels; the portable tier is aws-lc. With `narrow_suite` only
    contenders count that have no more than the aesni tier has for that suite. OpenSSL 3.0 uses no wide AES
    instructions, but its ChaCha20 and Poly1305 use AVX-512."""
    others = [name for name in contenders if not name.startswith("Esplanade") or "portable" in name]
    if narrow_suite is not None:
        openssl = () if "CHACHA20" in narrow_suite else ("OpenSSL 3.0",)
        others = [name for name in others if name.endswith(NARROW) or name.startswith(openssl)]
    return min(others, key=lambda name: contenders[name]["median"], default=None)


def ratio(contenders: dict[str, dict], own: str | None, other: str | None) -> str:
    if own not in contenders or other not in contenders or own == other:
        return "–"
    return f"{contenders[other]['median'] / contenders[own]['median']:.2f}×"


def suites(cases: list[dict]) -> list[str]:
    return list(dict.fromkeys(case["suite"] for case in cases))


def contender_names(cases: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for case in cases for name in case["contenders"]))


def table(cases: list[dict], keys: list[int], limits: dict[str, float]) -> list[str]:
    """Makes a table. Rows are sizes; a cell has one figure for each number of keys."""
    names = contender_names(cases)
    own, aesni = fastest_tier(names), next((name for name in names if name == "Esplanade aesni"), None)
    head = ["bytes", "limit", *names, "best peer ÷ fastest tier"] + (["best AES-NI peer ÷ aesni"] if aesni else [])
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    by_size: dict[str, dict[int, dict]] = {}
    for case in cases:
        by_size.setdefault(case["size"], {})[case["keys"]] = case
    for size, found in by_size.items():
        here = [found[count] for count in keys if count in found]
        limit = limits.get(here[0]["suite"])
        cells = [f"{here[0]['bytes']:.0f}" if size.isdigit() else f"{size} ({here[0]['bytes']:.0f})",
                 f"{limit * here[0]['bytes']:.0f}" if limit else "–"]
        for name in names:
            cells.append(" / ".join(f"{case['contenders'][name]['median']:.0f}" if name in case["contenders"] else "–"
                                    for case in here))
        cells.append(" / ".join(ratio(case["contenders"], own, best_other(case["contenders"])) for case in here))
        if aesni:
            cells.append(" / ".join(ratio(case["contenders"], aesni, best_other(case["contenders"], case["suite"]))
                                    for case in here))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def markdown(record: dict) -> str:
    facts, cases, keys = record["machine"], record["cases"], record["keys"]
    counts = " / ".join("one key" if count == 1 else f"{count:,} keys" for count in keys)
    text = [f"# The CPU engine beside other libraries, {record['date']}", "",
            f"{facts['cores']} × {facts['cpu']}, Linux {facts['kernel']}, governor: {facts['governor']}, load at start "
            f"{facts['load_at_start']:.2f}. Commit {record['commit']}.", "", f"`{record['command']}`", "",
            f"Median core cycles per packet, {counts} in random order, in place, on one core. *bytes* are those that are "
            "encrypted: payload and trailer. *limit* is what this core needs for the instructions that no kernel for AVX-512 "
            "can do without, measured in the same run, without what each packet costs. The ratios say how many times "
            "faster the engine is than the best of the others. Opening follows a sealing with other key contexts, whose time "
            "does not count.", ""]
    for suite in suites(cases):
        text += [f"## {suite}", ""]
        for direction in ("seal", "open"):
            of_suite = [case for case in cases if case["suite"] == suite and case["direction"] == direction]
            largest = max((case["batch"] for case in of_suite), default=0)
            chosen = [case for case in of_suite if case["batch"] == largest]
            if chosen:
                text += [f"{direction.capitalize()}, batches of {largest}:", "", *table(chosen, keys, record["limits_cycles_per_byte"]), ""]
            for batch in sorted({case["batch"] for case in of_suite} - {largest}):
                smaller = [case for case in of_suite if case["batch"] == batch]
                own = fastest_tier(contender_names(smaller))
                figures = [f"{case['size']}: {case['contenders'][own]['median']:.0f} "
                           f"({ratio(case['contenders'], own, best_other(case['contenders']))})"
                           for case in smaller if case["keys"] == keys[0] and own in case["contenders"]]
                text += [f"Batches of {batch}, {own} (best peer ÷ it): {', '.join(figures)}.", ""]
    text += ["## Key set-up", "", "Median core cycles to make a key context, memory included.", ""]
    names = contender_names(record["key_set_up"])
    text += ["| | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    for case in record["key_set_up"]:
        cells = [f"{case['contenders'][name]['median']:.0f}" if name in case["contenders"] else "–" for name in names]
        text.append(f"| {case['suite']} | " + " | ".join(cells) + " |")
    text += ["", "## Interfaces", "", "Of intel-ipsec-mb the best interface counts; how often each was it:", ""]
    for name in contender_names(cases):
        ways = [case["contenders"][name].get("way") for case in cases if name in case["contenders"]]
        if any(ways):
            text.append(f"- {name}: " + ", ".join(f"{way} {ways.count(way)}" for way in dict.fromkeys(ways)))
    for name, reason in record["skipped"].items():
        text.append(f"- {name} was not measured: {reason}")
    return "\n".join(text) + "\n"


def colour(name: str, names: list[str]) -> str:
    family = next(key for key in COLOURS if name.startswith(key))
    # The fastest tier has the darkest colour.
    members = [other for other in names if other.startswith(family)]
    if family == "Esplanade":
        members.reverse()
    return COLOURS[family][members.index(name) % len(COLOURS[family])]


def pictures(record: dict, stem: Path) -> None:
    plot(record, stem.with_name(f"{stem.name}-cycles.svg"), gbit=False)
    plot(record, stem.with_name(f"{stem.name}-gbit.svg"), gbit=True)


def plot(record: dict, file: Path, gbit: bool) -> None:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    # These settings keep the file the same in every run.
    matplotlib.rcParams["svg.hashsalt"] = "engine"
    cases = [case for case in record["cases"] if case["size"].isdigit()]
    names = contender_names(cases)
    columns, rows = suites(cases), [(direction, keys) for direction in ("seal", "open") for keys in record["keys"]]
    figure, axes = pyplot.subplots(len(rows), len(columns), figsize=(2.7 * len(columns), 2.3 * len(rows)),
                                   layout="constrained", squeeze=False, sharex=True)
    for row, (direction, keys) in enumerate(rows):
        for column, suite in enumerate(columns):
            axis = axes[row][column]
            here = [case for case in cases if (case["suite"], case["direction"], case["keys"]) == (suite, direction, keys)]
            largest = max((case["batch"] for case in here), default=0)
            here = sorted((case for case in here if case["batch"] == largest), key=lambda case: case["bytes"])
            for name in names:
                points = [(case["bytes"], case["contenders"][name]["median"]) for case in here if name in case["contenders"]]
                values = [bytes_ * 8 * record["core_ghz"] / cycles if gbit else cycles / bytes_ for bytes_, cycles in points]
                axis.plot([bytes_ for bytes_, _ in points], values, marker=".", markersize=3, linewidth=1, label=name,
                          linestyle="--" if name.endswith(NARROW) else "-", color=colour(name, names), zorder=3 if name.startswith("Esplanade") else 2)
            if limit := record["limits_cycles_per_byte"].get(suite):
                axis.axhline(8 * record["core_ghz"] / limit if gbit else limit, color="black", linewidth=0.6,
                             linestyle=":", label="limit")
            axis.set_xscale("log", base=4)
            axis.set_xticks([64, 256, 1024, 4096], ["64", "256", "1024", "4096"])
            if gbit:
                axis.set_ylim(bottom=0)
            else:
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter("{x:g}")
                axis.yaxis.set_minor_formatter("")
            axis.tick_params(labelsize=6)
            axis.spines[["top", "right"]].set_visible(False)
            if row == 0:
                axis.set_title(suite, fontsize=7)
            if column == 0:
                axis.set_ylabel(f"{direction}, {keys:,} key{'s' if keys > 1 else ''}\n"
                                + ("Gbit/s" if gbit else "core cycles/byte"), fontsize=7)
            if row == len(rows) - 1:
                axis.set_xlabel("bytes", fontsize=7)
    handles = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def dump(record: dict) -> str:
    """Writes the record with one case per line."""
    lists = {key: value for key, value in record.items() if key in ("cases", "key_set_up")}
    text = json.dumps(record | dict.fromkeys(lists), indent=1, ensure_ascii=False)
    for key, value in lists.items():
        lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in value)
        text = text.replace(f'"{key}": null', f'"{key}": [\n{lines}\n ]')
    return text + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options, rest = parser.parse_known_args()
    shown = " ".join((["IPSEC_MB_DIR=…"] if "IPSEC_MB_DIR" in os.environ else []) + ["bench/engine.py", *map(shlex.quote, sys.argv[1:])])

    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    bench = Bench("esplanade-crypto", "engine", shown)
    built, skipped = build_peers(target / "peers", "avx512f" in bench.machine["flags"])
    bench.build()
    for peer in built:
        rest += ["--peer", str(peer)]
    os.sched_setaffinity(0, {options.cpu})
    rows = bench.cases(rest)
    limits = {row["limit"]: row["cycles_per_byte"] for row in rows if "limit" in row}
    for row in rows:
        if "skipped" in row:
            name, _, reason = row["skipped"].rpartition("/")[2].partition(" ")
            skipped[name.rstrip(":")] = reason
    cases, key_set_up = collect([row for row in rows if "who" in row])
    clocks = sorted(entry["ghz"] for case in cases for entry in case["contenders"].values())
    results = {
        "core_ghz": clocks[len(clocks) // 2],
        "limits_cycles_per_byte": limits,
        "keys": sorted({case["keys"] for case in cases}),
        "skipped": skipped,
        "cases": cases,
        "key_set_up": key_set_up,
    }
    record = bench.record(WHAT, results)
    if options.no_record:
        print(markdown(record))
        return 0
    RECORDS.mkdir(exist_ok=True)
    stem = f"{record['date']}-engine-{machine_name(bench.machine)}"
    (RECORDS / f"{stem}.json").write_text(dump(record))
    (RECORDS / f"{stem}.md").write_text(markdown(record))
    print(f"written: {(RECORDS / stem).relative_to(ROOT)}.json, .md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
