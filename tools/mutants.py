#!/usr/bin/env python3
"""Puts faults into a copy of the sources and runs the tests that should notice them.

    tools/mutants.py check         every fault of tools/mutants/*.toml still applies; builds nothing
    tools/mutants.py run           all of them
    tools/mutants.py run NAME...   those whose name or file has one of these words in it
    tools/mutants.py sample        a few, drawn by the commit, of crates that are built in little time

A mutant is a place in the sources and a fault for it. All mutants of a crate are in one build: each place asks for the
number of the mutant in the environment. All mutants of an RTL module are in one model, which has the number as a plusarg.
CONTRIBUTING.md says how a mutant is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
import sampling  # noqa: E402

ROOT = sampling.ROOT
LISTS = ROOT / "tools" / "mutants"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PLACE = TARGET / "mutants"
TREE = PLACE / "tree"

# Folders that are no sources, where there is no git to say so.
NOT_OURS = {"target", ".git", ".venv", ".cache", "__pycache__"}

SURVIVORS_MAX = 0.05
SAMPLE = 12
SAMPLED = ("ike", "ipsec", "pki")
# Tests of one name are built together. Those of these crates are the same as without faults, and built already.
BUILT = {*SAMPLED, "crypto"}
# They take longer than all others of the sample together.
SLOW = {"storms", "models", "differential"}
# A fault at an edge is met by some of the random values.
TRIES = 5
# A test that runs this many times as long as without a fault hangs. The seconds are for machines that are busy.
HANGS_AFTER, HANGS_AFTER_S = 5, 60

MODULE = """//! Which fault is on.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static NUMBER: AtomicU32 = AtomicU32::new(u32::MAX);

#[inline]
pub fn on(number: u32) -> bool {
    let mut chosen = NUMBER.load(Relaxed);
    if chosen == u32::MAX {
        let text = std::env::var("ESPLANADE_MUTANT");
        chosen = text.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        NUMBER.store(chosen, Relaxed);
    }
    chosen == number
}
"""

SV_MODULE = """  int unsigned mutant = 0;
  initial if (!$value$plusargs("mutant=%d", mutant)) mutant = 0;
