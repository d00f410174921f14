"""Debian 13's strongSwan 6 and libreswan 5, with their own libraries, in a chroot (tools/deps.sh unpacks them)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(os.environ.get("ESPLANADE_DEBIAN13", Path(__file__).parents[2] / "target/tools/debian13"))


def missing() -> str | None:
    """The reason why the programs cannot be used here, or None."""
    return None if (ROOT / ".complete").exists() else f"Debian 13's peers are not unpacked in {ROOT} (tools/deps.sh)"


def inside(argv: Sequence[object]) -> list[str]:
    """The command that runs `argv` there, with /dev, /proc and /tmp of the outside and a /run of its own."""
    mounts = [f"mount --rbind /{name} {ROOT}/{name}" for name in ("dev", "proc", "tmp")]
    script = " && ".join([*mounts, f"mount -t tmpfs none {ROOT}/run", f"mkdir {ROOT}/run/pluto",
                          f'exec chroot {ROOT} "$@"'])
    return ["unshare", "-m", "sh", "-c", script, "sh", *map(str, argv)]
