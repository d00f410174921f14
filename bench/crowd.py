"""Measures a gateway with many peers: the time until all of their tunnels are up, the memory that a tunnel takes, and whether
packets of each tunnel pass, also while all are rekeyed. Writes a record.

Both gateways run on this machine and share its cores, with the limits that a configuration without them has.
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

from record import Bench
from setups import OUTER_A, OUTER_B, EsplanadePair
from harness.process import run, wait_until

WHAT = "many tunnels: time until all are up, memory, packets through each of them, also while they are rekeyed"
# The inner networks of the two ends: tunnel n has the nth /28 of each.
NETWORKS = [ipaddress.ip_network("10.64.0.0/11"), ipaddress.ip_network("10.128.0.0/11")]
TUNNELS_MAX = 1 << 16
ICMP_ECHO, ICMP_ECHO_REPLY = 8, 0
# Python has no names for them.
SO_RCVBUFFORCE, IP_PKTINFO = 33, 8
# Echo requests are sent at this rate, so that no queue of the kernel overflows.
PER_SECOND = 2000


def inner(end: int, tunnel: int) -> ipaddress.IPv4Address:
    """The address of one end in a tunnel."""
    return NETWORKS[end][16 * tunnel + 5]


def configuration(end: int, tunnels: int, socket_path: Path, rekey: int) -> str:
    local, remote = (OUTER_A, OUTER_B)[::1 if end == 0 else -1]
    connections = []
    for n in range(tunnels):
        here, there = (f"{inner(which, n) - 5}/28" for which in (end, 1 - end))
        start = "start_action = start" if end == 0 else ""
        connections.append(
            f"c{n} {{\nversion = 2\nlocal_addrs = {local}\nremote_addrs = {remote}\n"
            "proposals = aes128gcm16-prfsha256-x25519\n"
            f"local {{\nauth = psk\nid = {'ab'[end]}{n}.example\n}}\n"
            f"remote {{\nauth = psk\nid = {'ba'[end]}{n}.example\n}}\n"
            f"children {{\nk{n} {{\nlocal_ts = {here}\nremote_ts = {there}\nesp_proposals = aes128gcm16\n"
            f"rekey_time = {rekey}s\nlife_time = {2 * rekey}s\n{start}\n}}\n}}\n}}\n")
    return (f"gateway {{\nsocket = {socket_path}\nlog_level = warn\n}}\n"
            f"connections {{\n{''.join(connections)}}}\n"
            "secrets {\nike-all {\nsecret = \"0123456789abcdef0123456789\"\n}\n}\n")


class Crowd(EsplanadePair):
    tunnels, rekey = 0, 0

    def tunnel(self) -> None:
        self.daemons = [self.make("a", self.a), self.make("b", self.b)]
        for end, (space, daemon) in enumerate(zip((self.a, self.b), self.daemons)):
            # All inner addresses are the host's own.
            run(["ip", "-n", space.name, "route", "add", "local", str(NETWORKS[end]), "dev", "lo"])
            space.sysctl(ipv4__ip_nonlocal_bind=1)
            daemon.config.write_text(configuration(end, self.tunnels, daemon.socket, self.rekey))
            daemon.config.chmod(0o600)
        responder, initiator = self.daemons[::-1]
        for daemon in (responder, initiator):
            daemon.launch()
            if daemon is responder:
                wait_until("the responder listens", daemon.takes_commands, timeout=60)
                # The first answer comes when the gateway has given back what it read the configuration with.
                count(daemon, "child-sas-installed")
                self.idle = memory(daemon)
        self.began = time.monotonic()

    def start(self) -> None:
        self.link()
        self.tunnel()


def memory(daemon) -> int:
    """The resident memory of a gateway's process, in bytes."""
    status = Path(f"/proc/{daemon._process.popen.pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def count(daemon, name: str) -> int:
    """One counter of IKE, without a list of all SAs."""
    counters = daemon.session().request("get-counters")
    return int(counters["ike"][name])


def checksum(packet: bytes) -> int:
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def echo(tunnel: int) -> bytes:
    # The identifier and the sequence number name the tunnel.
    head = struct.pack("!BBHHH", ICMP_ECHO, 0, 0, 0x4553, tunnel)
    return struct.pack("!BBHHH", ICMP_ECHO, 0, checksum(head), 0x4553, tunnel)


class Pings:
    """Echo requests through every tunnel, from its address at one end to its address at the other."""

    def __init__(self, crowd: Crowd):
        self.tunnels = crowd.tunnels
        with crowd.a.entered():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)

    def receive(self, until: float) -> set[int]:
        answered = set()
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                packet = self.socket.recv(2048)
            except TimeoutError:
                break
            kind, _, _, identifier, tunnel = struct.unpack("!BBHHH", packet[20:28])
            if (kind, identifier) == (ICMP_ECHO_REPLY, 0x4553):
                answered.add(tunnel)
        return answered

    def once(self) -> int:
        """Sends one request through each tunnel, and returns how many were answered."""
        answered: set[int] = set()
        began = time.monotonic()
        for tunnel in range(self.tunnels):
            here = struct.pack("=I4s4s", 0, inner(0, tunnel).packed, bytes(4))
            self.socket.sendmsg([echo(tunnel)], [(socket.IPPROTO_IP, IP_PKTINFO, here)], 0,
                                (str(inner(1, tunnel)), 0))
            if tunnel % 20 == 19:
                answered |= self.receive(began + tunnel / PER_SECOND)
        until = time.monotonic() + 3
        while len(answered) < self.tunnels and time.monotonic() < until:
            answered |= self.receive(min(until, time.monotonic() + 0.1))
        return len(answered)


