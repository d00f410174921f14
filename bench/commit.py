"""The commit that a record belongs to."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def commit(checkout: Path = ROOT) -> str:
    """The commit of this checkout or of another, with "-dirty" if a file differs from it.

    Records do not count as differences: an earlier run may have written some.
    """
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/records", cwd=checkout)
    return (git("rev-parse", "--short", "HEAD", cwd=checkout) or "unknown") + ("-dirty" if changed else "")


def git(*command: str, cwd: Path = ROOT) -> str:
    """Runs git and returns its output, or an empty text if this is no checkout or there is no git."""
    try:
        return subprocess.run(["git", *command], cwd=cwd, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""
