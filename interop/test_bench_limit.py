"""A bench with a limit ends, and what it has printed counts."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

from record import Bench  # noqa: E402

# Like cargo: the bench is its child, has the pipe, and hangs.
HANGS = """#!/bin/sh
echo '{"part": "first"}'
sleep 60 &
wait
"""


def program(folder, text):
    file = folder / "bench"
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_a_bench_that_hangs_in_a_child_is_killed(tmp_path):
    bench = Bench("package", "name", program=program(tmp_path, HANGS))
    begun = time.monotonic()
    assert bench.cases(limit=1) == [{"part": "first"}]
    assert time.monotonic() - begun < 30
    assert len(bench.failures) == 1 and "failed with -9" in bench.failures[0]


def test_without_a_limit_a_failure_ends_all(tmp_path):
    bench = Bench("package", "name", program=program(tmp_path, "#!/bin/sh\nexit 3\n"))
    with pytest.raises(SystemExit, match="failed with 3"):
        bench.cases()
