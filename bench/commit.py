"""The commit that a record is of."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def commit(checkout: Path = ROOT) -> str:
    """This checkout's or another's, "-dirty" where something differs from it.

    Records do not count: a run before may have written some.
    """
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/records", cwd=checkout)
    return (git("rev-parse", "--short", "HEAD", cwd=checkout) or "unknown") + ("-dirty" if changed else "")


def git(*command: str, cwd: Path = ROOT) -> str:
    """What it prints; nothing where this is no checkout."""
    return subprocess.run(["git", *command], cwd=cwd, capture_output=True, text=True).stdout.strip()
