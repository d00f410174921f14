"""Runs the program under test."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from .control import Control
from .namespaces import Namespace
from .process import HarnessError, Process, run, wait_until
from .settings import Settings, render

ROOT = Path(__file__).parents[2]


def binary() -> Path:
    if chosen := os.environ.get("ESPLANADE_BIN"):
        return Path(chosen)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "esplanade"


class Esplanade(Control):
    kind = "esplanade"

    def __init__(self, name: str, space: Namespace, folder: Path, *, export_keys: bool = True,
                 retransmit_timeout: float = 1.0, retransmit_tries: int = 3):
        self.name, self.space, self.folder = f"{name} (esplanade)", space, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "control"
        self.log = folder / "esplanade.log"
        self.config = folder / "esplanade.conf"
        self.keys: Path | None = folder / "keys" if export_keys else None
        self.program = binary()
        self.wrapper: list[str] = []
        self.trial = ""
        # Arguments of `run` besides those that every test needs.
        self.arguments: list[str] = []
        # A descriptor that replaces the log file.
        self.stderr: int | None = None
        self.gateway = {"socket": str(self.socket), "log_level": os.environ.get("ESPLANADE_LOG", "debug"),
                        "retransmit_timeout": f"{retransmit_timeout:g}s",
                        "retransmit_tries": retransmit_tries}
        self._process: Process | None = None

    def write(self, settings: Settings) -> None:
        secrets = copy.deepcopy(settings.secrets)
        for number, key in enumerate(settings.keys):
            secrets[f"private-{number}"] = {"file": str(key)}
        gateway = self.gateway | settings.gateway
        # Engines that are slow or fail on purpose (crates/engines/src/trials.rs).
        self.trial = gateway.pop("trial", "")
        self.config.write_text(render({"gateway": gateway,
                                       "connections": settings.connections, "secrets": secrets,
                                       "authorities": settings.status_sources}))
        self.config.chmod(0o600)
        for name, files in settings.certificate_folders():
            folder = self.folder / name
            shutil.rmtree(folder, ignore_errors=True)
            for file in files:
                folder.mkdir(exist_ok=True)
                shutil.copy(file, folder)

    def launch(self, settings: Settings | None = None) -> Process:
        """Starts the daemon and does not wait until it is ready."""
        if settings is not None:
            self.write(settings)
        self.socket.unlink(missing_ok=True)
        trial = ["env", f"ESPLANADE_TRIAL={self.trial}"] if self.trial else []
        argv = [*self.wrapper, *trial, self.program, "run", "--config", self.config]
        if self.keys:
            argv += ["--export-keys", self.keys]
        argv += self.arguments
        self._process = Process(self.space.wrap(argv), log=self.log, stderr=self.stderr, cwd=self.folder)
        return self._process

    def start(self, settings: Settings) -> None:
        self.launch(settings).wait_ready(self.name, self.ready, self.logs)

    def ready(self) -> bool:
        return self.socket.exists() and self.command("status", "--json", check=False).returncode == 0

    def command(self, verb: str, *arguments: str, check: bool = True, timeout: float = 30):
        return run([self.program, verb, "--socket", self.socket, *arguments], check=check, timeout=timeout)

    def status(self) -> dict:
        return json.loads(self.command("status", "--json").stdout)

    def counter(self, name: str) -> int:
        """A counter since the start, by its place in `status --json` (`drops.no-sa`), or by its name where only one place
        has it. Any other name is an error: it would always be zero."""
        return find_counter(self.status()["counters"], name)

    def counted(self) -> str:
        """All counters that are not zero, or why there are none: for the report of a failed test."""
        try:
            found = _places(self.status()["counters"])
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            return f"no counters: {error}"
        return "\n".join(f"{place} {value}" for place, value in found if value)

    def load(self, settings: Settings) -> None:
        self.write(settings)
        self.command("reload")

    def up(self, child: str = "net", *, check: bool = True, timeout: int = 12):
        return self.command("up", child, check=check, timeout=timeout + 10)

    def down(self, connection: str = "site") -> None:
        self.command("down", connection)

    def down_child(self, child: str = "net") -> None:
        self.swanctl("--terminate", "--child", child, "--timeout", "8")

    def kill(self) -> None:
        """Kills the daemon, which tells its peer nothing."""
        self._process.stop(signal.SIGKILL)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> int | None:
        return self._process.stop(signal.SIGTERM) if self._process else None

    def key_lines(self) -> list[str]:
        """The exported keys. A thread of the gateway writes them, a little after their SAs have come up."""
        if self._process and self._process.returncode is None:
            wait_until("the keys are written", lambda: self.counter("key-export.waiting") == 0)
        return self.keys.read_text().splitlines()

    def logs(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def find_counter(counters: dict, name: str) -> int:
    """The counter at the place `name`, or at the one place whose last part is `name`."""
    places = dict(_places(counters))
    if name in places:
        return places[name]
    found = [place for place in places if place.endswith(f".{name}")]
    if len(found) != 1:
        raise HarnessError(f"{name!r} names {len(found)} counters {found}; there are {sorted(places)}")
    return places[found[0]]


def _places(section: dict, prefix: str = ""):
    """Every counter with its place."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _places(value, f"{prefix}{key}.")
        elif isinstance(value, int):
            yield prefix + key, value
