"""The commit that a record is of."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def commit() -> str:
    """This checkout's, "-dirty" where something differs from it. Records do not count: a run before may have written some."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/records")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def git(*command: str) -> str:
    """What it prints; nothing where this is no checkout."""
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True).stdout.strip()
