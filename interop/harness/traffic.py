"""Sends traffic between the hosts behind the gateways."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .namespaces import Namespace, Topology
from .process import HarnessError, Process, wait_until

# No dissector of tshark claims these ports: one that did would find the payload malformed.
AGENT = Path(__file__).with_name("agent.py")
INJECT = Path(__file__).with_name("inject.py")


def ping(space: Namespace, target: str, *, count: int = 3, size: int = 56, interval: float = 0.05,
         source: str | None = None, timeout: float = 2) -> int:
    """The number of echoes that came back with the bytes as they were sent."""
    done = space.run([sys.executable, AGENT, "ping", target, source or "", count, size, interval, timeout],
                     timeout=count * interval + timeout + 20)
    return int(done.stdout)


class Listener:
    """Collects the UDP datagrams that reach a host."""

    def __init__(self, space: Namespace, address: str, port: int = 40200):
        self._process = agent(space, "listen", address, port)
        assert self._process.popen.stdout.readline() == b"ready\n"
        self._received: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.popen.stdout:
            self._received.append(bytes.fromhex(line.decode()))

    def stop(self, expected: int = 0) -> list[bytes]:
        """Returns the datagrams that came. Expected ones may take ten seconds on a busy machine; unexpected ones get
        half a second."""
        deadline = time.monotonic() + 10
        while len(self._received) < expected and time.monotonic() < deadline:
            time.sleep(0.05)
        # Often nothing may come: half a second is what an unexpected datagram has.
        time.sleep(0.5)
        self._process.stop(signal.SIGINT)
        self._reader.join(5)
        if self._process.returncode != 0:
            raise HarnessError(f"the listener ended with {self._process.returncode}")
        return self._received


def inject(space: Namespace, packets: list[bytes]) -> None:
    """Sends whole IP packets out of a namespace, whatever their source address is."""
    space.run([sys.executable, INJECT], stdin="".join(f"{packet.hex()}\n" for packet in packets))


def assert_ping(space: Namespace, target: str, **options) -> None:
    count = options.setdefault("count", 3)
    received = ping(space, target, **options)
    assert received == count, f"ping {target}: {received} of {count} came back"


def agent(space: Namespace, *arguments: object) -> Process:
    return space.start([sys.executable, AGENT, *arguments], stdout=subprocess.PIPE)


def finish(process: Process, timeout: float = 30) -> str:
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
    server = agent(receiver, "receive", address, port)
    assert server.popen.stdout.readline() == b"ready\n"
    client = agent(sender, "send", address, port, size, *([via] if via else []))
    try:
        sent = finish(client).split()
        got = finish(server).split()
    finally:
        client.stop()
        server.stop()
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
        self._receiver = agent(receiver, "count", address, port)
        assert self._receiver.popen.stdout.readline() == b"ready\n"
        self._sender = agent(sender, "stream", address, port, rate, size, seconds)
        assert self._sender.popen.stdout.readline() == b"ready\n"

    def stop(self) -> FlowReport:
        self._sender.send_signal(signal.SIGINT)
        sent = int(finish(self._sender))
        # The last datagrams are on their way; how many will come is not known.
        time.sleep(0.5)
        self._receiver.send_signal(signal.SIGINT)
        received, duplicates, reordered, corrupt = map(int, finish(self._receiver).split())
        return FlowReport(sent, received, duplicates, reordered, corrupt)

    def abandon(self) -> None:
        self._sender.stop(9)
        self._receiver.stop(9)


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
            wait_until(f"three pings of {large} bytes to {to_b}",
                       lambda: ping(a, to_b, count=3, size=large, timeout=0.4) == 3, timeout=6)
        transfer(a, b, to_b, size=size)
        transfer(b, a, to_a, size=size)
