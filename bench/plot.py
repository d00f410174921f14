"""Draws the pictures of a record, which is not more than its table shows. They go to target/plots.

Usage: .venv/bin/python bench/plot.py bench/records/2026-11-27-tunnel-2x-amd-epyc.json
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from setups import ROOT

PLOTS = ROOT / "target/plots"
# The part of a record's name that says which program wrote it.
PROGRAMS = ("engine", "sections", "tunnel", "zynq")


def main() -> None:
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".json"):
        sys.exit(__doc__)
    file = Path(sys.argv[1])
    program = next((name for name in PROGRAMS if f"-{name}" in file.stem), None)
    if program is None:
        sys.exit(f"{file.name}: only records of {', '.join(PROGRAMS)} have pictures")
    PLOTS.mkdir(parents=True, exist_ok=True)
    importlib.import_module(program).pictures(json.loads(file.read_text()), PLOTS / file.stem)
    for drawn in sorted(PLOTS.glob(f"{file.stem}*.svg")):
        print(drawn.relative_to(ROOT))


if __name__ == "__main__":
    main()
