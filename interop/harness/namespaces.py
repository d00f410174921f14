"""Two sites and an "internet", made of network namespaces.

    host_a --- gw_a --- wan --- [nat] --- gw_b --- host_b

Every address is private and exists only inside the namespaces. The names of the namespaces are unique per run, so
that runs can go side by side. `wan` routes between the two outer networks. Captures are taken and packets are
injected there.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import HarnessError, Process, run

_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
_serial = itertools.count()
_live: set[Topology] = set()


@dataclass(frozen=True)
class Site:
    """The addresses and devices of one end."""
    wan4: str
    wan6: str
    lan4: str
    lan6: str
    host4: str
    host6: str
    gw4: str
    gw6: str

    def wan(self, version: int) -> str:
        return self.wan4 if version == 4 else self.wan6

    def lan(self, version: int) -> str:
        return self.lan4 if version == 4 else self.lan6

    def host(self, version: int) -> str:
        return self.host4 if version == 4 else self.host6


A = Site("172.16.1.2", "fd00:1::2", "10.1.0.0/16", "fd00:a::/64", "10.1.0.2", "fd00:a::2", "10.1.0.1", "fd00:a::1")
B = Site("172.16.2.2", "fd00:2::2", "10.2.0.0/16", "fd00:b::/64", "10.2.0.2", "fd00:b::2", "10.2.0.1", "fd00:b::1")
# Second addresses of the hosts, for a second tunnel between the same gateways.
SECOND_A4, SECOND_B4 = "10.11.0.2", "10.12.0.2"
SECOND_LAN_A4, SECOND_LAN_B4 = "10.11.0.0/16", "10.12.0.0/16"
# The two sides of the NAT box. With it, gw_b is behind 172.16.3.1.
NAT_OUTSIDE4, NAT_OUTSIDE6 = "172.16.2.2", "fd00:2::2"
NAT_B = Site("172.16.3.2", "fd00:3::2", B.lan4, B.lan6, B.host4, B.host6, B.gw4, B.gw6)


class Namespace:
    def __init__(self, name: str):
        self.name = name
        self.path = f"/run/netns/{name}"
        # Files that programs find in place of those of the system, by their paths.
        self.files: dict[str, Path] = {}

    def wrap(self, argv: Sequence[str]) -> list[str]:
        # `ip netns exec` would remount /sys, which a user namespace may not do.
        enter = ["nsenter", f"--net={self.path}", "--"]
        if self.files:
            mounts = "".join(f"mount --bind {file} {path} && " for path, file in self.files.items())
            enter += ["unshare", "-m", "sh", "-c", f'{mounts}exec "$@"', "sh"]
        return [*enter, *map(str, argv)]

    def run(self, argv: Sequence[str], **options):
        return run(self.wrap(argv), **options)

    def start(self, argv: Sequence[str], **options) -> Process:
        return Process(self.wrap(argv), **options)

    def enter(self) -> None:
        """Moves this thread into the namespace."""
        _set_network(self.path)

    @contextmanager
    def entered(self):
        """What this thread makes meanwhile belongs to the namespace and stays there: sockets, files of /proc/sys/net,
        processes."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.enter()
            try:
                yield
            finally:
                _set_network(f"/proc/self/fd/{home}")
        finally:
            os.close(home)

    def socket(self, family: int, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> socket.socket:
        with self.entered():
            return socket.socket(family, kind, protocol)

    def sysctl(self, **values: object) -> None:
        with self.entered():
            for key, value in values.items():
                Path("/proc/sys/net", key.replace("__", "/")).write_text(f"{value}\n")


def _set_network(path: str) -> None:
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(there, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(there)


class Topology:
    """The namespaces and links. The constructor makes them; `close()` kills the processes inside and removes them."""

    def __init__(self, *, nat: bool = False, mtu: int = 1500):
        prefix = f"esp{os.getpid():x}-{next(_serial)}"
        roles = ["host_a", "gw_a", "wan", "gw_b", "host_b"] + (["nat_box"] if nat else [])
        self.spaces = {role: Namespace(f"{prefix}-{role}") for role in roles}
        self.nat = nat
        self.a, self.b = A, NAT_B if nat else B
        # The address of B that A sees and reaches.
        self.b_seen_by_a = B
        self.processes: list[Process] = []
        _live.add(self)
        try:
            self._build(mtu)
        except BaseException:
            self.close()
            raise

    def __getattr__(self, role: str) -> Namespace:
        try:
            return self.__dict__["spaces"][role]
        except KeyError:
            raise AttributeError(role) from None

    def _build(self, mtu: int) -> None:
        name = {role: space.name for role, space in self.spaces.items()}
        Path("/run/netns").mkdir(exist_ok=True)
        links = [("host_a", "lan", "gw_a", "lan"), ("gw_a", "wan", "wan", "to_a"),
                 ("gw_b", "lan", "host_b", "lan")]
        if self.nat:
            links += [("wan", "to_b", "nat_box", "outside"), ("nat_box", "inside", "gw_b", "wan")]
        else:
            links += [("wan", "to_b", "gw_b", "wan")]
        batch = [f"netns add {n}" for n in name.values()]
        for left, left_if, right, right_if in links:
            batch.append(f"link add {left_if} netns {name[left]} mtu {mtu} type veth "
                         f"peer name {right_if} netns {name[right]} mtu {mtu}")
        run(["ip", "-batch", "-"], stdin="\n".join(batch) + "\n")

        addresses = {
            "host_a": [("lan", A.host4 + "/16"), ("lan", SECOND_A4 + "/16"), ("lan", A.host6 + "/64")],
            "gw_a": [("lan", A.gw4 + "/16"), ("lan", "10.11.0.1/16"), ("lan", A.gw6 + "/64"),
                     ("wan", A.wan4 + "/24"), ("wan", A.wan6 + "/64")],
            "wan": [("to_a", "172.16.1.1/24"), ("to_a", "fd00:1::1/64"),
                    ("to_b", "172.16.2.1/24"), ("to_b", "fd00:2::1/64")],
            "gw_b": [("lan", B.gw4 + "/16"), ("lan", "10.12.0.1/16"), ("lan", B.gw6 + "/64"),
                     ("wan", self.b.wan4 + "/24"), ("wan", self.b.wan6 + "/64")],
            "host_b": [("lan", B.host4 + "/16"), ("lan", SECOND_B4 + "/16"), ("lan", B.host6 + "/64")],
        }
        routes = {"host_a": [A.gw4, A.gw6], "host_b": [B.gw4, B.gw6],
                  "gw_a": ["172.16.1.1", "fd00:1::1"], "gw_b": ["172.16.2.1", "fd00:2::1"]}
        if self.nat:
            addresses["nat_box"] = [("outside", NAT_OUTSIDE4 + "/24"), ("outside", NAT_OUTSIDE6 + "/64"),
                                ("inside", "172.16.3.1/24"), ("inside", "fd00:3::1/64")]
            routes["nat_box"] = ["172.16.2.1", "fd00:2::1"]
            routes["gw_b"] = ["172.16.3.1", "fd00:3::1"]
        for role, space in self.spaces.items():
            space.sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0, ipv4__conf__default__rp_filter=0,
                         ipv6__conf__all__forwarding=1, ipv6__conf__all__accept_dad=0,
                         ipv6__conf__default__accept_dad=0)
            lines = ["link set lo up"]
            for device in dict.fromkeys(d for d, _ in addresses[role]):
                # Devices are ready at once: a late link-local address would make charon look for new paths.
                lines += [f"link set {device} addrgenmode none up",
                          f"address add fe80::{next(_serial) + 1:x}/64 dev {device} nodad"]
            for device, address in addresses[role]:
                lines.append(f"address add {address} dev {device}" + (" nodad" if ":" in address else ""))
            lines += [f"route add default via {via}" for via in routes.get(role, [])]
            # Packets to the second network get the second source address.
            if role == "host_a":
                lines.append(f"route add {SECOND_LAN_B4} via 10.11.0.1 src {SECOND_A4}")
            elif role == "host_b":
                lines.append(f"route add {SECOND_LAN_A4} via 10.12.0.1 src {SECOND_B4}")
            run(["ip", "-n", space.name, "-batch", "-"], stdin="\n".join(lines) + "\n")
        if self.nat:
            self._masquerade()

    def _masquerade(self) -> None:
        for family in ("ip", "ip6"):
            self.nat_box.run(["nft", "-f", "-"], stdin=(
                f"table {family} nat {{\nchain post {{\ntype nat hook postrouting priority 100;\n"
                f"oifname \"outside\" masquerade random;\n}}\n}}\n"))

    def forget_nat_mappings(self) -> None:
        """Takes the outer link of the NAT box down and up: the kernel drops every mapping and then assigns new
        ports."""
        nat = self.nat_box
        run(["ip", "-n", nat.name, "-batch", "-"], stdin=(
            "link set outside down\nlink set outside up\n"
            f"address replace {NAT_OUTSIDE6}/64 dev outside nodad\n"
            "route replace default via 172.16.2.1\nroute replace default via fd00:2::1\n"))

    def start(self, role: str, argv: Sequence[str], **options) -> Process:
        process = self.spaces[role].start(argv, **options)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.stop(signal.SIGTERM, grace=2)
        for space in self.spaces.values():
            left = run(["ip", "netns", "pids", space.name], check=False).stdout.split()
            for pid in left:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            run(["ip", "netns", "del", space.name], check=False)
        _live.discard(self)


def close_all() -> None:
    """Removes all topologies, for exits that skip the teardown of fixtures."""
    for topology in list(_live):
        topology.close()


def missing_privilege() -> str | None:
    """The reason why namespaces cannot be made here, or None."""
    name = f"esp{os.getpid():x}-probe"
    try:
        run(["ip", "netns", "add", name])
        run(["ip", "netns", "del", name])
    except (HarnessError, OSError) as error:
        return f"cannot make network namespaces: {error}"
    return None
