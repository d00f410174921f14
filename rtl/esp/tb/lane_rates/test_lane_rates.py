"""How many cycles a packet takes in esp_out and esp_in: the interval in a row of packets, and from its first beat in to its
last beat out alone. Every packet is compared with what another implementation makes of it.

    rtl/run python rtl/esp/tb/lane_rates/test_lane_rates.py esp_out 8 0,2 522,514u RESULT.json RoundLatency=3   # u: in UDP
"""

import json
import os
import random
import struct
import sys
from pathlib import Path

RTL = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(RTL / place) for place in ("tb", "crypto/tb", "esp/tb")]

import bench  # noqa: E402
import cocotb  # noqa: E402
import core  # noqa: E402
from cipher_keys import Packet, material  # noqa: E402
from lane import Lane  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from streams import until  # noqa: E402

SITE, PEER = "192.0.2.1", "198.51.100.2"
LOCAL, REMOTE = "10.1.0.0/16", "10.2.0.0/16"
GROUP = 3
SETTLE, COUNTED = 16, 16  # packets; a multiple of the units, which take turns
# The Zynq paper's cycles, by size and whether in UDP: AES-256-CTR with HMAC-SHA-256, AES-256-GCM.
PAPER = {(522, False): (429, 160), (1446, False): (926, 276), (514, True): (467, 160), (1438, True): (1022, 372)}


class Flow:
    """An SA and the packets that go through it, clear and sealed."""

    def __init__(self, row, suite, udp, inbound):
        self.row, self.suite, self.udp, self.inbound = row, suite, udp, inbound
        self.material = material(random.Random(row), suite)
        self.spi, self.sequence = 0x1000 + row, 0
        self.source = random.Random(row)

    async def install(self, lane):
        await lane.config("key").key(self.row, self.suite, self.material)
        if self.inbound:
            await lane.config("sa").sa_in(self.row, spi=self.spi, suite=self.suite, group=GROUP)
        else:
            ports = (4500, 4500) if self.udp else None
            await lane.config("sa").sa_out(self.row, spi=self.spi, local=SITE, remote=PEER, suite=self.suite, ports=ports)

    def next(self, size):
        """A frame as it goes in, and what its outcome has to end with."""
        self.sequence += 1
        ends = (f"10.2.0.{self.row}", f"10.1.0.{self.row}")
        payload = Raw(self.source.randbytes(size - 28))
        clear = bytes(IP(src=ends[not self.inbound], dst=ends[self.inbound]) / UDP(sport=9, dport=9) / payload)
        padding = -(size + 2) % 4
        body = clear + bytes(range(1, padding + 1)) + bytes([padding, 4])
        packet = Packet(self.row, self.suite, self.material, struct.pack(">Q", self.sequence), self.spi, self.sequence, False, body)
        esp = struct.pack(">II", self.spi, self.sequence) + packet.iv + packet.sealed + packet.icv
        upper = UDP(sport=4500, dport=4500, chksum=0) / Raw(esp) if self.udp else Raw(esp)
        sealed = bytes(IP(src=PEER, dst=SITE, proto=17 if self.udp else 50) / upper)
        return (sealed, clear) if self.inbound else (clear, sealed[20:])


async def send(lane, flow, size, count):
    """Sends so many in a row; the cycles of the first beat in and of every last beat out."""
    lane.sink.taken, lane.sink.ends = [], []
    first, expected = lane.source.sent, []
    for _ in range(count):
        frame, outcome = flow.next(size)
        lane.source.frame(frame)
        expected.append(outcome)
    await until(lane.dut.clk_i, lambda: len(lane.sink.ends) == len(lane.frames) == count, 3000 + 1000 * count)
    for (got, _), outcome in zip(lane.frames, expected):
        assert got.endswith(outcome) and len(got) == len(outcome) + (0 if flow.inbound else 20), got.hex()
    return lane.source.cycles[first], lane.sink.ends


@cocotb.test()
async def measure(dut):
    wanted = json.loads(os.environ["LANE_RATES"])
    inbound, units = wanted["module"] == "esp_in", int(dut.HmacUnits.value)
    await bench.start(dut)
    lane, flows, rows = Lane(dut), {}, []
    for suite in wanted["suites"]:
        for udp in (False, True):
            flow = flows[suite, udp] = Flow(len(flows) + 1, suite, udp, inbound)
            await flow.install(lane)
            if not inbound:
                # UDP or not is the SA's, which the address tells apart.
                entry = core.entry(f"10.1.0.{flow.row}/32", REMOTE)
                await lane.config("policy").policy(flow.row, entry, core.PROTECT, flow.row)
    if inbound:
        await lane.config("policy").policy(0, core.entry(LOCAL, REMOTE, tunnelled=True), core.PROTECT, GROUP)
    await lane.config("policy").write(7, 21, 0)  # waits for the entry that is being written
    for suite in wanted["suites"]:
        for size, udp in wanted["packets"]:
            begin, ends = await send(lane, flows[suite, udp], size, 1)
            latency = ends[0] - begin + 1
            _, ends = await send(lane, flows[suite, udp], size, SETTLE + COUNTED)
            interval = (ends[-1] - ends[-1 - COUNTED]) / COUNTED
            dut._log.info(f"suite {suite}, {units} units, {size} bytes{' in UDP' * udp}: interval {interval}, latency {latency}")
            rows.append({"module": wanted["module"], "suite": suite, "units": units, "bytes": size, "udp": udp,
                         "interval": interval, "latency": latency})
    assert not lane.drops
    lane.stop()
    Path(wanted["file"]).write_text(json.dumps(rows))


def run(module, units, suites, sizes, file, **parameters):
    """The rows that were measured, which are also written to `file`."""
    wanted = {"module": module, "suites": suites, "packets": sizes, "file": str(file)}
    parameters |= {"HmacUnits": units, "Rows": 16, "Entries": 8}
    bench.run(module, parameters, LANE_RATES=json.dumps(wanted))
    return json.loads(Path(file).read_text())


def test_a_quarter_of_the_papers_cycles(tmp_path):
    """AES-256-CTR with HMAC-SHA-256 and four units; esp_in takes as long, and bench/zynq.py measures it too."""
    for row in run("esp_out", 4, [core.CTR256], list(PAPER), tmp_path / "rows.json", Gcm=0):
        assert 4 * row["interval"] <= PAPER[row["bytes"], row["udp"]][0]


if __name__ == "__main__":
    module, units, suites, sizes, file, *settings = sys.argv[1:]
    sizes = [(int(size.rstrip("u")), size.endswith("u")) for size in sizes.split(",")]
    settings = dict(setting.split("=") for setting in settings)
    run(module, int(units), [int(suite) for suite in suites.split(",")], sizes, file, **settings)