"""


class Refused(Exception):
    """The list is wrong, or what it names cannot be built."""


@dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: list[str]
    survives: str = ""
    number: int = 0
    path: str = ""

    @property
    def crate(self) -> str:
        return "rtl" if self.path.startswith("rtl/") else self.path.split("/")[1]

    def switched(self) -> str:
        """The text that has both, the original and the fault."""
        rtl = self.crate == "rtl"
        on = f"(mutant == {self.number})" if rtl else f"crate::mutants::on({self.number})"
        if re.search(r"\bMUTANT\b", self.new):
            return re.sub(r"\bMUTANT\b", lambda _: on, self.new)
        if rtl:
            return f"({on} ? {self.new} : {self.old})"
        return f"(if {on} {{ {self.new} }} else {{ {self.old} }})"


def tracked() -> list[str]:
    """The files of the repository as they are in the working tree, new ones too."""
    listed = sampling.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        found += [str((Path(folder) / name).relative_to(ROOT)) for name in names]
    return sorted(found)


def resolve(file: str, sources: list[str]) -> str:
    """The path of a file that a list names by its last parts: files move from crate to crate."""
    found = [path for path in sources if path == file or path.endswith(f"/{file}")]
    if len(found) != 1:
        raise Refused(f"{file} is {', '.join(found) or 'no file of the repository'}")
    return found[0]


def load(folder: Path, files: list[str]) -> list[Mutant]:
    sources = [path for path in files if re.match(r"crates/[^/]+/src/.*\.rs$|rtl/[^/]+/[^/]+\.sv$", path)]
    mutants, faults, names = [], [], set()
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text()).get("mutant", []):
            name = f"{path.stem}/{entry.get('name')}"
            try:
                # A change of the list leaves the numbers of others, and so what was built of them.
                number = 1 + zlib.crc32(name.encode()) % (1 << 30)
                mutant = Mutant(**entry | {"name": name}, number=number)
                if name in names or number in {one.number for one in mutants} or not mutant.tests or mutant.old == mutant.new:
                    raise Refused("its name is not its own, or it has no tests or no fault")
                names.add(name)
                mutant.path = resolve(mutant.file, sources)
                count = (ROOT / mutant.path).read_text().count(mutant.old)
                if count != 1:
                    raise Refused(f"the mutant no longer applies: {mutant.path} has its original text {count} times")
                mutants.append(mutant)
            except (Refused, TypeError) as why:
                faults.append(f"{name}: {why}")
    for path in sorted({mutant.path for mutant in mutants}):
        try:
            mutated(path, mutants)
        except Refused as why:
            faults.append(str(why))
    if faults:
        raise Refused("\n".join(faults))
    return mutants


def mutated(path: str, mutants: list[Mutant]) -> str:
    """The text of a file with all its mutants."""
    text = (ROOT / path).read_text()
    places = sorted((text.index(one.old), one) for one in mutants if one.path == path) if mutants else []
    parts, end, before = [], 0, None
    for start, one in places:
        if start < end:
            raise Refused(f"{one.name} and {before.name} are in one place")
        parts += [text[end:start], one.switched()]
        end, before = start + len(one.old), one
    made = "".join([*parts, text[end:]])
    if path.startswith("rtl/"):
        made = made.replace("\n);\n", f"\n);\n{SV_MODULE}", 1)
    return made


# The copy.


def put(path: Path, text: str) -> None:
    """Writes a file, but not one that is there with this text: cargo looks at times."""
    if path.is_file() and not path.is_symlink() and path.read_text() == text:
        return
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_file(source: Path, path: Path) -> None:
    """Copies a file with its time: cargo looks at times. A second name for it would not do: a test may write to it."""
    if path.is_file() and not path.is_symlink():
        old, new = path.stat(), source.stat()
        if (old.st_size, old.st_mtime_ns, old.st_mode) == (new.st_size, new.st_mtime_ns, new.st_mode):
            return
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, path)


def symlink(path: Path, to: Path) -> None:
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)


def copy(files: list[str], mutants: list[Mutant]) -> set[str]:
    """Makes the copy, and returns the names of the crates with faults.

    Cargo names what it builds by the crate's path within its workspace. Crates with faults are therefore in another
    folder, `mutated`: what is built of them is never taken for what is built of the sources. The others stay where they
    are, and what was built of them in the same target folder serves here too. It serves the sources as well afterwards:
    so their Rust files are links, by which cargo sees a later change of the source.
    """
    faulty = {mutant.crate for mutant in mutants}
    crates = faulty - {"rtl"}
    wanted = set()
    by_path: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_path.setdefault(mutant.path, []).append(mutant)
    for name in files:
        parts = name.split("/")
        targets = [TREE / name]
        if parts[0] == "crates" and parts[1] in crates:
            targets = [TREE / "mutated" / "/".join(parts[1:])]
            # Crates elsewhere include some of these by their path.
            if parts[2] == "tests":
                targets.append(TREE / name)
        elif parts[0] == "rtl" and "rtl" in faulty:
            targets.append(TREE / "mutated" / name)
        for target in targets:
            wanted.add(target)
            own = by_path.get(name) if "mutated" in target.parts else None
            if name == "Cargo.toml":
                put(target, manifest((ROOT / name).read_text(), files, crates))
            elif own:
                put(target, mutated(name, own))
            elif "mutated" in target.parts and name == f"crates/{parts[1]}/src/lib.rs":
                put(target, (ROOT / name).read_text() + "\n#[doc(hidden)]\npub mod mutants;\n")
            elif "mutated" not in target.parts and re.fullmatch(r"crates/[^/]+/(src/.+|build)\.rs", name):
                symlink(target, ROOT / name)
            else:
                copy_file(ROOT / name, target)
    for crate in crates:
        module = TREE / "mutated" / crate / "src" / "mutants.rs"
        put(module, MODULE)
        wanted.add(module)
        library = TREE / "mutated" / crate / "src" / "lib.rs"
        if by_path.get(f"crates/{crate}/src/lib.rs"):
            put(library, mutated(f"crates/{crate}/src/lib.rs", by_path[f"crates/{crate}/src/lib.rs"]) + "\npub mod mutants;\n")
    for folder, _, names in os.walk(TREE):
        for name in names:
            path = Path(folder) / name
            if path not in wanted and (not path.is_symlink() or not path.exists()):
                path.unlink()
    for venv in (".venv", "rtl/.venv"):
        symlink(TREE / venv, ROOT / venv)
    if "rtl" in faulty:
        symlink(TREE / "mutated/rtl/.venv", ROOT / "rtl/.venv")
        for name in ("vectors", "tools", "crates", "docs", "bench"):
            symlink(TREE / "mutated" / name, TREE / name)
    return crates


def manifest(text: str, files: list[str], crates: set[str]) -> str:
    """The workspace's manifest with each crate where it is in the copy."""
    names = sorted(path.split("/")[1] for path in files if re.fullmatch(r"crates/[^/]+/Cargo\.toml", path))
    place = {name: f"{'mutated' if name in crates else 'crates'}/{name}" for name in names}
    members = f"members = {json.dumps([*place.values(), 'fuzz'])}"
    text, count = re.subn(r'^members = \["crates/\*", "fuzz"\]$', members, text, flags=re.MULTILINE)
    if count != 1:
        raise Refused("the members of the workspace are not crates/* and fuzz")
    return re.sub(r'path = "crates/([\w-]+)"', lambda found: f'path = "{place[found[1]]}"', text)


