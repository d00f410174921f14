"""Sends traffic between the hosts behind the gateways."""

from __future__ import annotations

import json
import mmap
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import agent
from .branch import Branch
from .namespaces import Namespace, Topology
from .process import HarnessError, Process, wait_until


def ping(space: Namespace, target: str, *, count: int = 3, size: int = 56, interval: float = 0.01,
         source: str | None = None, timeout: float = 2) -> int:
    """The number of echoes that came back with the bytes as they were sent."""
    with space.entered():
        echo = agent.echo_socket(target)
    with echo:
        if source:
            echo.bind((source, 0))
        return agent.ping(echo, target, count, size, interval, timeout)


def send(space: Namespace, address: str, port: int, datagrams: list[bytes], *, tos: int = 0) -> None:
    """Sends UDP datagrams out of one socket."""
    with space.socket(agent.family(address)) as out:
        if tos:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        for datagram in datagrams:
            out.sendto(datagram, (address, port))


class Listener:
    """Collects the UDP datagrams that reach a host."""

    def __init__(self, space: Namespace, address: str, port: int = 40200):
        self.address, self.port = address, port
        # The socket is the store: the kernel keeps what comes until somebody looks.
        self._socket = space.socket(agent.family(address))
        agent.room(self._socket, 1 << 22)
        self._socket.bind((address, port))
        self._socket.setblocking(False)
        self._received: list[bytes] = []

    def received(self) -> list[bytes]:
        """What has come so far."""
        try:
            while True:
                self._received.append(self._socket.recv(65536))
        except BlockingIOError:
            return self._received

    def stop(self, expected: int = 0) -> list[bytes]:
        """Returns the datagrams that came. Expected ones may take ten seconds on a busy machine. Who expects that
        something does not come awaits a thing that comes after it, or calls `flush`, before."""
        deadline = time.monotonic() + 10
        while len(self.received()) < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        self._socket.close()
        return self._received

    def flush(self, space: Namespace) -> None:
        """Sends marks from a namespace until one comes: what was sent before it on the same way is there as well."""
        mark = os.urandom(16)

        def came() -> bool:
            send(space, self.address, self.port, [mark])
            end = time.monotonic() + 0.2
            while mark not in self.received() and time.monotonic() < end:
                time.sleep(0.005)
            return mark in self._received

        wait_until("a mark", came, step=0)
        self._received = [datagram for datagram in self._received if datagram != mark]


def inject(space: Namespace, packets: list[bytes]) -> None:
    """Sends whole IP packets out of a namespace, whatever their source address is."""
    with space.entered():
        agent.inject(packets)


def assert_ping(space: Namespace, target: str, **options) -> None:
    count = options.setdefault("count", 3)
    received = ping(space, target, **options)
    assert received == count, f"ping {target}: {received} of {count} came back"


def finish(process: Process, timeout: float = 30) -> str:
    """What a program prints until it ends."""
    try:
        out, _ = process.popen.communicate(timeout=timeout)
    finally:
        process.stop()
    if process.returncode != 0:
        raise HarnessError(f"{' '.join(process.argv[3:])}: exit {process.returncode}: {out!r}")
    return out.decode()


def transfer(sender: Namespace, receiver: Namespace, address: str, *, size: int = 2_000_000, port: int = 40000,
             via: str | None = None) -> None:
    """Sends a file of random bytes over TCP, by way of the address `via` if it is given. Both ends must have seen the
    same SHA-256."""
    with receiver.entered():
        server = socket.create_server((address, port), family=agent.family(address))
    with server, sender.socket(server.family, socket.SOCK_STREAM) as client, ThreadPoolExecutor(1) as other:
        if via:
            agent.by_way_of(client, address, via)
        receiving = other.submit(agent.receive, server)
        try:
            sent = agent.send(client, address, port, size)
        except BaseException:
            # Nobody waits for a sender that has given up.
            client.close()
            server.shutdown(socket.SHUT_RDWR)
            raise
        got = receiving.result()
    assert sent == got, f"the file changed on its way: sent {sent}, got {got}"


@dataclass
class FlowReport:
    sent: int
    received: int
    duplicates: int
    reordered: int
    corrupt: int

    @property
    def lost(self) -> int:
        return self.sent - self.received


