"""The logic that the RTL takes and the clocks that it reached after placing and routing. The figures come from the
records that `rtl/syn/ecp5.py` wrote."""

from __future__ import annotations

import json
import re

from commit import ROOT
from machine import RECORDS


def shell(name: str) -> dict[str, int]:
    """The parameters with which a top is synthesised."""
    text = (ROOT / "rtl" / "syn" / f"shell_{name}.sv").read_text()
    return {key: int(value) for key, value in re.findall(r"parameter int unsigned (\w+) += (\d+)", text)}


def routed(name: str, **parameters: int) -> dict[str, dict[str, object]]:
    """The best clock of each part, slowest part first. It comes from the part's newest record of a top (or a variant
    of it, NAME-…) with these parameters of its shell. Unset parameters are 0."""
    found = []
    for path in RECORDS.glob(f"*-rtl-{name}*.json"):
        variant = path.stem.split(f"-rtl-{name}", 1)[1]
        record = json.loads(path.read_text())
        values = record.get("parameters", {})
        if variant[:1] in ("", "-") and all(int(values.get(k, 0)) == v for k, v in parameters.items()):
            found.append((record["date"], variant == "", path.stem, record))
    best: dict[str, dict[str, object]] = {}
    for *_, file, record in sorted(found, key=lambda entry: entry[:3], reverse=True):
        for part, mhz in clocks(record).items():
            best.setdefault(part, {"mhz": mhz, "file": file, "commit": record["commit"]})
    return dict(sorted(best.items(), key=lambda entry: entry[1]["mhz"]))


def synthesised(name: str) -> dict[str, object] | None:
    """The newest record of that name, placed and routed or not."""
    found = sorted(RECORDS.glob(f"*-rtl-{name}.json"))
    return json.loads(found[-1].read_text()) | {"file": found[-1].stem} if found else None


def clocks(record: dict[str, object] | None) -> dict[str, float]:
    """The best seed's clock of each part in MHz, slowest grade first."""
    best: dict[str, float] = {}
    for run in (record or {}).get("routed", []):
        best[run["part"]] = max(run["mhz"], best.get(run["part"], 0.0))
    return dict(sorted(best.items(), key=lambda entry: entry[1]))


def described(found: dict[str, dict[str, object]]) -> str:
    return ", ".join(f"{part} {best['mhz']} MHz ({best['file']}.json of commit {best['commit']})" for part, best in found.items())
