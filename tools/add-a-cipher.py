#!/usr/bin/env python3
"""Applies docs/add-a-cipher.patch, which adds a cipher by the steps of docs/add-a-cipher.md, to a copy of the sources.

    tools/add-a-cipher.py check    the patch still applies; builds nothing
    tools/add-a-cipher.py run      runs the tests that the page names, and two gateways that agree on the cipher
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from mutants import ROOT, TARGET, Refused, copy_file, put, symlink, tracked  # noqa: E402

PATCH = ROOT / "docs" / "add-a-cipher.patch"
PLACE = TARGET / "add-a-cipher"
TREE = PLACE / "tree"
# Cargo names what it builds by the crate's path within its workspace. Here the crates have other paths than the sources, so
# that nothing of the copy is taken for something of theirs. What is built of other people's crates serves both.
SOURCES = TREE / "patched"

# The crates whose tests the page names, and what its cases in interop/test_private_use.py have in their names.
CRATES = ("esplanade-crypto", "esplanade-config")
CASES = "test_among_ourselves and gcmsiv"


def git_apply(folder: Path, *options: str) -> subprocess.CompletedProcess:
    # In a folder of a repository, git would leave out what the patch changes elsewhere: here it looks for none above.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    return subprocess.run(["git", "apply", *options, str(PATCH)], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def apply(folder: Path, *options: str) -> None:
    """Applies the patch. Sources that have it already stay as they are: somebody has begun with it."""
    done = git_apply(folder, *options)
    if done.returncode != 0 and git_apply(folder, "--check", "--reverse").returncode != 0:
        raise Refused(
            f"{PATCH.relative_to(ROOT)} does not apply:\n{done.stderr}"
            "Apply it with --3way, settle what is left, write `git diff HEAD` into it, and take the changes back."
        )


def copy() -> None:
    wanted = set()
    for name in tracked():
        wanted.add(SOURCES / name)
        copy_file(ROOT / name, SOURCES / name)
    for folder, _, names in os.walk(SOURCES):
        for path in (Path(folder) / name for name in names):
            if path not in wanted:
                path.unlink()
    apply(SOURCES)
    (SOURCES / "Cargo.toml").unlink()
    text = (ROOT / "Cargo.toml").read_text()
    members = 'members = ["patched/crates/*", "patched/fuzz"]'
    text, count = re.subn(r'^members = \["crates/\*", "fuzz"\]$', members, text, flags=re.MULTILINE)
    if count != 1:
        raise Refused("the members of the workspace are not crates/* and fuzz")
    put(TREE / "Cargo.toml", text.replace('path = "crates/', 'path = "patched/crates/'))
    for name in ("Cargo.lock", ".cargo/config.toml"):
        copy_file(SOURCES / name, TREE / name)
    symlink(SOURCES / ".venv", ROOT / ".venv")


def step(command: list[str], folder: Path, options: tuple[str, ...] = (), **variables: str) -> None:
    """Runs a command. Options are not shown, and stand behind its first word."""
    shown = " ".join(command)
    print(f"--- {shown}", flush=True)
    started = time.monotonic()
    done = subprocess.run([*command[:1], *options, *command[1:]], cwd=folder, env=os.environ | variables)
    print(f"--- {time.monotonic() - started:.0f} s", flush=True)
    if done.returncode != 0:
        raise Refused(f"with the patch, this fails: {shown}")


def cargo(*words: str) -> None:
    # Without what debuggers and later builds need, the copy takes a third of the room.
    manifests = [*SOURCES.glob("crates/*/Cargo.toml"), SOURCES / "fuzz/Cargo.toml"]
    names = sorted(tomllib.loads(path.read_text())["package"]["name"] for path in manifests)
    lean = [f'profile.dev.package."{name}".{setting}' for name in names for setting in ("debug=0", "incremental=false")]
    settings = tuple(part for setting in lean for part in ("--config", setting))
    step(["cargo", *words], TREE, settings, CARGO_BUILD_BUILD_DIR=str(TARGET), CARGO_TARGET_DIR=str(PLACE / "out"))


def run() -> None:
    copy()
    python = ROOT / ".venv/bin/python"
    if python.exists():
        # The known answers are those that the other implementation gives.
        before = (SOURCES / "vectors/esp/self-test.txt").read_bytes()
        step([str(python), "vectors/generate_self_test.py"], SOURCES)
        if (SOURCES / "vectors/esp/self-test.txt").read_bytes() != before:
            raise Refused("vectors/generate_self_test.py writes other known answers than the patch has")
        step([str(python), "vectors/primitives.py", "check"], SOURCES)
    packages = [word for name in CRATES for word in ("-p", name)]
    cargo("test", "--locked", *packages)
    cargo("test", "--locked", "-p", "esplanade", "--lib", "strongswan_names")
    cargo("build", "--locked", "-p", "esplanade")
    step(["interop/run", "test_private_use.py", "-k", CASES], SOURCES, ESPLANADE_BIN=str(PLACE / "out/debug/esplanade"))
    shutil.rmtree(PLACE)


def main(command: str = "") -> int:
    if command == "check":
        apply(ROOT, "--check")
    elif command == "run":
        os.nice(5)
        run()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Refused as why:
        print(f"error: {why}", file=sys.stderr)
        sys.exit(1)
