"""Benches that run in one process, and the records of them."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

from setups import ROOT
from tunnel import RECORDS, commit, machine, machine_name


class Bench:
    """`cargo bench` of one bench, on a machine as it is before the first run."""

    def __init__(self, package: str, name: str):
        self.name = name
        self.command = ["cargo", "bench", "--locked", "--package", package, "--bench", name]
        self.machine = machine()

    def run(self) -> str:
        """What it prints, shown as it comes."""
        printed = []
        with subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
            for line in bench.stdout:
                print(line, end="", flush=True)
                printed.append(line)
        if bench.returncode != 0:
            sys.exit(f"{' '.join(self.command)} failed with {bench.returncode}")
        return "".join(printed)

    def cases(self) -> list[dict]:
        """The lines of JSON that it prints."""
        found = [json.loads(line) for line in self.run().splitlines() if line.startswith("{")]
        if not found:
            sys.exit(f"{' '.join(self.command)} printed no results")
        return found

    def write(self, what: str, results: dict[str, object], how: str = "") -> None:
        date = datetime.date.today().isoformat()
        record = {
            "what": what,
            "date": date,
            "commit": commit(),
            "command": " ".join(self.command) + how,
            "machine": self.machine,
            **results,
        }
        RECORDS.mkdir(exist_ok=True)
        file = RECORDS / f"{date}-{self.name}-{machine_name(self.machine)}.json"
        file.write_text(json.dumps(record, indent=2) + "\n")
        print(f"record: {file.relative_to(ROOT)}")
