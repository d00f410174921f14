"""Captures packets on the wire, and dissects them with tshark and the exported keys."""

from __future__ import annotations

import re
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from .namespaces import Topology
from .process import Process, run, wait_until

PREFERENCES = ["esp.enable_encryption_decode:TRUE", "esp.enable_authentication_check:TRUE"]
# tshark prints one line per packet: the names of all layers, then the fields below.
FIELDS = ["frame.number", "frame.protocols", "esp.spi", "esp.icv_good", "esp.icv_bad", "_ws.malformed",
          "isakmp.exchangetype", "isakmp.enc.decrypted", "ip.proto"]


def missing() -> str | None:
    for tool in ("dumpcap", "tshark", "ethtool"):
        if not shutil.which(tool):
            return f"{tool} is not installed (tools/deps.sh)"
    return None


class Capture:
    """Captures every packet between the gateways, one frame for each."""

    def __init__(self, topology: Topology, file: Path, expression: str = ""):
        self.file = file
        # A veth pair carries UDP segmentation offload through, so that a frame could hold many packets.
        far_end = (topology.nat_box, "outside") if topology.nat else (topology.gw_b, "wan")
        for space, interface in ((topology.wan, "to_b"), far_end):
            space.run(["ethtool", "-K", interface, "tx-udp-segmentation", "off"])
        # The tool is dumpcap, because tcpdump changes its user, which a user namespace forbids.
        self._process: Process = topology.start(
            "wan", ["dumpcap", "-q", "-P", "-i", "to_b", "-w", file, *(["-f", expression] if expression else [])])
        # A capture has begun once its file has the header.
        wait_until("dumpcap", lambda: file.exists() and file.stat().st_size >= 24)

    def stop(self) -> Path:
        # The kernel hands packets over in blocks, and does not say when the last one is out.
        time.sleep(0.6)
        self._process.stop(signal.SIGINT)
        return self.file


@dataclass
class Packet:
    number: int
    protocols: list[str]
    esp: bool
    # None: tshark had no key for the packet.
    icv_good: bool | None
    malformed: bool
    exchange: int | None
    decrypted: bool
    raw: dict[str, str] = field(repr=False, default_factory=dict)


def tshark_version() -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)\.\d+", run(["tshark", "--version"]).stdout)
    return int(found[1]), int(found[2])


def dissect(file: Path, key_lines: list[str] = ()) -> list[Packet]:
    """Dissects a capture. `key_lines` are the lines of an exported key file, each `TABLE:RECORD`."""
    argv = ["tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a"]
    for preference in PREFERENCES:
        argv += ["-o", preference]
    for line in key_lines:
        if line.startswith("ipsec_sa:"):
            continue  # a line for the oracle is no table of tshark's
        argv += ["-o", f"uat:{line}"]
    for name in FIELDS:
        argv += ["-e", name]
    done = run(argv, timeout=120)
    refused = [line for line in done.stderr.splitlines() if "uat" in line.lower() or "invalid" in line.lower()]
    if refused:
        raise AssertionError(f"tshark refused the key file: {refused}")
    packets = []
    for line in done.stdout.splitlines():
        raw = dict(zip(FIELDS, line.split("|")))
        protocols = raw["frame.protocols"].split(":")
        icv = None
        if raw["esp.icv_good"] or raw["esp.icv_bad"]:
            icv = raw["esp.icv_good"].split(",")[0] in ("1", "True")
        packets.append(Packet(int(raw["frame.number"]), protocols, "esp" in protocols, icv,
                              bool(raw["_ws.malformed"]) or "_ws.malformed" in protocols,
                              int(raw["isakmp.exchangetype"].split(",")[0]) if raw["isakmp.exchangetype"] else None,
                              bool(raw["isakmp.enc.decrypted"]), raw))
    return packets
