"""Child processes inside network namespaces, which never outlive the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class HarnessError(AssertionError):
    """A step of the harness failed. The message holds the output of the tool."""


def run(argv: Sequence[str], *, stdin: str | None = None, check: bool = True, timeout: float = 30,
        env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(a) for a in argv], input=stdin, text=True, capture_output=True, timeout=timeout,
                          env=None if env is None else {**os.environ, **env}, cwd=cwd, errors="replace")
    if check and done.returncode != 0:
        raise HarnessError(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Process:
    """A background process in its own session, so that its whole group can be ended."""

    def __init__(self, argv: Sequence[str], *, log: Path | None = None, env: dict[str, str] | None = None,
                 stdin: int | None = subprocess.DEVNULL, stdout: int | None = None, stderr: int | None = None,
                 cwd: Path | None = None):
        self.argv = [str(a) for a in argv]
        self._log = open(log, "ab") if log else None
        rest = self._log or subprocess.DEVNULL
        out, err = (rest if one is None else one for one in (stdout, stderr))
        self.popen = subprocess.Popen(self.argv, stdin=stdin, stdout=out, stderr=err,
                                      env=None if env is None else {**os.environ, **env}, cwd=cwd,
                                      start_new_session=True)

    @property
    def returncode(self) -> int | None:
        return self.popen.poll()

    def send_signal(self, number: int) -> None:
        try:
            os.killpg(self.popen.pid, number)
        except ProcessLookupError:
            pass

    def stop(self, number: int = signal.SIGTERM, grace: float = 5) -> int:
        if self.popen.poll() is None:
            self.send_signal(number)
            try:
                self.popen.wait(grace)
            except subprocess.TimeoutExpired:
                self.send_signal(signal.SIGKILL)
                self.popen.wait(5)
        # The signal also ends children that the leader left behind.
        self.send_signal(signal.SIGKILL)
        if self._log:
            self._log.close()
        return self.popen.returncode

    def wait_ready(self, name: str, is_ready: Callable[[], object], logs: Callable[[], str], timeout: float = 10) -> None:
        """Waits until a daemon can be used. One that ends before is an error, with what it has logged."""
        wait_until(f"{name} is ready", lambda: self.returncode is not None or is_ready(), timeout)
        if self.returncode is not None:
            raise HarnessError(f"{name} ended at start with {self.returncode}\n{logs()}")


def unpacked_or_reason(product: str, root: Path, program: str) -> str | None:
    """The reason why a program cannot run that tools/deps.sh has unpacked below `root`, or None."""
    path = root / program
    if not path.exists():
        return f"{product} is not unpacked in {root} (tools/deps.sh)"
    lacking = re.findall(r"(\S+) => not found", run(["ldd", path], check=False).stdout)
    return f"{path.name} lacks {', '.join(lacking)} (tools/deps.sh)" if lacking else None


def wait_until(what: str, condition: Callable[[], object], timeout: float = 10, step: float = 0.05):
    """Polls until the condition is true and returns its value. The error message names what was awaited."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise HarnessError(f"not within {timeout} s: {what} (last: {value!r})")
        time.sleep(step)