def measure(crowd: Crowd, limit: float) -> dict[str, object]:
    tunnels = crowd.tunnels
    responder, initiator = crowd.daemons[::-1]
    wait_until("the control socket", initiator.takes_commands, timeout=limit)
    up = 0
    while up < tunnels and time.monotonic() < crowd.began + limit:
        time.sleep(1)
        up = min(count(daemon, "child-sas-installed") for daemon in crowd.daemons)
    result: dict[str, object] = {
        "up": min(up, tunnels),
        "seconds": round(time.monotonic() - crowd.began, 1),
        "cpu_seconds": round(crowd.cpu_seconds(), 1),
        "kb_per_tunnel": round((memory(responder) - crowd.idle) / tunnels / 1000, 1),
        "kb_idle": round(crowd.idle / 1000),
    }
    pings = Pings(crowd)
    result["answered"] = pings.once()
    sent, answered = 0, 0
    until = time.monotonic() + crowd.rekey + 10
    while crowd.rekey and time.monotonic() < until:
        answered += pings.once()
        sent += tunnels
    result |= {"kb_in_all": round(memory(responder) / 1000),
               "rekeyed": count(initiator, "child-rekeys") + count(responder, "child-rekeys"),
               "pings_meanwhile": sent, "lost_meanwhile": sent - answered,
               "repairs": sum(daemon.logs().count("put back") for daemon in crowd.daemons)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tunnels", type=int, default=10_000)
    parser.add_argument("--rekey", type=int, default=60, help="the children's rekey_time in seconds, 0 for none")
    parser.add_argument("--limit", type=float, default=300, help="seconds to wait for all tunnels")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    if not 0 < options.tunnels <= TUNNELS_MAX:
        sys.exit(f"--tunnels is 1 to {TUNNELS_MAX}")
    bench = Bench("", "crowd", f"bench/crowd.py --tunnels {options.tunnels} --rekey {options.rekey}")
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder))
        crowd.tunnels, crowd.rekey = options.tunnels, options.rekey
        try:
            crowd.start()
            result = {"tunnels": options.tunnels} | measure(crowd, options.limit)
        finally:
            crowd.stop()
    print(result)
    if not options.no_record:
        bench.write(WHAT, {"cases": [result]})


if __name__ == "__main__":
    main()
