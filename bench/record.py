"""Runs benches that are one process, and writes records of them."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from commit import ROOT, commit
from machine import RECORDS, machine, machine_name


class Bench:
    """One `cargo bench` bench, and the state of the machine before its first run.

    `program` is a file that `prebuild` has made, for a machine without cargo.
    """

    def __init__(self, package: str, name: str, shown: str | None = None, program: Path | None = None):
        self.name = name
        self.program = program
        self.command = ["cargo", "bench", "--locked", "--package", package, "--bench", name]
        self.shown = shown or (program.name if program else " ".join(self.command))
        self.machine = machine()
        # Why runs with a limit have not come to their end.
        self.failures: list[str] = []

    def build(self) -> None:
        """Builds the bench and does not run it, so that only the run has to be pinned and not the compiler."""
        if self.program is None:
            subprocess.run([*self.command, "--no-run"], cwd=ROOT, check=True)

    def prebuild(self, folder: Path, tests: Sequence[str] = ()) -> None:
        """Puts the bench and tests of its package into a folder, each as a program, with the commit's name beside."""
        command = [*self.command, *(word for test in tests for word in ("--test", test)), "--no-run"]
        built = subprocess.run([*command, "--message-format=json-render-diagnostics"], cwd=ROOT, check=True, text=True,
                               stdout=subprocess.PIPE)
        messages = [json.loads(line) for line in built.stdout.splitlines()]
        programs = {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}
        folder.mkdir(parents=True, exist_ok=True)
        for name in (self.name, *tests):
            shutil.copy2(programs[name], folder / name)
            if strip := shutil.which("strip"):
                subprocess.run([strip, "--strip-debug", folder / name], check=True)
            print(f"built: {folder / name}")
        (folder / "commit").write_text(commit() + "\n")

    def commit(self) -> str:
        beside = self.program and self.program.with_name("commit")
        return beside.read_text().strip() if beside and beside.exists() else commit()

    def run(self, arguments: Sequence[str] = (), limit: float | None = None) -> str:
        """Runs the bench and returns its output, which is also shown as it comes.

        A bench with a limit in seconds is killed after it. Then what it has printed counts, and so it does if it fails.
        """
        arguments = list(arguments)
        command = [*self.command, *(["--", *arguments] if arguments else [])]
        if self.program:
            command = [str(self.program), *arguments]
        printed = []
        # Cargo's bench is a child of cargo, and holds the pipe. So a limit ends a whole group of processes.
        group = 0 if limit else None
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=group) as bench:
            killer = threading.Timer(limit or 0, os.killpg, (bench.pid, signal.SIGKILL))
            try:
                if limit:
                    killer.start()
                for line in bench.stdout:
                    print(line, end="", flush=True)
                    printed.append(line)
                bench.wait()
            except KeyboardInterrupt:
                if limit:
                    os.killpg(bench.pid, signal.SIGKILL)
                raise
            finally:
                killer.cancel()
        if bench.returncode != 0:
            why = f"{' '.join(command)} failed with {bench.returncode}"
            if not limit:
                sys.exit(why)
            self.failures.append(why)
        return "".join(printed)

    def cases(self, arguments: Sequence[str] = (), limit: float | None = None) -> list[dict]:
        """The lines of JSON that the bench prints."""
        lines = self.run(arguments, limit).splitlines(keepends=True)
        # The last line of a bench that was killed may be a part of one.
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
        if not found:
            sys.exit(f"{self.shown} printed no results")
        return found

    def record(self, what: str, results: dict[str, object], how: str = "") -> dict[str, object]:
        return {
            "what": what,
            "date": datetime.date.today().isoformat(),
            "commit": self.commit(),
            "command": self.shown + how,
            "machine": self.machine,
            **results,
        }

    def write(self, what: str, results: dict[str, object], how: str = "", folder: Path = RECORDS) -> None:
        self.keep(self.record(what, results, how), folder=folder)

    def keep(self, record: dict[str, object], page: str | None = None, folder: Path = RECORDS) -> None:
        """Writes a record, and its page beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{record['date']}-{self.name}-{machine_name(self.machine)}.json"
        file.write_text(json.dumps(record, indent=2) + "\n")
        if page is not None:
            file.with_suffix(".md").write_text(page)
        print(f"record: {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}")
