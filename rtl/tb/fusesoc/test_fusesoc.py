"""The FuseSoC core file names every module, packages first, and its lint targets run."""

import re
import subprocess

import bench
import pytest


def test_the_core_file_names_every_module():
    text = (bench.RTL / "esplanade.core").read_text()
    named = re.findall(r"^ +- (\w+\.sv)$", text, re.MULTILINE)
    packages = [name for name in named if name.endswith("_pkg.sv")]
    assert sorted(named) == sorted(path.name for path in bench.RTL.glob("*.sv"))
    assert named[: len(packages)] == packages


@pytest.mark.parametrize("target", ("lint", "lint_out", "lint_sections"))
def test_fusesoc_runs_it(target, tmp_path):
    command = ["fusesoc", "--cores-root", str(bench.RTL), "run", "--build-root", str(tmp_path), "--target", target, "esplanade:ip:esp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"esplanade_ip_esp_0.1.0/{target}-verilator").is_dir()
