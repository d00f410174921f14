"""Runs benches that are one process, and writes records of them."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Sequence

from commit import commit
from setups import ROOT
from tunnel import RECORDS, machine, machine_name


class Bench:
    """One `cargo bench` bench, and the state of the machine before its first run."""

    def __init__(self, package: str, name: str, shown: str | None = None):
        self.name = name
        self.command = ["cargo", "bench", "--locked", "--package", package, "--bench", name]
        self.shown = shown or " ".join(self.command)
        self.machine = machine()

    def build(self) -> None:
        """Builds the bench and does not run it, so that only the run has to be pinned and not the compiler."""
        subprocess.run([*self.command, "--no-run"], cwd=ROOT, check=True)

    def run(self, arguments: Sequence[str] = ()) -> str:
        """Runs the bench and returns its output, which is also shown as it comes."""
        command = [*self.command, *(["--", *arguments] if arguments else [])]
        printed = []
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
            for line in bench.stdout:
                print(line, end="", flush=True)
                printed.append(line)
        if bench.returncode != 0:
            sys.exit(f"{' '.join(command)} failed with {bench.returncode}")
        return "".join(printed)

    def cases(self, arguments: Sequence[str] = ()) -> list[dict]:
        """The lines of JSON that the bench prints."""
        found = [json.loads(line) for line in self.run(arguments).splitlines() if line.startswith("{")]
        if not found:
            sys.exit(f"{self.shown} printed no results")
        return found

    def record(self, what: str, results: dict[str, object], how: str = "") -> dict[str, object]:
        return {
            "what": what,
            "date": datetime.date.today().isoformat(),
            "commit": commit(),
            "command": self.shown + how,
            "machine": self.machine,
            **results,
        }

    def write(self, what: str, results: dict[str, object], how: str = "") -> None:
        record = self.record(what, results, how)
        RECORDS.mkdir(exist_ok=True)
        file = RECORDS / f"{record['date']}-{self.name}-{machine_name(self.machine)}.json"
        file.write_text(json.dumps(record, indent=2) + "\n")
        print(f"record: {file.relative_to(ROOT)}")