# The tests.


@dataclass(frozen=True)
class Test:
    """A test binary and a filter for its tests, or an RTL bench and arguments of pytest."""

    crate: str
    binary: str
    filter: str

    def __str__(self) -> str:
        return f"{self.crate}:{self.binary}{' ' + self.filter if self.filter else ''}"


def owners(binary: str, files: list[str]) -> set[str]:
    """The crates that have an integration test of this name."""
    return {path.split("/")[1] for path in files if re.fullmatch(rf"crates/[^/]+/tests/{binary}(/main)?\.rs", path)}


def is_module(crate: str, binary: str) -> bool:
    """Tells whether a file in the folder of tests is a module of the binary of all of them."""
    path = ROOT / f"crates/{crate}/tests/all.rs"
    return path.exists() and re.search(rf"^mod {binary};", path.read_text(), re.MULTILINE) is not None


def has_unit_test(crate: str, words: str, files: list[str]) -> bool:
    """Tells whether the library of a crate can have a unit test with these words in its path."""
    name = words.strip(":").rpartition("::")[2]
    sources = [path for path in files if path.startswith(f"crates/{crate}/src/") and path.endswith(".rs")]
    if any(name in path.removeprefix(f"crates/{crate}/src/") for path in sources):
        return True
    return any(re.search(rf"\bfn \w*{name}", (ROOT / path).read_text()) for path in sources)


def named(mutant: Mutant, files: list[str]) -> list[Test]:
    """The tests of a mutant: `lib FILTER`, `TEST FILTER`, each with `CRATE:` before it if it is another crate's."""
    tests = []
    for text in mutant.tests:
        place, _, words = text.partition(" ")
        crate, colon, binary = place.rpartition(":")
        if not colon:
            crate = mutant.crate
            if crate == "rtl":
                found = [path for path in files if re.match(rf"rtl/([^/]+/)?tb/{binary}/", path)]
                if not found:
                    raise Refused(f"{mutant.name}: there is no bench {binary}")
            elif binary != "lib":
                found = owners(binary, files)
                if crate not in found and len(found) != 1:
                    raise Refused(f"{mutant.name}: {len(found)} crates have a test {binary}")
                crate = crate if crate in found else found.pop()
        if binary == "lib" and not has_unit_test(crate, words, files):
            raise Refused(f"{mutant.name}: {crate} has no unit test {words}")
        if crate != "rtl" and is_module(crate, binary):
            tests.append(Test(crate, "all", f"{binary}::{words}"))
        else:
            tests.append(Test(crate, binary, words))
    return tests


