"""A function in a process of its own, forked from this one: no program has to be started for it."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable

from .namespaces import Namespace
from .process import HarnessError


class Branch:
    """Calls `function(control, *arguments)` inside a namespace. What it returns comes back as JSON. `control` is a
    descriptor that `tell` writes to, and that ends with us."""

    def __init__(self, space: Namespace, function: Callable, *arguments, keep: tuple[int, ...] = ()):
        self._name = function.__name__
        self._result, result = os.pipe()
        control, self._control = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _run(space, function, control, arguments, result, {*keep, control, result})
        os.close(result)
        os.close(control)
        self._over = False

    def tell(self, data: bytes) -> None:
        try:
            os.write(self._control, data)
        except BrokenPipeError:
            pass  # it has ended, and `result` says how

    def result(self, timeout: float = 30):
        """What the function returns; waits for its end."""
        text, deadline = b"", time.monotonic() + timeout
        while select.select([self._result], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(self._result, 65536)
            if not part:
                break
            text += part
        else:
            self.end()
            raise HarnessError(f"{self._name} did not end within {timeout} s")
        self.end()
        said, value = json.loads(text) if text else ("failed", "it was killed")
        if said != "returned":
            raise HarnessError(f"{self._name}: {value}")
        return value

    def end(self) -> None:
        if not self._over:
            self._over = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._result)
            os.close(self._control)


def _run(space, function, control, arguments, result, keep) -> None:
    """The child's part, which never returns into the test."""
    try:
        # Nothing of the parent's may be finalized, flushed or signalled here.
        gc.disable()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number not in keep:
                try:
                    os.close(number)
                except OSError:
                    pass  # that of the list itself
        # The namespace's end finds the process by this.
        space.enter()
        answer = ("returned", function(control, *arguments))
    except BaseException:
        answer = ("failed", traceback.format_exc())
    try:
        os.write(result, json.dumps(answer).encode())
    finally:
        os._exit(0)
