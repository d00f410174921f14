"""The FuseSoC core file names every module, packages first, and its lint targets run."""

import re
import subprocess

import bench
import pytest
import sources


def test_the_core_file_names_every_module():
    text = (bench.RTL / "esplanade.core").read_text()
    named = re.findall(r"^ +- ([\w/]+\.sv)$", text, re.MULTILINE)
    packages = [name for name in named if name.endswith("_pkg.sv")]
    assert sorted(named) == sorted(str(path.relative_to(bench.RTL)) for path in sources.modules().values())
    assert named[: len(packages)] == packages


@pytest.mark.parametrize("target", ("lint", "lint_out", "lint_sections"))
def test_fusesoc_runs_it(target, tmp_path):
    command = ["fusesoc", "--cores-root", str(bench.RTL), "run", "--build-root", str(tmp_path), "--target", target, "esplanade:ip:esp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"esplanade_ip_esp_0.1.0/{target}-verilator").is_dir()
