"""The FuseSoC core file names every module, and packages first."""

import re

import bench


def test_the_core_file_names_every_module():
    text = (bench.RTL / "esplanade.core").read_text()
    named = re.findall(r"^ +- (\w+\.sv)$", text, re.MULTILINE)
    packages = [name for name in named if name.endswith("_pkg.sv")]
    assert sorted(named) == sorted(path.name for path in bench.RTL.glob("*.sv"))
    assert named[: len(packages)] == packages
