"""The control socket of a daemon, Esplanade or charon."""

from __future__ import annotations

import socket
from collections import OrderedDict
from pathlib import Path

import vici

from .process import run, wait_until


class Control:
    """The commands that both daemons answer on their control socket: vici, strongSwan's protocol."""

    name: str

    socket: Path

    swanctl_env: dict[str, str] = {}

    def swanctl(self, command: str, *arguments: str, check: bool = True):
        """Runs swanctl, strongSwan's own client."""
        return run(["swanctl", command, *arguments, "--uri", f"unix://{self.socket}"], check=check, timeout=30,
                   env=self.swanctl_env)

    def rekey_child(self, child: str = "net") -> None:
        """Ends when the old child SA is gone: a peer may refuse to rekey the IKE SA before (RFC 7296 §2.25.2)."""
        def in_use() -> set[str]:
            """charon lists a rekeyed child SA for some seconds more."""
            return {each["spi-in"] for sas in self.sas().values() for sa in sas
                    for each in sa.get("child-sas", {}).values() if each["name"] == child and each["state"] != "REKEYED"}

        old = in_use()
        self.swanctl("--rekey", "--child", child)
        wait_until(f"{child} is rekeyed at {self.name}", lambda: (new := in_use()) and old.isdisjoint(new))

    def rekey_ike(self, connection: str = "site") -> None:
        """Ends when the old IKE SA is gone. The peer may refuse for a while: both try again after a second or more."""
        def spis() -> set[str]:
            return {sa["initiator-spi"] for sa in self.sas().get(connection, [])}

        old = spis()
        self.swanctl("--rekey", "--ike", connection)
        wait_until(f"{connection} is rekeyed at {self.name}", lambda: (new := spis()) and old.isdisjoint(new))

    def reauthenticate(self, connection: str = "site") -> None:
        self.swanctl("--rekey", "--ike", connection, "--reauth")

    def takes_commands(self) -> bool:
        """The socket is there before anybody listens on it."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def session(self) -> vici.Session:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self.socket))
        return vici.Session(connection)

    def sas(self) -> dict[str, list[dict]]:
        """The IKE SAs by connection name: the decoded answer to vici's list-sas."""
        found: dict[str, list[dict]] = {}
        for entry in self.session().list_sas():
            for name, sa in _decode(entry).items():
                found.setdefault(name, []).append(sa)
        return found

    def children(self, connection: str = "site") -> list[dict]:
        return [child for sa in self.sas().get(connection, []) for child in sa.get("child-sas", {}).values()]

    def installed(self, connection: str = "site") -> list[dict]:
        return [child for child in self.children(connection) if child["state"] == "INSTALLED"]

    def wait_installed(self, connection: str = "site", timeout: float = 15) -> dict:
        return wait_until(f"{connection} up at {self.name}", lambda: self.installed(connection), timeout)[0]

    def wait_gone(self, connection: str = "site", timeout: float = 15) -> None:
        wait_until(f"{connection} gone at {self.name}", lambda: not self.sas().get(connection), timeout)


def _decode(value):
    if isinstance(value, (dict, OrderedDict)):
        return {key: _decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