@dataclass
class Ran:
    code: int
    seconds: float
    count: int
    failed: list[str] = field(default_factory=list)
    output: str = ""


class Runner:
    def __init__(self, crates: set[str], tests: set[Test]):
        self.binaries: dict[tuple[str, str], tuple[str, Path]] = {}
        rust = {test for test in tests if test.crate != "rtl"}
        if rust:
            self.build(crates, rust)
        # Benches share the folder of a model, and one already has all processors.
        self.bench = threading.Lock()

    def build(self, crates: set[str], tests: set[Test]) -> None:
        choice = ["--lib"] if any(test.binary == "lib" for test in tests) else []
        for name in sorted({test.binary for test in tests} - {"lib"}):
            choice += ["--test", name]
        # Without what debuggers and later builds need, this takes a third of the room.
        packages = [tomllib.loads((TREE / "mutated" / crate / "Cargo.toml").read_text())["package"]["name"] for crate in sorted(crates)]
        lean = [f'profile.dev.package."{name}".{setting}' for name in packages for setting in ("debug=0", "incremental=false")]
        settings = [part for setting in lean for part in ("--config", setting)]
        command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics", *settings, *choice]
        # Programs that are built here must not lie where those of the sources are.
        environment = os.environ | {"CARGO_BUILD_BUILD_DIR": str(TARGET), "CARGO_TARGET_DIR": str(PLACE / "out")}
        done = subprocess.run(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Refused("the sources with faults cannot be built")
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable") and message["profile"]["test"]:
                folder = Path(message["manifest_path"]).parent
                kind = message["target"]["kind"][0]
                name = message["target"]["name"] if kind == "test" else "lib" if kind not in ("bin", "example", "bench") else ""
                self.binaries[folder.name, name] = (message["executable"], folder)

    def run(self, test: Test, number: int, limit: float) -> Ran:
        environment = os.environ | {"ESPLANADE_MUTANT": str(number)}
        if test.crate == "rtl":
            command = [str(TREE / "mutated/rtl/run"), "test", "-n0", "-x", test.binary, *shlex.split(test.filter)]
            environment |= {"RTL_BUILD_DIR": str(PLACE / "rtl"), "RTL_PLUSARGS": f"+mutant={number}"}
            with self.bench:
                return execute(command, TREE, environment, limit)
        if (test.crate, test.binary) not in self.binaries:
            raise Refused(f"there is no test binary {test}")
        program, folder = self.binaries[test.crate, test.binary]
        environment["CARGO_MANIFEST_DIR"] = str(folder)
        return execute([program, *test.filter.split()], folder, environment, limit)


def execute(command: list[str], folder: Path, environment: dict[str, str], limit: float) -> Ran:
    started = time.monotonic()
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=limit)
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        code = 124
    count = sum(map(int, re.findall(r"^running (\d+) tests?$", output, re.MULTILINE)))
    count += sum(map(int, re.findall(r"\b(\d+) passed\b.* in [\d.]+s", output)))
    failed = re.findall(r"^test (\S+).* \.\.\. FAILED$|^FAILED (\S+)", output, re.MULTILINE)
    return Ran(code, time.monotonic() - started, count, ["".join(one) for one in failed], output)


def judge(runner: Runner, mutant: Mutant, tests: list[Test], base: dict[Test, Ran]) -> str:
    """What caught a mutant. Nothing if none did. Tests with random values have several tries before that."""
    for test in sorted(tests, key=lambda one: base[one].seconds) * TRIES:
        ran = runner.run(test, mutant.number, max(HANGS_AFTER_S, HANGS_AFTER * base[test].seconds))
        if ran.code:
            how = "hangs" if ran.code == 124 else ran.failed[0] if ran.failed else f"ends with {ran.code}"
            return f"{test.crate}:{test.binary}: {how}"
    return ""


