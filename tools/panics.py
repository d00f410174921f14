#!/usr/bin/env python3
"""Checks that the packet path cannot panic, but for the places in tools/panics.txt, each of which has a reason.

Compiles crates/ipsec with full optimisation, so that the compiler has removed every check whose outcome it knows. Then
reads which functions still refer to one of Rust's panic routines. Drop glue, poisoned locks and lack of memory do not
count: they follow a panic, or end the process.

Usage: tools/panics.py
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools/panics.txt"
PACKAGE = "esplanade-ipsec"

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
RELOCATION = re.compile(r"R_\w+\s+(\S.*?)(?:[-+]0x[0-9a-f]+)?$")
PANIC = re.compile(r"panic|unwrap_failed|expect_failed|_fail\b")
# Routines that run after a panic, say whether there was one, end the process, or are checks of debug builds alone.
FOLLOWING = re.compile(r"panic_in_cleanup|panic_count|panic_nounwind|panic_on_ord|panic_misaligned_pointer|panic_null_pointer")


def compile_object(folder: str) -> Path:
    """The object file of the whole package."""
    path = Path(folder) / "package.o"
    settings = {"opt-level": 3, "overflow-checks": "false", "debug-assertions": "false", "codegen-units": 1}
    config = [f"profile.dev.package.{PACKAGE}.{key}={value}" for key, value in settings.items()]
    command = ["cargo", "rustc", "--locked", "-p", PACKAGE, "--lib"]
    command += [part for setting in config for part in ("--config", setting)]
    # Incremental builds inline other functions.
    environment = os.environ | {"CARGO_INCREMENTAL": "0"}
    subprocess.run([*command, "--", f"--emit=obj={path}"], cwd=ROOT, check=True, env=environment)
    return path


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
    with tempfile.TemporaryDirectory() as folder:
        found = functions_that_panic(compile_object(folder))
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
