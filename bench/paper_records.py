"""The records that the tables of the papers take their figures from, and what a row says of its record."""

from __future__ import annotations

import json
import re
from pathlib import Path

import designs
from machine import RECORDS
from pages import FORMER, Verdict, markdown_table

PYTHON = ".venv/bin/python"
ROUTE = "make rtl"  # places and routes what the records have
# The parts that ours are placed on, in a word.
GRADES = {"LFE5U-85F-6": "grade 6", "LFE5UM5G-85F-8": "grade 8"}


class Records:
    """The newest records of each kind, and those that the tables have used."""

    def __init__(self, folder: Path = RECORDS):
        self.folder, self.used, self.states = folder, {}, {}

    def all(self, kind: str) -> list[dict]:
        """The records whose names have this after the date, newest first. A record of changes that no commit has does not count."""
        paths = sorted(self.folder.glob(f"????-??-??-{kind}.json"), reverse=True)
        found = [json.loads(path.read_text()) | {"file": path.stem} for path in paths]
        return [record for record in found if not str(record["commit"]).endswith("-dirty")]

    def newest(self, kind: str, *keys: str) -> dict | None:
        return next((record for record in self.all(kind) if all(key in record for key in keys)), None)

    def changed(self, record: dict) -> list[str]:
        """The designs of a record whose sources have changed since."""
        if record["file"] not in self.states:
            self.states[record["file"]] = designs.changed(record["file"], record)
        return self.states[record["file"]]

    def cite(self, record: dict) -> str:
        self.used[record["file"]] = record
        former = f", {FORMER}" if self.changed(record) else ""
        return f"[{short(record)}](../bench/records/{record['file']}.json){former}"

    def judge(self, given: Verdict, *made_of: dict | None) -> Verdict:
        """A verdict by these records. What they say of RTL that has changed since speaks for nothing, but may speak against us."""
        former = any(record and self.changed(record) for record in made_of)
        return Verdict.of(FORMER, given.ratios) if former and given in ("yes", "partly") else given

    def listed(self) -> list[str]:
        lines = []
        for name in sorted(self.used):
            record = self.used[name]
            changed = ", ".join(self.changed(record))
            state = f"{changed} changed" if changed else "the same" if designs.tops(name, record) else "–"
            lines.append([f"[{short(record)}](../bench/records/{name}.json)", record["date"], made(record), f"`{record['commit']}`", state])
        head = ("record", "date", "made on", "commit", "RTL since then")
        return ["## Records", "", *markdown_table(head, lines, len(head))][:-1]


def short(record: dict) -> str:
    """What was measured, and the day."""
    stem = record["file"][11:]
    slug = re.match(r"(.*?)-\d+x-", stem)
    return f"{slug[1] if slug else stem}, {record['file'][5:10]}"


def made(record: dict) -> str:
    """Where a record was made."""
    if machine := record.get("machine"):
        flags = machine.get("flags", [])
        tier = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ""
        facts = [f"{machine['cores']} × {machine['cpu']}", tier, f"Linux {machine['kernel']}" if "kernel" in machine else ""]
        facts += [f"load {machine['load_at_start']:.1f}" if "load_at_start" in machine else "", f"device {record['device']}" if "device" in record else ""]
        return ", ".join(filter(None, facts))
    return ("placed and routed" if record["routed"] else "synthesised") if "routed" in record else "simulated"


def script(name: str) -> str:
    return f"{PYTHON} bench/{name}"


def by_part(rates: dict[str, float], digits: int) -> str:
    """A figure for each part."""
    return ", ".join(f"{rate:.{digits}f} at {GRADES.get(part, part)}" for part, rate in rates.items())


def clock_records(routed: dict[str, dict]) -> list[dict]:
    """The records of place and route that clocks come from, as `clocks.routed` names them."""
    files = dict.fromkeys(one["file"] for one in routed.values())
    return [json.loads((RECORDS / f"{file}.json").read_text()) | {"file": file} for file in files]
