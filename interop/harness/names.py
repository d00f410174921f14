"""Host names that only one test knows: by a file in place of /etc/hosts, or by a DNS server on the router."""

from __future__ import annotations

import json
from pathlib import Path

from .namespaces import Topology
from .process import wait_until

# The router between the gateways. Without a server there, a question fails at once.
SERVER = "172.16.2.1"
SCRIPT = Path(__file__).with_name("dns_server.py")


class Names:
    """The names of both gateways. Programs that are started in their namespaces after this see them."""

    def __init__(self, topology: Topology, folder: Path):
        self._topology, self._folder = topology, folder
        self._hosts = folder / "hosts"
        self._zone = folder / "zone.json"
        resolver, switch = folder / "resolv.conf", folder / "nsswitch.conf"
        resolver.write_text(f"nameserver {SERVER}\noptions timeout:1 attempts:2\n")
        switch.write_text("hosts: files dns\n")
        self.set()
        for space in (topology.gw_a, topology.gw_b):
            space.files = {"/etc/hosts": self._hosts, "/etc/resolv.conf": resolver, "/etc/nsswitch.conf": switch}

    def set(self, **addresses: str | list[str]) -> None:
        """Gives the names these addresses, and no others. `a_test="192.0.2.1"` is the name a.test."""
        lists = {name.replace("_", "."): [found] if isinstance(found, str) else found
                 for name, found in addresses.items()}
        # The file is mounted, so it stays the same file.
        self._hosts.write_text("".join(f"{one} {name}\n" for name, found in lists.items() for one in found))

    def serve(self, **addresses: str) -> None:
        """The same by DNS."""
        self._zone.write_text(json.dumps({name.replace("_", "."): found for name, found in addresses.items()}))
        log = self._folder / "dns.log"
        self._topology.start("wan", ["python3", "-u", SCRIPT, SERVER, self._zone], log=log)
        wait_until("the DNS server listens", lambda: log.exists() and "ready" in log.read_text())

    def questions(self) -> int:
        return (self._folder / "dns.log").read_text().count("asked for ")
