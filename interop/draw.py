"""Which cases of many like ones a run takes. The commit decides, so that a run can be had again, and each case comes up
in some commit.

    drawn           of the cases with Esplanade at both ends a third runs
    one_direction   of two cases that differ only in which end strongSwan is at, one runs

All cases run with INTEROP_ALL=1, of test files that differ from the main branch, and where cases are asked for by name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

SHARE = 3
WHOLE = os.environ.get("INTEROP_ALL", "0") not in ("", "0")
SEED, TOUCHED = "INTEROP_SEED", "INTEROP_TOUCHED"
FOLDER = Path(__file__).parent


def git(*arguments: str) -> str | None:
    """What git says, or None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=FOLDER, text=True, capture_output=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def prepare() -> None:
    """Leaves the seed and the touched files in the environment, where the workers find them."""
    if WHOLE or os.environ.get(SEED):
        return
    if seed := git("rev-parse", "HEAD"):
        os.environ[SEED] = seed
        os.environ[TOUCHED] = " ".join(sorted(touched()))


def touched() -> set[str]:
    """The files of this folder that differ from where the branch began; on the main branch, from the last commit."""
    head = git("rev-parse", "HEAD")
    bases = (git("merge-base", "HEAD", main) for main in ("origin/main", "origin/master", "main", "master"))
    base = next((one for one in bases if one), None)
    if base in (None, head):
        base = git("rev-parse", "HEAD~1")
    changed = git("diff", "--name-only", "--relative", base) if base else None
    new = git("ls-files", "--others", "--exclude-standard")
    return set((changed or "").split()) | set((new or "").split())


def rank(key: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{os.environ[SEED]} {key}".encode()).digest()[:8], "big")


def choose(items: list, name_of_ends) -> tuple[list, dict[str, str]]:
    """The items to leave out, and for each marker how many of its cases run."""
    if WHOLE or not os.environ.get(SEED):
        return [], {}
    changed = set(os.environ.get(TOUCHED, "").split())
    both, directions = [], {}
    for item in items:
        ends = item.callspec.params.get("ends") if hasattr(item, "callspec") else None
        if not ends or item.path.name in changed:
            continue
        if ends[0] == ends[1]:
            if item.get_closest_marker("drawn"):
                both.append(item)
        elif item.get_closest_marker("one_direction"):
            # Both directions have the same key.
            directions.setdefault(item.nodeid.replace(name_of_ends(ends), "*"), []).append(item)
    both.sort(key=lambda item: rank(item.nodeid))
    kept = sum(rank(item.nodeid) % SHARE == 0 for item in both)
    # Some run, however few there are.
    out = [item for item in both if rank(item.nodeid) % SHARE] if kept else both[1:]
    told = {"drawn": f"{len(both) - len(out)} of {len(both)}"} if both else {}
    if directions:
        told["one_direction"] = f"{len(directions)} of {sum(map(len, directions.values()))}"
    for group in directions.values():
        group.sort(key=lambda item: rank(item.nodeid))
        out += group[1:]
    return out, told
