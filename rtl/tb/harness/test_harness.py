"""What runs the benches: models that show what the benches name, one compiler at a time, and the drawing of parameter sets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bench
import conftest
import drawing
import find_libpython
import pytest
import sources
import verilated

MODULES = [path for name, path in sources.modules().items() if not name.endswith("_pkg")]
BENCHES = sorted(path for folder in sources.benches().values() for path in folder.glob("test_*.py"))


def test_a_name_is_one_file(tmp_path):
    """Modules, packages, proofs and shells: some tools see them all in one folder."""
    ours = [path for path in bench.RTL.rglob("*.sv") if ".venv" not in path.parts]
    assert len(ours) > len(sources.modules()) > 80
    sources.by_name(ours)
    for name in ("one/a.sv", "two/a.sv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "folders").write_text("two\n")
    assert sources.modules(tmp_path) == {"a": tmp_path / "two/a.sv"}
    (tmp_path / "folders").write_text("one\ntwo\n")
    with pytest.raises(sources.Duplicate):
        sources.modules(tmp_path)


def used(source):
    """The names of the modules and packages that a module uses. A signal may have the name of a module."""
    text = sources.code(source)
    found = re.findall(r"^ *(\w+) (?:#\(|u_\w+ \()|\b(\w+)::", text, re.MULTILINE)
    return {name for names in found for name in names} & sources.modules().keys()


def test_a_design_needs_no_other_design():
    """`common` needs no other folder, `crypto` only `common`, and the designs only these two."""
    assert used(sources.module("hmac_unit")) == {"esp_pkg", "sha1_core", "sha256_core"}
    shared = ["common"]
    for folder in sources.folders():
        for source in folder.glob("*.sv"):
            needed = {sources.module(name).parent.name for name in used(source)}
            assert needed <= {*shared, folder.name}, f"{source} needs {needed}"
        if folder.name == "crypto":
            shared.append("crypto")


def test_a_bench_is_beside_its_module():
    for name, folder in sources.benches().items():
        if source := sources.modules().get(name):
            assert folder == source.parent / "tb" / name
    for name, proof in sources.proofs().items():
        assert proof.parent == sources.module(name).parent / "formal"


def test_a_bench_is_named_without_its_folder():
    file = bench.RTL / "common/tb/rr_arbiter/test_rr_arbiter.py"
    assert [conftest.place(word) for word in ("rr_arbiter", "rr_arbiter::a_test")] == [str(file), f"{file}::a_test"]
    assert conftest.place(str(file)) == str(file)
    with pytest.raises(pytest.UsageError):
        conftest.place("no_bench")


def test_the_ports_of_a_module_are_public():
    for module in MODULES:
        inputs, outputs, parameters = sources.interface(module)
        assert all(name.endswith(("_i", "_ni")) or "axi" in name or "_t" in name for name in inputs), inputs
        assert outputs and not set(inputs) & set(outputs)
        names = verilated.public_names(module, {"*": ["*_q"]})
        assert all(f'-var "{name}"\n' in names for name in (*inputs, *outputs, *parameters, "*_q"))
    assert "IndexWidth" in sources.interface(sources.module("rr_arbiter"))[2]


def test_a_package_of_a_package_is_found():
    assert [path.stem for path in sources.packages(sources.module("esp_regs"))] == ["axil_pkg", "esp_pkg", "esp_regmap_pkg"]
    assert not sources.packages(sources.module("rr_arbiter"))
    assert not sources.packages(sources.module("small_fifo"))


def test_one_compiler_at_a_time(tmp_path, monkeypatch):
    """The compiler of this test fails if another one of the same bench is still at work. A second build compiles nothing."""
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec 9>{tmp_path}/lock\nflock -n 9 || exit 1\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    library = verilated.runtime()
    monkeypatch.setattr(verilated, "runtime", lambda: library)
    monkeypatch.setattr(verilated, "COMPILER", str(compiler))
    main = tmp_path / "main.cpp"
    main.write_text('#include "Vtop.h"\nint main() { Vtop top; top.eval(); return top.grant_o; }\n')

    def build(width):
        made = verilated.program(sources.module("rr_arbiter"), tmp_path / "built", {"Width": width}, main)
        subprocess.run([made], check=False, timeout=60)
        return len(log.read_text().splitlines())

    # A model and its link.
    assert [build(3), build(3), build(4)] == [2, 2, 4]


def sets_that_run(drawn_by, bench_file, count=60):
    return [at for at in range(count) if drawn_by.runs(bench_file, f"{bench_file}::test[{at}]", at)]


def test_sets_are_drawn_by_the_seed():
    shares = []
    for seed in map(str, range(40)):
        ran = [sets_that_run(drawing.Drawing(seed), path) for path in BENCHES]
        assert ran == [sets_that_run(drawing.Drawing(seed), path) for path in BENCHES]
        # The first set always runs, whatever is drawn.
        assert all(sets[0] == 0 for sets in ran)
        shares.append(sum(len(sets) - 1 for sets in ran) / (59 * len(BENCHES)))
    assert all(0.25 < share < 0.42 for share in shares), shares
    # Every set has its day.
    ran = [set(sets_that_run(drawing.Drawing(str(seed)), BENCHES[0])) for seed in range(40)]
    assert set.union(*ran) == set(range(60))
    assert drawing.Drawing("1").runs(BENCHES[0], "test", 4, always=5)


@pytest.mark.parametrize(
    ("name", "files"),
    (
        ("esp_cipher", ("rtl/esp/esp_cipher.sv", "rtl/crypto/ghash_mul.sv", "rtl/crypto/aes_pkg.sv", "rtl/esp/tb/esp_cipher/test_esp_cipher.py",
                        "rtl/crypto/tb/gcm.py", "rtl/conftest.py", "rtl/folders")),
        ("esp_regs", ("rtl/esp/esp_regs.sv", "rtl/common/axil_pkg.sv", "rtl/tb/registers.py", "rtl/tb/verilated.py", "rtl/requirements.txt")),
    ),
)
def test_a_change_runs_all_sets(name, files):
    path = sources.benches()[name] / f"test_{name}.py"
    for file in files:
        changed = bench.RTL.parent / file
        assert changed.exists()
        assert sets_that_run(drawing.Drawing("1", changed=frozenset([changed])), path) == list(range(60))
    for file in ("rtl/sections/sections_core.sv", "rtl/common/tb/small_fifo/test_small_fifo.py", "README.md"):
        assert (bench.RTL.parent / file).exists()
        assert len(sets_that_run(drawing.Drawing("1", changed=frozenset([bench.RTL.parent / file])), path)) < 40


@pytest.fixture
def repository(tmp_path):
    """A branch of two commits beside the main line, and a main line of two."""

    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(name):
        (tmp_path / name).write_text(name)
        git("add", "-A")
        git("commit", "-qm", name)

    git("init", "-q", "-b", "main")
    commit("first")
    commit("second")
    git("checkout", "-qb", "branch")
    commit("third")
    commit("fourth")
    return tmp_path, git


def test_what_a_branch_changes(repository):
    root, git = repository

    def changed():
        found = drawing.drawing(environment={}, root=root)
        assert not found.all and found.base and found.seed == git("rev-parse", "--short=12", "HEAD")
        return {path.name for path in found.changed}

    assert changed() == {"third", "fourth"}
    (root / "first").write_text("in no commit")
    (root / "new").write_text("in no commit")
    assert changed() == {"first", "third", "fourth", "new"}
    # On the main line: what the last merge brought.
    git("checkout", "-qf", "main")
    (root / "new").unlink()
    assert changed() == {"second"}
    git("merge", "-q", "--no-ff", "-m", "merge", "branch")
    assert changed() == {"third", "fourth"}
    assert drawing.drawing(environment={"RTL_SETS": "of another run"}, root=root).seed == "of another run"


def test_all_sets_run_where_nothing_says_otherwise(repository, tmp_path_factory):
    root, git = repository
    assert drawing.drawing(environment={"SOAK": "1"}, root=root).all
    assert drawing.drawing(named=True, environment={}, root=root).all
    # No repository; no main line; a clone that ends before its parent.
    assert drawing.drawing(environment={"GIT_CEILING_DIRECTORIES": "/"}, root=tmp_path_factory.mktemp("none")).all
    git("branch", "-qm", "main", "other")
    assert drawing.drawing(environment={}, root=root).all
    shallow = tmp_path_factory.mktemp("shallow")
    subprocess.run(["git", "clone", "-q", "--depth=1", "--branch=other", root.as_uri(), str(shallow)], check=True, capture_output=True)
    git("branch", "-q", "main", "other")
    assert drawing.drawing(environment={}, root=shallow).all
    assert all(sets_that_run(drawing.drawing(environment={}, root=shallow), path) == list(range(60)) for path in BENCHES[:3])


def test_a_run_says_what_it_drew():
    """As pytest collects: each bench stays."""
    arguments = ["-p", "no:cacheprovider", "--collect-only", "-q", "-p", "no:xdist"]

    def collected(seed):
        drawn_by = f"drawing.drawing = lambda named: drawing.Drawing({seed!r}, 'somewhere')"
        script = f"import pytest, sys; sys.path.insert(0, 'tb'); import drawing; {drawn_by}; sys.exit(pytest.main({arguments}))"
        # A worker of pytest-xdist is no place to start pytest from otherwise.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run([sys.executable, "-c", script], cwd=bench.RTL, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        tests = [line for line in lines if "::" in line and not line.startswith(" ")]
        assert f"RTL_SETS={seed}" in done.stdout
        drawn = [line.split("drawn: ")[1] for line in lines if line.startswith("  drawn: ")]
        assert drawn and all(any(test.endswith(f"::{name}") for test in tests) for name in drawn)
        return tests

    first, second = collected("1"), collected("2")
    assert first != second
    assert {test.split("[")[0] for test in first} == {test.split("[")[0] for test in second}
    # Each of the five ciphers of the ACE runs always.
    assert all(f"ace/tb/ace_cipher/test_ace_cipher.py::test_ace_cipher[{name}]" in first for name in ("rijndael", "serpent", "twofish", "rc6", "mars"))


def test_the_library_of_the_interpreter():
    """cocotb loads it, and Debian has it in a package of its own, which the interpreter does not need."""
    listed = subprocess.run([str(bench.RTL.parent / "tools" / "deps.sh"), "--list"], check=True, capture_output=True, text=True).stdout
    packages = {line.split()[0] for line in listed.splitlines()}
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if Path("/etc/debian_version").exists() and Path(sys.base_prefix) == Path("/usr"):
        assert f"libpython{version}" in packages
    assert f"libpython{version}" in Path(find_libpython.find_libpython()).name
