"""Captures packets on the wire, and dissects them with tshark and the exported keys."""

from __future__ import annotations

import ctypes
import functools
import re
import select
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import agent
from .branch import Branch
from .namespaces import Namespace, Topology
from .process import HarnessError, run, wait_until

PREFERENCES = ["esp.enable_encryption_decode:TRUE", "esp.enable_authentication_check:TRUE"]
# tshark prints one line per packet: the names of all layers, then the fields below.
FIELDS = ["frame.number", "frame.protocols", "esp.spi", "esp.icv_good", "esp.icv_bad", "_ws.malformed",
          "isakmp.exchangetype", "isakmp.enc.decrypted", "ip.proto"]


def missing() -> str | None:
    for tool in ("tshark", "ethtool"):
        if not shutil.which(tool):
            return f"{tool} is not installed (tools/deps.sh)"
    return None if pcap() else "libpcap is not installed (tools/deps.sh)"


@functools.cache
def pcap() -> ctypes.CDLL | None:
    """tshark needs it as well. Debian's file has another number than those of others."""
    for name in ("libpcap.so.0.8", "libpcap.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = library.pcap_geterr.restype = ctypes.c_void_p
        return library
    return None


ETHERNET, EVERY_PROTOCOL, LONGEST = 1, 3, 262144


def packet_socket(space: Namespace, interface: str, expression: str = "") -> socket.socket:
    """Gets every frame that the interface sends or receives and that the expression of pcap-filter(7) lets through. A
    frame is in the socket's queue before the next one leaves."""
    one = space.socket(socket.AF_PACKET, socket.SOCK_RAW)
    agent.room(one, 1 << 26)
    if expression:
        _filter(one, expression)
    one.bind((interface, EVERY_PROTOCOL))
    return one


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint), ("instructions", ctypes.c_void_p)]


def _filter(one: socket.socket, expression: str) -> None:
    library = pcap()
    dead, program = ctypes.c_void_p(library.pcap_open_dead(ETHERNET, LONGEST)), _Program()
    try:
        if library.pcap_compile(dead, ctypes.byref(program), expression.encode(), 1, ctypes.c_uint(0xFFFFFFFF)) != 0:
            raise HarnessError(f"{expression!r}: {ctypes.string_at(library.pcap_geterr(dead)).decode()}")
        one.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", program.length, program.instructions))  # SO_ATTACH_FILTER
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(dead)


def _write(control: int, wire: socket.socket, file: str) -> int:
    """Writes frames to a capture file until something comes on `control`, then what waits in the socket. Returns how
    many the socket had no room for."""
    wire.setblocking(False)
    ready = select.poll()
    ready.register(wire, select.POLLIN)
    ready.register(control, select.POLLIN)
    with open(file, "wb") as out:
        out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, LONGEST, ETHERNET))
        stopped = False
        while not stopped:
            stopped = control in dict(ready.poll())
            try:
                while True:
                    frame, now = wire.recv(LONGEST), time.time_ns() // 1000
                    out.write(struct.pack("=IIII", now // 1_000_000, now % 1_000_000, len(frame), len(frame)) + frame)
            except BlockingIOError:
                pass
    _, dropped = struct.unpack("II", wire.getsockopt(263, 6, 8))  # PACKET_STATISTICS
    return dropped


def frames(file: Path) -> Iterator[bytes]:
    """The frames of a capture file."""
    data, place = file.read_bytes(), 24
    while place < len(data):
        length = int.from_bytes(data[place + 8:place + 12], "little")
        yield data[place + 16:place + 16 + length]
        place += 16 + length


class Capture:
    """Captures every packet between the gateways, one frame for each."""

    def __init__(self, topology: Topology, file: Path, expression: str = ""):
        self.file = file
        # A veth pair carries UDP segmentation offload through, so that a frame could hold many packets.
        far_end = (topology.nat_box, "outside") if topology.nat else (topology.gw_b, "wan")
        for space, interface in ((topology.wan, "to_b"), far_end):
            space.run(["ethtool", "-K", interface, "tx-udp-segmentation", "off"])
        with packet_socket(topology.wan, "to_b", expression) as wire:
            self._writer = Branch(topology.wan, _write, wire, str(file), keep=(wire.fileno(),))

    def stop(self) -> Path:
        """Ends the capture. All that the interface has sent and received until now is in the file."""
        self._writer.tell(b"stop")
        dropped = self._writer.result()
        if dropped:
            raise HarnessError(f"the capture has lost {dropped} frames")
        return self.file


class Informational:
    """Counts the INFORMATIONAL messages of each gateway, over IPv4: liveness checks and their answers."""

    def __init__(self, topology: Topology):
        self._wire = packet_socket(topology.wan, "to_b", "udp port 500 or udp port 4500")
        self._wire.setblocking(False)
        self._counts = {socket.inet_aton(site.wan4): 0 for site in (topology.a, topology.b_seen_by_a)}

    def wait(self, each: int) -> None:
        """Waits until each gateway has sent so many."""
        wait_until(f"{each} messages of each gateway", lambda: min(self._counted()) >= each)
        self._wire.close()

    def _counted(self):
        try:
            while True:
                frame = self._wire.recv(LONGEST)
                message = frame[42:]
                # On port 4500 the non-ESP marker comes first.
                message = message[4:] if message[:4] == bytes(4) else message
                if message[18:19] == b"\x25" and frame[26:30] in self._counts:
                    self._counts[frame[26:30]] += 1
        except BlockingIOError:
            return self._counts.values()


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


def true(field: str) -> bool:
    """Whether the first value of a boolean field is true. tshark before 4.2 prints 1, later ones True."""
    return field.split(",")[0] in ("1", "True")


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
            icv = true(raw["esp.icv_good"])
        packets.append(Packet(int(raw["frame.number"]), protocols, "esp" in protocols, icv,
                              bool(raw["_ws.malformed"]) or "_ws.malformed" in protocols,
                              int(raw["isakmp.exchangetype"].split(",")[0]) if raw["isakmp.exchangetype"] else None,
                              bool(raw["isakmp.enc.decrypted"]), raw))
    return packets
