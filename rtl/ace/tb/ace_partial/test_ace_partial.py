"""Partial streams of the pinned ecppack are those that the tests of crates/ace read (rtl/syn/partial_vectors.py)."""

import json
import shutil
import sys

import bench
import pytest

sys.path.insert(0, str(bench.RTL / "syn"))
import partial_vectors  # noqa: E402


@pytest.mark.skipif(not shutil.which("yowasp-ecppack"), reason="no yowasp-ecppack (tools/deps.sh installs it)")
def test_ace_partial():
    kept = json.loads(partial_vectors.FILE.read_text())
    kept["cases"] = [case for case in kept["cases"] if case["name"] == "one column"]
    assert kept["cases"] and kept == partial_vectors.make({"one column"})
