"""Which cases of many like ones a run takes. The commit decides, so that a run can be had again, and each case comes up
in some commit.

    drawn           of the cases with Esplanade at both ends a third runs
    one_direction   of two cases that differ only in which end strongSwan is at, one runs

All cases run with INTEROP_ALL=1, of test files that differ from the main branch, and where cases are asked for by name.
"""

from __future__ import annotations

import os
from pathlib import Path

import sampling

WHOLE = os.environ.get("INTEROP_ALL", "0") not in ("", "0")
SEED, TOUCHED = "INTEROP_SEED", "INTEROP_TOUCHED"
FOLDER = Path(__file__).resolve().parent


def prepare() -> None:
    """Leaves the seed and the touched files of this folder in the environment, where the workers find them."""
    if WHOLE or os.environ.get(SEED):
        return
    if seed := sampling.git("rev-parse", "HEAD"):
        _, changed = sampling.changes()
        os.environ[SEED] = seed
        os.environ[TOUCHED] = " ".join(sorted(path.name for path in changed if path.parent == FOLDER))


def choose(items: list, name_of_ends) -> tuple[list, dict[str, str]]:
    """The items to leave out, and for each marker how many of its cases run."""
    seed = os.environ.get(SEED)
    if WHOLE or not seed:
        return [], {}

    def rank(item) -> int:
        return sampling.rank(seed, item.nodeid)

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
    both.sort(key=rank)
    out = [item for item in both if not sampling.is_drawn(seed, item.nodeid)]
    # Some run, however few there are.
    if len(out) == len(both):
        out = both[1:]
    told = {"drawn": f"{len(both) - len(out)} of {len(both)}"} if both else {}
    if directions:
        told["one_direction"] = f"{len(directions)} of {sum(map(len, directions.values()))}"
    for group in directions.values():
        group.sort(key=rank)
        out += group[1:]
    return out, told
