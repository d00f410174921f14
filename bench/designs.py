"""The sources of an RTL design: which files it is made of, and a digest of them, by which a record says of what it was made.

A record of synthesis or simulation has the digests of its designs as `sources`. Those of older records were computed from
their commits; they stand in `designs.json`. `bench/designs.py` computes them again, which needs the whole history.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from pathlib import Path

from commit import ROOT, git
from machine import RECORDS

FILE = Path(__file__).with_name("designs.json")
# What the simulated records ran: the tops of their benches.
SIMULATED = {"zynq": ("esp_out", "esp_in"), "sections": ("esp_sections",), "ace-cores": ("ace_cipher",)}


def code(text: str) -> str:
    """The text without comments and with single spaces: neither changes a circuit."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return " ".join(text.split())


def is_design(path: str) -> bool:
    return path.startswith("rtl/") and path.endswith(".sv") and not {"tb", "formal"} & set(path.split("/"))


@functools.cache
def present() -> dict[str, str]:
    """The code of the modules and packages of this checkout, by name."""
    files = (path for path in (ROOT / "rtl").rglob("*.sv") if is_design(path.relative_to(ROOT).as_posix()))
    return {path.stem: code(path.read_text()) for path in files}


@functools.cache
def of_commit(commit: str) -> dict[str, str] | None:
    """The same of a commit, or nothing where this checkout does not have it."""
    paths = [path for path in git("ls-tree", "-r", "--name-only", commit, "rtl").splitlines() if is_design(path)]
    return {Path(path).stem: code(git("show", f"{commit}:{path}")) for path in paths} or None


@functools.cache
def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def parts(modules: dict[str, str], top: str) -> set[str]:
    """The modules and packages that a design is made of."""
    reached, waiting = {top}, [top]
    while waiting:
        new = (words(modules[waiting.pop()]) & modules.keys()) - reached
        reached |= new
        waiting += new
    return reached


def digest(top: str, modules: dict[str, str] | None = None) -> str:
    modules = present() if modules is None else modules
    if top not in modules:
        return "none"
    text = "\n".join(f"{name} {modules[name]}" for name in sorted(parts(modules, top)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digests(*tops: str) -> dict[str, str]:
    """What a new record says of its sources."""
    return {top: digest(top) for top in tops}


def tops(stem: str, record: dict) -> tuple[str, ...]:
    """The designs of a record."""
    kind = stem[11:]
    return (record["top"],) if kind.startswith("rtl-") and "top" in record else SIMULATED.get(kind, ())


@functools.cache
def earlier() -> dict[str, dict[str, str]]:
    return json.loads(FILE.read_text())


def changed(stem: str, record: dict) -> list[str]:
    """The designs of this record whose sources have changed since it was made."""
    made = record.get("sources") or earlier().get(stem, {})
    return [top for top in tops(stem, record) if made.get(top) != digest(top)]


def of_history(stem: str, record: dict) -> dict[str, str] | None:
    """The digests by the record's commit, or nothing where the history does not have it."""
    modules = of_commit(record["commit"].removesuffix("-dirty"))
    return modules and {top: digest(top, modules) for top in tops(stem, record)}


def main() -> None:
    found = {}
    for path in sorted(RECORDS.glob("*.json")):
        record = json.loads(path.read_text())
        if "sources" in record or not tops(path.stem, record):
            continue
        found[path.stem] = of_history(path.stem, record) or sys.exit(f"{path.name}: this checkout has no commit {record['commit']}")
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {FILE.relative_to(ROOT)}, {len(found)} records")


if __name__ == "__main__":
    main()
