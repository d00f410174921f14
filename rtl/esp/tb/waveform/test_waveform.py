"""Draws one packet on its way through the outbound lane, cycle by cycle, as simulated.

    rtl/run python rtl/esp/tb/waveform/test_waveform.py docs/fpga-waveform.svg
"""

import json
import os
import sys
from pathlib import Path

RTL = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(RTL / place) for place in ("tb", "crypto/tb", "esp/tb", "esp/tb/lane_rates")]

import bench  # noqa: E402
import cocotb  # noqa: E402
import core  # noqa: E402
from cocotb.triggers import ReadOnly, RisingEdge  # noqa: E402
from lane import Lane  # noqa: E402
from test_lane_rates import Flow  # noqa: E402

BYTES = 100
# What is drawn: a name, and the signals of esp_out, or of its esp_front, that are all high when it happens.
ROWS = (
    ("packet in", "valid_i", "ready_o"), ("parsed", "u_front.parse_done"), ("policy: question", "u_front.lookup_valid", "u_front.lookup_ready"),
    ("policy: answer", "u_front.policy_valid"), ("SA: question", "sa_valid", "sa_ready"), ("SA: answer", "answer_valid", "answer_ready"),
    ("cipher: command", "cmd_valid", "cmd_ready"), ("cipher: body in", "body_valid", "body_ready"), ("cipher: body out", "tap_valid"),
    ("cipher: ICV", "tag_valid"), ("packet taken together", "packet_valid"), ("packet out", "valid_o", "ready_i"),
)  # fmt: skip
LEFT, STEP, HEIGHT, TOP, BAR = 150, 7, 24, 30, 14


def signal(dut, path):
    """A signal of the lane, or of an instance in it."""
    for name in path.split("."):
        dut = getattr(dut, name)
    return dut


@cocotb.test()
async def one_packet(dut):
    await bench.start(dut)
    lane, flow = Lane(dut), Flow(1, core.GCM256, False, False)
    await flow.install(lane)
    await lane.config("policy").policy(1, core.entry("10.1.0.1/32", "10.2.0.0/16"), core.PROTECT, 1)
    await lane.config("policy").write(7, 21, 0)  # waits for the entry that is being written
    frame, outcome = flow.next(BYTES)
    seen = []
    for cycle in range(400):
        if cycle == 2:
            lane.source.frame(frame)
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        seen.append([all(signal(dut, path).value == 1 for path in paths) for _, *paths in ROWS])
        if len(lane.frames) == 1:
            break
    assert lane.frames[0][0].endswith(outcome)
    first = next(at for at, row in enumerate(seen) if row[0])
    last = max(at for at, row in enumerate(seen) if row[-1])
    Path(os.environ["WAVEFORM"]).write_text(json.dumps(seen[first : last + 1]))


def runs(column):
    """(first, length) of what is high without a break."""
    begin = None
    for at, high in enumerate([*column, False]):
        if high and begin is None:
            begin = at
        elif not high and begin is not None:
            yield begin, at - begin
            begin = None


def draw(seen):
    width, height = LEFT + STEP * len(seen) + 20, TOP + HEIGHT * len(ROWS) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<title>A packet of {BYTES} bytes through esp_out, AES-256-GCM, one column a cycle</title>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]  # fmt: skip
    for cycle in range(0, len(seen), 10):
        x = LEFT + STEP * cycle
        parts.append(f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{height - 10}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="middle" fill="#666">{cycle}</text>')
    for at, (name, *_) in enumerate(ROWS):
        base = TOP + HEIGHT * at + BAR
        parts.append(f'<text x="{LEFT - 8}" y="{base - 2}" text-anchor="end">{name}</text>')
        path, end = f"M{LEFT} {base}", LEFT
        for begin, length in runs([row[at] for row in seen]):
            x, end = LEFT + STEP * begin, LEFT + STEP * (begin + length)
            path += f"H{x}V{base - BAR}H{end}V{base}"
            if length > 1:
                parts.append(f'<text x="{(x + end) / 2}" y="{base - 3}" text-anchor="middle" fill="#246">{length}</text>')
        parts.append(f'<path d="{path}H{LEFT + STEP * len(seen)}" fill="#246" fill-opacity="0.12" stroke="#246"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def record(file, parameters, **how):
    """The cycles of one packet: for each, which rows are high."""
    public = {"esp_out": [], "esp_front": []}
    for path in sorted({path for _, *paths in ROWS for path in paths}):
        instance, _, name = path.rpartition(".")
        public["esp_front" if instance else "esp_out"].append(name)
    bench.run("esp_out", parameters, public, test_file=Path(__file__), WAVEFORM=str(file), **how)
    return json.loads(file.read_text())


def test_each_row_is_drawn(tmp_path):
    """With a small lane, which compiles soon."""
    seen = record(tmp_path / "cycles.json", {"Rows": 32, "Entries": 8}, optimise="-O0")
    assert [name for at, (name, *_) in enumerate(ROWS) if not any(row[at] for row in seen)] == []
    assert draw(seen).count("<path") == len(ROWS)


def main():
    target = Path(sys.argv[1]).resolve()
    cycles = target.with_suffix(".json")
    # As bench/zynq.py builds it.
    parameters = {"HmacUnits": 8, "Rows": 16, "Entries": 8, "RoundLatency": 3, "SboxKind": 1, "GhashStages": 4}
    target.write_text(draw(record(cycles, parameters)))
    cycles.unlink()


if __name__ == "__main__":
    main()
