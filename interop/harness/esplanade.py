"""Runs the program under test."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import signal
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
        self.config.write_text(render({"gateway": self.gateway | settings.gateway,
                                       "connections": settings.connections, "secrets": secrets}))
        self.config.chmod(0o600)

    def launch(self, settings: Settings | None = None) -> Process:
        """Starts the daemon and does not wait until it is ready."""
        if settings is not None:
            self.write(settings)
        self.socket.unlink(missing_ok=True)
        argv = [*self.wrapper, self.program, "run", "--config", self.config]
        if self.keys:
            argv += ["--export-keys", self.keys]
        argv += self.arguments
        self._process = Process(self.space.wrap(argv), log=self.log, stderr=self.stderr, cwd=self.folder)
        return self._process

    def start(self, settings: Settings) -> None:
        process = self.launch(settings)
        wait_until(f"{self.name} is ready", lambda: process.returncode is not None or self.ready())
        if process.returncode is not None:
            raise HarnessError(f"{self.name} ended at start with {process.returncode}\n{self.logs()}")

    def ready(self) -> bool:
        return self.socket.exists() and self.command("status", "--json", check=False).returncode == 0

    def command(self, verb: str, *arguments: str, check: bool = True, timeout: float = 30):
        return run([self.program, verb, "--socket", self.socket, *arguments], check=check, timeout=timeout)

    def status(self) -> dict:
        return json.loads(self.command("status", "--json").stdout)

    def drops(self, reason: str) -> int:
        """The number of packets or messages that were refused for this reason since the start."""
        assert reason in _named(), f"nothing is counted as {reason!r}"
        return _sum_of(self.status()["counters"], reason)

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
        return self.keys.read_text().splitlines()

    def logs(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@functools.cache
def _named() -> set[str]:
    """All words of the program's sources. A counter with a wrong name would always read zero, so names are
    checked."""
    sources = (path.read_text() for path in (ROOT / "crates").glob("*/src/**/*.rs"))
    words = {word for source in sources for word in re.findall(r"[a-z][a-z0-9_-]+", source)}
    return words | {word.replace("_", "-") for word in words}


def _sum_of(value, key: str) -> int:
    """The sum of the numbers under `key`, wherever they stand."""
    if isinstance(value, dict):
        if key in value:
            return int(value[key])
        return sum(_sum_of(item, key) for item in value.values())
    if isinstance(value, list):
        return sum(_sum_of(item, key) for item in value)
    return 0
