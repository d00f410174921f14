#!/usr/bin/env python3
"""What a branch changes, and which of many like tests its commit draws: for suites that run a part of them.

Usage: tools/sampling.py STAGE PATH...     for a stage whose result depends on these files alone

It ends with 0 where the stage is to run: the last commits change one of the files, git cannot tell, or the commit draws
the stage. Otherwise it says so and ends with 1.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARE = 3  # one in so many is drawn
RECENT = 50  # commits: CI does not look at each of them
MAIN_LINES = ("upstream/main", "origin/main", "origin/master", "main", "master")


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """What git says, or None where there is no git or no repository."""
    # The owner of the files is another one in a user namespace.
    command = ["git", "-C", str(root), "-c", "safe.directory=*", *arguments]
    try:
        done = subprocess.run(command, text=True, capture_output=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def changes(root: Path = ROOT) -> tuple[str | None, frozenset[Path]]:
    """The commit since which the branch changes something, and the files that it changes or that git does not know yet.

    That is the commit at which the branch left the main line. On the main line itself it is the first parent: what the
    last merge brought. It is None where git cannot tell.
    """
    head = git("rev-parse", "HEAD", root=root)
    bases = (git("merge-base", "HEAD", main, root=root) for main in MAIN_LINES)
    base = next((one for one in bases if one), None)
    if base == head:
        base = git("rev-parse", "HEAD^", root=root)
    since = git("diff", "--name-only", "--no-renames", base, root=root) if base else None
    new = git("ls-files", "--others", "--exclude-standard", "--full-name", ":/", root=root)
    names = [*(since or "").splitlines(), *(new or "").splitlines()]
    top = Path(git("rev-parse", "--show-toplevel", root=root) or root)
    can_tell = since is not None and new is not None
    return base if can_tell else None, frozenset(top / name for name in names)


def rank(seed: str, key: str) -> int:
    """The place of a test in the order that a seed gives."""
    return int.from_bytes(hashlib.sha256(f"{seed} {key}".encode()).digest()[:8], "big")


def is_drawn(seed: str, key: str) -> bool:
    return rank(seed, key) % SHARE == 0


def runs(stage: str, paths: list[str], root: Path = ROOT) -> bool:
    """Whether a stage runs that depends on these paths alone."""
    seed = git("rev-parse", "HEAD", root=root)
    known = git("ls-files", "--", *paths, root=root)
    since = git("diff", "--name-only", f"HEAD~{RECENT}", "--", *paths, root=root)
    new = git("ls-files", "--others", "--exclude-standard", "--", *paths, root=root)
    if not seed or not known or since is None or new is None:
        return True
    return bool(since or new) or is_drawn(seed, stage)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if not runs(sys.argv[1], sys.argv[2:]):
        print(f"{sys.argv[1]}: the last {RECENT} commits change nothing that it looks at, and this commit does not draw it")
        sys.exit(1)
