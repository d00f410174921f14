#!/usr/bin/env python3
"""Checks that the packet path cannot panic, but for the places in tools/panics.txt, each of which has a reason.

Compiles crates/ipsec with full optimisation, so that the compiler has removed every check whose outcome it knows. Then
reads which functions still refer to one of Rust's panic routines. Drop glue, poisoned locks and lack of memory do not
count: they follow a panic, or end the process.

Usage: tools/panics.py
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools/panics.txt"
PACKAGE = "esplanade-ipsec"

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
RELOCATION = re.compile(r"R_\w+\s+(\S.*?)(?:[-+]0x[0-9a-f]+)?$")
PANIC = re.compile(r"panic|unwrap_failed|expect_failed|_fail\b")
# Routines that run after a panic, say whether there was one, end the process, or are checks of debug builds alone.
FOLLOWING = re.compile(r"panic_in_cleanup|panic_count|panic_nounwind|panic_on_ord|panic_misaligned_pointer|panic_null_pointer")


def compiled() -> Path:
    """The library of the package, which has one object file.

    A bench of the package, chosen from the whole workspace, needs nothing else. So its dependencies have the features that
    the tests give them, and are not compiled again.
    """
    settings = {"opt-level": 3, "overflow-checks": "false", "debug-assertions": "false", "codegen-units": 1}
    config = [f"profile.dev.package.{PACKAGE}.{key}={value}" for key, value in settings.items()]
    command = ["cargo", "build", "--locked", "--workspace", "--bench", "children", "--message-format=json-render-diagnostics"]
    command += [part for setting in config for part in ("--config", setting)]
    # Incremental builds inline other functions.
    environment = os.environ | {"CARGO_INCREMENTAL": "0"}
    messages = subprocess.run(command, cwd=ROOT, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout
    libraries = [
        Path(file)
        for message in map(json.loads, messages.splitlines())
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == PACKAGE.replace("-", "_")
        for file in message["filenames"]
        if file.endswith(".rlib")
    ]
    [library] = libraries
    return library


def functions_that_panic(path: Path) -> dict[str, set[str]]:
    """The functions of the product that refer to a panic routine, and which."""
    listing = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", "-C", path], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, set[str]] = {}
    function = ""
    for line in listing.splitlines():
        if start := FUNCTION.match(line):
            function = start.group(1)
        elif (relocation := RELOCATION.search(line)) and "esplanade" in function:
            routine = relocation.group(1)
            is_glue = function.startswith("core::ptr::drop_in_place")
            if PANIC.search(routine) and not FOLLOWING.search(routine) and not is_glue:
                found.setdefault(function, set()).add(routine)
    return found


def reasons() -> dict[str, str]:
    """The lines `function: reason` of the list."""
    lines = (line for line in LIST.read_text().splitlines() if line and not line.startswith(("#", "compiler = ")))
    return dict(line.rsplit(": ", 1) for line in lines)


def compilers() -> tuple[str, str]:
    """The compiler that the list is for, and the one that is here."""
    wanted = next(line for line in LIST.read_text().splitlines() if line.startswith("compiler = "))
    here = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout
    return wanted.removeprefix("compiler = "), " ".join(here.split()[:2])


def main() -> int:
    wanted, here = compilers()
    if wanted != here or os.uname().machine != "x86_64":
        # Another compiler rules out other panics.
        print(f"SKIP panics: the list is for {wanted} on x86-64, and this is {here}")
        return 0
    found = functions_that_panic(compiled())
    known = reasons()
    new = sorted(found.keys() - known.keys())
    gone = sorted(known.keys() - found.keys())
    for function in new:
        print(f"FAILED {function} may panic ({', '.join(sorted(found[function]))}): rule the panic out, or give the reason")
    for function in gone:
        print(f"FAILED {function} cannot panic any more: take it out of {LIST.relative_to(ROOT)}")
    failed = len(new) + len(gone)
    print(f"test result: {len(found.keys() & known.keys())} passed; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