def run_all(mutants: list[Mutant], build: list[Mutant], files: list[str]) -> bool:
    """Runs mutants in a build that has those of `build`. Returns true if the tests are good enough."""
    tests = {mutant.name: named(mutant, files) for mutant in mutants}
    wanted = {test for own in tests.values() for test in own}
    runner = Runner(copy(files, build), wanted)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        order = sorted(wanted, key=str)
        base = dict(zip(order, pool.map(lambda test: runner.run(test, 0, 1800), order)))
        bad = {test: ran for test, ran in base.items() if ran.code or not ran.count}
        for test, ran in bad.items():
            print(f"{test} without a fault:\n{ran.output}")
        if bad:
            raise Refused(f"these do not pass without a fault, or run no test: {', '.join(map(str, bad))}")
        print(f"{len(base)} tests pass without a fault, in {sum(ran.seconds for ran in base.values()):.0f} s", flush=True)
        caught = {}
        for mutant, by in zip(mutants, pool.map(lambda one: judge(runner, one, tests[one.name], base), mutants)):
            caught[mutant.name] = by
            print(f"{mutant.name:60} {by or 'SURVIVES: ' + (mutant.survives or 'no reason is known')}", flush=True)
    survivors = [mutant for mutant in mutants if not caught[mutant.name]]
    unknown = [mutant.name for mutant in survivors if not mutant.survives]
    known = [mutant.name for mutant in mutants if mutant.survives and caught[mutant.name]]
    share = len(survivors) / len(mutants)
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors)} caught, {len(survivors)} survive ({100 * share:.1f} %)")
    print(f"test result: {len(mutants) - len(unknown) - len(known)} passed; {len(unknown) + len(known)} failed")
    for name in unknown:
        print(f"error: {name} survives: write the test, or give the reason in `survives`")
    for name in known:
        print(f"error: {name} is caught: its `survives` is no longer true")
    enough = share <= SURVIVORS_MAX or len(mutants) < 100
    if not enough:
        print(f"error: more than {100 * SURVIVORS_MAX:.0f} % survive")
    return not unknown and not known and enough


def is_cheap(test: Test, files: list[str]) -> bool:
    """Says whether the sample builds this test. A library's own tests need another build of each library, and tests of one
    name are built together."""
    return test.binary not in SLOW | {"lib"} and owners(test.binary, files) <= BUILT


def sampled(mutants: list[Mutant], files: list[str]) -> tuple[list[Mutant], list[Mutant]]:
    """The mutants that the sample builds, and those of them that it draws from."""
    build = [one for one in mutants if one.crate in SAMPLED]
    pool = [one for one in build if not one.survives and all(is_cheap(test, files) for test in named(one, files))]
    return build, pool


def main(command: str = "", *words: str) -> int:
    lists = Path(os.environ.get("MUTANTS_LISTS", LISTS))
    files = tracked()
    mutants = load(lists, files)
    if not (ROOT / "rtl/.venv/bin/python").exists() and command == "run":
        print("SKIP mutants-rtl: no rtl/.venv (tools/deps.sh makes it)")
        mutants = [one for one in mutants if one.crate != "rtl"]
    if command == "check":
        for mutant in mutants:
            named(mutant, files)
        pool = sampled(mutants, files)[1]
        if lists == LISTS and len(pool) < SAMPLE:
            raise Refused(f"the sample has {len(pool)} mutants to draw from, which are not enough for {SAMPLE}")
        print(f"{len(mutants)} mutants apply")
        return 0
    os.nice(5)
    if command == "run":
        if not words:
            return 0 if run_all(mutants, mutants, files) else 1
        chosen = [one for one in mutants if any(word in one.name or word in one.path for word in words)]
        crates = {one.crate for one in chosen}
        return 0 if chosen and run_all(chosen, [one for one in mutants if one.crate in crates], files) else 1
    if command == "sample":
        seed = sampling.git("rev-parse", "--short=12", "HEAD") or ""
        build, pool = sampled(mutants, files)
        chosen = sorted(pool, key=lambda one: sampling.rank(seed, one.name))[:SAMPLE]
        return 0 if run_all(chosen, build, files) else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Refused as why:
        print(f"error: {why}", file=sys.stderr)
        sys.exit(1)
