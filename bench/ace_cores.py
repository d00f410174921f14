"""Tables 1 and 2 of the ACE paper: throughput and key-setup latency, the paper's beside those of the cores in rtl/ace.

Ours are the cycles that the bench of ace_cipher asserts (rtl/ace/tb/ace_cipher/cycles.json) at the clock of the newest record
of `rtl/syn/ecp5.py --name ace-…`. Nothing is simulated or routed here. Writes a record with a table.
"""

from __future__ import annotations

import argparse
import datetime
import json

import clocks
from commit import ROOT, commit
from designs import SIMULATED, digests
from machine import RECORDS
from paper_tables import CIPHERS, Cipher

CYCLES = ROOT / "rtl" / "ace" / "tb" / "ace_cipher" / "cycles.json"


# The bench's variant that has a record's cycle counts for keys of 128 bits. Where there is none for encryption only, the
# core of both directions takes the same cycles.
SHORT = "-Decrypts0-LongKeys0"
NOTES = (
    "Throughput is 128 bits ÷ cycles × clock. *Ring full* is for blocks that do not depend on each other (ECB, CTR) or that "
    "belong to several packets. *One at a time* is for blocks of which each waits for the one before (CBC encryption of one "
    "packet); its cycles are from a block that was taken to its result, with the registers of the port.",
    "The latency is from the cycle that takes the key to the cycle in which a block starts its first round. The paper says that "
    "its own is the time to adapt to a key, and gives neither clock nor cycles. RC6 rewrites all subkeys three times, so its "
    "first round cannot begin before the third pass: 0.15 block times, as the paper has, are too few for that by any count.",
    "The paper's cores were placed and routed for Virtex, speed grade 6, with Foundation 2.1i, and do encryption with keys of 128 bits. "
    "Ours are LFE5U-85F at speed grade 6 and LFE5UM5G-85F at grade 8, one seed. Counts are those of synthesis, with the registers of the shell around the core.",
)


def ours(row: Cipher, name: str, cycles: dict, record: dict | None) -> dict:
    """What a core reaches at each of its clocks."""
    found = {"core": name, "cipher": row.name, "cycles": cycles, "paper_mbit_s": row.mbit_s[1], "paper_latency_us": row.latency_us[1], "routed": {}}
    if record:
        found |= {"record": record["file"], "commit": record["commit"], "cells": record["synthesis"]["cells"]}
        for part, mhz in clocks.clocks(record).items():
            found["routed"][part] = {
                "mhz": mhz, "mbit_s": round(128 * mhz / cycles["rate"], 1), "one_mbit_s": round(128 * mhz / cycles["block"], 1),
                "latency_us": round(cycles["encrypt"] / mhz, 3),
            }  # fmt: skip
    return found


def rows() -> list[dict]:
    cycles = json.loads(CYCLES.read_text())
    found = []
    for row in CIPHERS:
        cipher = row.name.lower()
        for name, variant in ((f"ace-{cipher}-128", cipher + SHORT), (f"ace-{cipher}", cipher)):
            found.append(ours(row, name, cycles.get(variant, cycles[cipher])["128"], clocks.synthesised(name)))
    return found


HEAD = (
    "core", "cycles, ring full", "cycles, one at a time", "cycles to the first round", "LUT4", "flip-flops", "block RAM", "multipliers", "part", "MHz",
    "Mbit/s, ring full", "of the paper's", "Mbit/s, one at a time", "latency, µs", "the paper's", "record",
)  # fmt: skip


def lines(row: dict) -> list[list[str]]:
    """A line for each part."""
    cells, counts = row.get("cells", {}), row["cycles"]
    used = [str(cells.get(kind, "–")) for kind in ("LUT4", "TRELLIS_FF", "DP16KD", "MULT18X18D")]
    rates = [
        [part, f"{one['mhz']:g}", f"{one['mbit_s']:.0f}", f"{one['mbit_s'] / row['paper_mbit_s']:.1f}×", f"{one['one_mbit_s']:.0f}", f"{one['latency_us']:.2f}"]
        for part, one in row["routed"].items()
    ]
    first = [row["core"], f"{counts['rate']:g}", str(counts["block"]), str(counts["encrypt"]), *used]
    last = [f"{row['paper_latency_us']:.2f}", f"{row['record']}.json" if "record" in row else "none"]
    return [first + each + last for each in rates or [["–"] * 6]]


def text(record: dict) -> str:
    found = [f"# The cores of the ACE paper, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`.", ""]
    found += [f"- {note}" for note in record["notes"]]
    found += ["", "|" + "|".join(HEAD) + "|", "|---" + "|---:" * (len(HEAD) - 2) + "|---|"]
    return "\n".join(found + ["|" + "|".join(line) + "|" for row in record["rows"] for line in lines(row)] + [""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    record = {
        "what": "The AES finalists on ECP5, cycles and clocks", "date": datetime.date.today().isoformat(), "commit": commit(),
        "sources": digests(*SIMULATED["ace-cores"]),
        "command": "bench/ace_cores.py", "notes": NOTES, "rows": rows(),
    }  # fmt: skip
    for shown in (HEAD, *(line for row in record["rows"] for line in lines(row))):
        print(" | ".join(shown))
    if not arguments.no_record:
        stem = RECORDS / f"{record['date']}-ace-cores"
        stem.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")
        stem.with_suffix(".md").write_text(text(record))
        print(f"written: {stem.relative_to(ROOT)}.md")


if __name__ == "__main__":
    main()
