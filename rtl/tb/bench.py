"""Builds a module with Verilator and runs the cocotb tests of the calling file."""

import inspect
import os
import random
import re
import zlib
from pathlib import Path

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb_tools.runner import get_runner

RTL = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("RTL_BUILD_DIR", RTL.parent / "target" / "rtl"))
VECTORS = RTL.parent / "vectors"
COVERAGE = os.environ.get("RTL_COVERAGE")  # a folder: lines and toggles are counted there


def run(module, parameters=None, big=False, log=None, test_file=None, **environment):
    """Builds `module` with `parameters` and runs the tests of the file that calls this.

    `module` is the name of a module of rtl/, or the path of a wrapper around one. `big` modules have so many signals that the compiler is not to optimise what is called once. `log` is a file for
    what the simulation prints.
    """
    make_flags = os.environ.get("MAKEFLAGS", "")
    if big:
        os.environ["MAKEFLAGS"] = f"{make_flags} OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0"
    test_file = test_file or Path(inspect.stack()[1].filename)
    parameters = parameters or {}
    source = RTL / f"{module}.sv" if isinstance(module, str) else module
    module = source.stem
    name = "-".join([module, *(f"{key}{value}" for key, value in sorted(parameters.items()))])
    if len(name) > 80:
        name = f"{module}-{zlib.crc32(name.encode()):08x}"
    build = BUILD / (f"{name}-coverage" if COVERAGE else name)
    runner = get_runner("verilator")
    runner.build(
        sources=[*packages(source), source],
        hdl_toplevel=module,
        parameters=parameters,
        build_dir=build,
        build_args=[
            "-y", str(RTL), "+libext+.sv", str(RTL / "lint" / "waivers.vlt"), "-Wall", "--assert",
            "--x-initial", "unique", "-O3", *([] if big else ["-CFLAGS", "-O1"]),
            *(["--coverage-line", "--coverage-toggle"] if COVERAGE else []),
        ],
        always=True,
    )
    os.environ["MAKEFLAGS"] = make_flags
    seed = os.environ.get("RTL_SEED", "1")
    results = runner.test(
        hdl_toplevel=module,
        test_module=test_file.stem,
        test_dir=test_file.parent,
        build_dir=build,
        results_xml=str(build / f"{test_file.stem}.xml"),
        seed=seed,
        log_file=log,
        plusargs=[
            f"+verilator+seed+{seed}", "+verilator+rand+reset+2",
            *([f"+verilator+coverage+file+{COVERAGE}/{build.name}-{test_file.stem}.dat"] if COVERAGE else []),
        ],
        extra_env={"PYTHONPATH": f"{RTL / 'tb'}:{test_file.parent}", **{k: str(v) for k, v in environment.items()}},
    )
    assert_passed(results)


def packages(source):
    """The packages that a module or what is inside it names: for them there is no file that -y would look for.

    A model has a C++ file for each package that it is given, used or not, and each takes a second to compile.
    """
    files, reached, waiting = {path.stem: path for path in RTL.glob("*.sv")}, {source}, [source]
    while waiting:
        named = set(re.findall(r"\w+", waiting.pop().read_text())) & files.keys()
        waiting += (new := {files[name] for name in named} - reached)
        reached |= new
    return sorted(path for path in reached if path.stem.endswith("_pkg"))


def assert_passed(results_xml):
    from cocotb_tools.check_results import get_results

    tests, failed = get_results(Path(results_xml))
    assert tests > 0 and failed == 0, f"{failed} of {tests} tests failed, see {results_xml}"


async def start(dut, period_ns=10):
    """Starts the clock and takes the module through reset."""
    cocotb.start_soon(Clock(dut.clk_i, period_ns, unit="ns").start())
    await reset(dut)


async def reset(dut):
    """Comes back just after a clock edge; the next one is the first that counts, so inputs are to be set at once."""
    dut.rst_ni.value = 0
    await ClockCycles(dut.clk_i, 4)
    dut.rst_ni.value = 1


def pauses(share, seed=1):
    """An endless iterator of booleans for idle cycles or back-pressure: true for `share` of the cycles, in bursts."""
    source = random.Random(seed)
    while True:
        pause = source.random() < share
        for _ in range(source.choice((1, 1, 2, 5))):
            yield pause


def stops(module, parameters, log, **environment):
    """Runs tests of the calling file that an assertion of `module` must stop. Returns what the simulation printed, which goes through `log`."""
    with pytest.raises((RuntimeError, SystemExit)):
        run(module, parameters, log=log, test_file=Path(inspect.stack()[1].filename), **environment)
    return log.read_text()
