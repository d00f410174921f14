"""Builds a module with Verilator and runs the cocotb tests of the calling file."""

import inspect
import os
import random
import zlib
from pathlib import Path

import cocotb
import cocotb_tools.config
import pytest
import sources
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb_tools.runner import get_runner
from sources import RTL
from verilated import BUILD, COVERAGE, OPTIMISE, program

VECTORS = RTL.parent / "vectors"


def parameter_sets(names, sets, always=1, **how):
    """Parametrises a test by the parameters of its module: the first `always` sets in every run, and some others (drawing.py)."""
    return lambda test: pytest.mark.parameter_sets(always)(pytest.mark.parametrize(names, sets, **how)(test))


def run(module, parameters=None, public=None, optimise=OPTIMISE, log=None, test_file=None, **environment):
    """Builds `module` with `parameters` and runs the tests of the file that calls this.

    `module` is the name of a module of rtl/, or the path of a wrapper around one. The tests see its ports and parameters, and
    the names of `public` (verilated.program). `optimise` is the compiler's level: a large module that is simulated for a few
    thousand cycles is better not optimised. `log` is a file for what the simulation prints.
    """
    test_file = test_file or Path(inspect.stack()[1].filename)
    parameters = parameters or {}
    source = sources.module(module) if isinstance(module, str) else module
    module = source.stem
    name = "-".join([module, *(f"{key}{value}" for key, value in sorted(parameters.items()))])
    if len(name) > 80:
        name = f"{module}-{zlib.crc32(name.encode()):08x}"
    build = BUILD / (f"{name}-coverage" if COVERAGE else name)
    libraries = cocotb_tools.config.libs_dir
    program(
        source, build, parameters, cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp", public=public or {},
        optimise=optimise, arguments=["--vpi"], libraries=[f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-lcocotbvpi_verilator"],
    )  # fmt: skip
    seed = os.environ.get("RTL_SEED", "1")
    results = get_runner("verilator").test(
        hdl_toplevel=module,
        hdl_toplevel_lang="verilog",
        test_module=test_file.stem,
        test_dir=test_file.parent,
        build_dir=build,
        results_xml=str(build / f"{test_file.stem}.xml"),
        seed=seed,
        log_file=log,
        plusargs=[
            f"+verilator+seed+{seed}", "+verilator+rand+reset+2", *os.environ.get("RTL_PLUSARGS", "").split(),
            *([f"+verilator+coverage+file+{COVERAGE}/{build.name}-{test_file.stem}.dat"] if COVERAGE else []),
        ],
        extra_env={"PYTHONPATH": ":".join(map(str, (*sources.python_path(), test_file.parent))), **{k: str(v) for k, v in environment.items()}},
    )
    assert_passed(results)


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