class Flow:
    """Numbered and checksummed UDP datagrams at a steady rate, counted at the far end."""

    def __init__(self, sender: Namespace, receiver: Namespace, address: str, *, rate: int = 200, size: int = 200,
                 port: int = 40100, seconds: float = 60):
        self._progress = mmap.mmap(-1, 8)
        with receiver.socket(agent.family(address)) as inbound:
            agent.room(inbound, 1 << 23)
            inbound.bind((address, port))
            self._receiver = Branch(receiver, agent.count, inbound, self.QUIET, keep=(inbound.fileno(),))
        with sender.socket(agent.family(address)) as out:
            self._sender = Branch(sender, agent.stream, out, self._progress, address, port, rate, size, seconds,
                                  keep=(out.fileno(),))

    # A datagram that comes later than this after another one, once the flow has ended, counts as lost.
    QUIET = 1.0

    @property
    def sent(self) -> int:
        return int.from_bytes(self._progress[:8], "big")

    def go_on(self, more: int = 40, total: int = 0) -> None:
        """Waits until the flow has sent so many more datagrams, and so many in all."""
        goal = max(self.sent + more, total)
        wait_until(f"{goal} datagrams are sent", lambda: self.sent >= goal, timeout=30, step=0.02)

    def stop(self) -> FlowReport:
        self._sender.tell(b"stop")
        sent = self._sender.result()
        self._receiver.tell(sent.to_bytes(8, "big"))
        received, duplicates, reordered, corrupt = self._receiver.result()
        return FlowReport(sent, received, duplicates, reordered, corrupt)

    def abandon(self) -> None:
        self._sender.end()
        self._receiver.end()


def unread(topology: Topology) -> int:
    """How many packets found a full queue of the kernel: that of a TUN device, of a raw socket of ESP or of a UDP socket.
    A gateway that waits for its engine, on a machine with other work, cannot read in time."""
    total = 0
    for space in (topology.gw_a, topology.gw_b):
        links = json.loads(space.run(["ip", "-json", "-details", "-statistics", "link"]).stdout)
        total += sum(link["stats64"]["tx"]["dropped"] for link in links
                     if link.get("linkinfo", {}).get("info_kind") == "tun")
        with space.entered():
            raw = [line.split() for name in ("raw", "raw6") for line in _net(name)[1:]]
            total += sum(int(line[-1]) for line in raw if line[1].endswith(":0032"))  # protocol 50
            names, values = (line.split()[1:] for line in _net("snmp") if line.startswith("Udp:"))
            total += int(dict(zip(names, values))["RcvbufErrors"])
            total += sum(int(line.split()[1]) for line in _net("snmp6") if line.startswith("Udp6RcvbufErrors"))
    return total


def _net(name: str) -> list[str]:
    """The lines of a file of the namespace that this thread is in."""
    return Path("/proc/thread-self/net", name).read_text().splitlines()


def assert_whole(topology: Topology, *reports: FlowReport) -> None:
    """All has come, once and in order, but for what a queue of the kernel had no room for."""
    for report in reports:
        assert (report.duplicates, report.reordered, report.corrupt) == (0, 0, 0), report
    if lost := sum(report.lost for report in reports):
        assert lost <= (full := unread(topology)), f"{reports}: {full} packets found a full queue"


def exercise(topology: Topology, versions=(4, 6), *, size: int = 1_000_000) -> None:
    """Sends the traffic that every established tunnel must carry: pings of several sizes and a file, in both
    directions."""
    a, b = topology.host_a, topology.host_b
    for version in versions:
        to_b, to_a = topology.b.host(version), topology.a.host(version)
        wait_until(f"first ping to {to_b}", lambda: ping(a, to_b, count=1, timeout=1), timeout=5)
        assert_ping(a, to_b, count=5)
        assert_ping(b, to_a, count=5)
        for large in (1400, 4000):
            # The first pings may be spent on path MTU discovery, of the echo and of the reply.
            wait_until(f"a ping of {large} bytes to {to_b}", lambda: ping(a, to_b, count=1, size=large, timeout=0.1))
            assert_ping(a, to_b, size=large)
        transfer(a, b, to_b, size=size)
        transfer(b, a, to_a, size=size)
