"""Which parameter sets of a bench run.

A parameter set is another model, which takes long to compile. The first set of each bench runs always. Of the others about
a third are drawn by the commit's hash, so that a day's commits reach all. A bench runs all of its sets
- if the branch changes what it compiles or the bench itself,
- if the run names its tests (`-k`, a file),
- with SOAK=1 in the environment, as `make soak` sets it.
Where git cannot tell what the branch changes, all sets of all benches run.
"""

import functools
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from sources import RTL, files, modules, python_path

TOOLS = RTL.parent / "tools"
sys.path.append(str(TOOLS))
import sampling  # noqa: E402

# Whose change concerns all benches: the versions of the tools, and what draws.
COMMON = {RTL / "conftest.py", RTL / "folders", RTL / "requirements.txt", TOOLS / "sampling.py"}


@dataclass
class Drawing:
    """`seed` decides what is drawn. `changed` are the files that the branch changes since the commit `base`. `all` says why all sets run, if they do."""

    seed: str
    base: str = ""
    changed: frozenset = frozenset()
    all: str = ""

    def runs(self, bench, test, at, always=1):
        """Whether the set number `at` of a test runs. `test` names the set and its test; `bench` is its file."""
        return at < always or bool(self.all) or self.concerns(bench) or sampling.is_drawn(self.seed, test)

    def concerns(self, bench):
        return bool(self.changed & reached(bench))

    def says(self):
        if self.all:
            return f"all parameter sets: {self.all}"
        return f"parameter sets are drawn by RTL_SETS={self.seed}, and all where the branch changes something since {self.base}"


@functools.cache
def reached(bench):
    """The files that a bench is made of: its folder, the Python that it imports, its module and what this is made of."""
    module = modules().get(bench.parent.name)
    found = {*COMMON, *(path for path in bench.parent.iterdir() if path.is_file())}
    waiting = [path for path in found if path.suffix == ".py"]
    while waiting:
        named = re.findall(r"^(?:import|from) (\w+)", waiting.pop().read_text(), re.MULTILINE)
        new = {path for name in named for folder in python_path() if (path := folder / f"{name}.py").exists()} - found
        waiting += new
        found |= new
    return found | (files(module) if module else set())


def drawing(named=False, environment=os.environ, root=RTL.parent):
    """The drawing of this run. `named` says that the run names its tests."""
    if environment.get("SOAK"):
        return Drawing("", all="SOAK is set")
    if named:
        return Drawing("", all="the run names its tests")
    seed = environment.get("RTL_SETS") or sampling.git("rev-parse", "--short=12", "HEAD", root=root)
    base, changed = sampling.changes(root)
    if not seed or not base:
        return Drawing("", all="git cannot tell what the branch changes")
    return Drawing(seed, base[:12], changed)
