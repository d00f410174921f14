"""Builds configurations. Both daemons read the grammar of swanctl.conf, so one text serves both."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .namespaces import SECOND_LAN_A4, SECOND_LAN_B4, Topology
from .pki import Identity

PSK = "correct horse battery staple"
ID_A, ID_B = "a.esplanade.test", "b.esplanade.test"
# These proposals are fast to negotiate. Tests of suites name their own proposals.
IKE_DEFAULT = "aes128gcm16-prfsha256-x25519"
ESP_DEFAULT = "aes128gcm16"


def render(section: dict[str, Any], depth: int = 0) -> str:
    lines = []
    indent = "  " * depth
    for key, value in section.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key} {{\n{render(value, depth + 1)}{indent}}}\n")
        else:
            text = str(value)
            if any(c in text for c in " #{}=") or text == "":
                text = f'"{text}"'
            lines.append(f"{indent}{key} = {text}\n")
    return "".join(lines)


@dataclass
class Settings:
    """The configuration of one end, and the files that it names."""
    connections: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, Any] = field(default_factory=dict)
    # The section `authorities`.
    status_sources: dict[str, Any] = field(default_factory=dict)
    # Esplanade's own section, which other daemons do not get.
    gateway: dict[str, Any] = field(default_factory=dict)
    certificates: list[Path] = field(default_factory=list)
    authorities: list[Path] = field(default_factory=list)
    # The content of the folder x509crl.
    crls: list[Path] = field(default_factory=list)
    # The content of the folders x509aa and x509ac.
    attribute_authorities: list[Path] = field(default_factory=list)
    attribute_certificates: list[Path] = field(default_factory=list)
    keys: list[Path] = field(default_factory=list)
    # The content of the folder pubkey.
    public_keys: list[Path] = field(default_factory=list)

    def text(self) -> str:
        return render({"connections": self.connections, "secrets": self.secrets, "authorities": self.status_sources})

    def certificate_folders(self) -> list[tuple[str, list[Path]]]:
        """The folders that both daemons read."""
        return [("x509ca", self.authorities), ("x509crl", self.crls), ("x509aa", self.attribute_authorities),
                ("x509ac", self.attribute_certificates)]

    def copy(self) -> Settings:
        return copy.deepcopy(self)

    def child(self, connection: str = "site", child: str = "net") -> dict[str, Any]:
        return self.connections[connection]["children"][child]


def _end(auth: str, name: str, identity: Identity | None) -> dict[str, Any]:
    end = {"auth": "psk" if auth == "psk" else "pubkey", "id": name}
    if identity:
        end["certs"] = str(identity.certificate)
    return end


def pair(topology: Topology, *, outer: int = 4, inner: int | tuple[int, ...] | None = None, ike: str = IKE_DEFAULT,
         esp: str = ESP_DEFAULT, encap: bool = False, identities: tuple[Identity, Identity] | None = None,
         authority: Path | None = None, name: str = "site") -> tuple[Settings, Settings]:
    """The two ends of one tunnel between the hosts' networks."""
    inner_versions = (inner,) if isinstance(inner, int) else inner or (4, 6)
    auth = "pubkey" if identities else "psk"
    a, b = topology.a, topology.b
    lan_a = ",".join(a.lan(v) for v in inner_versions)
    lan_b = ",".join(b.lan(v) for v in inner_versions)

    def connection(local, remote, local_name, remote_name, local_identity, local_ts, remote_ts):
        return {
            "version": 2,
            "local_addrs": local,
            "remote_addrs": remote,
            "proposals": ike,
            "encap": "yes" if encap else "no",
            "mobike": "no",
            "local": _end(auth, local_name, local_identity),
            "remote": {"auth": "psk" if auth == "psk" else "pubkey", "id": remote_name}
            | ({"cacerts": str(authority)} if authority else {}),
            "children": {"net": {"local_ts": local_ts, "remote_ts": remote_ts, "esp_proposals": esp,
                                 "mode": "tunnel"}},
        }

    identity_a, identity_b = identities or (None, None)
    settings_a, settings_b = Settings(), Settings()
    # Behind a NAT, A cannot know B's address.
    b_address = "%any" if topology.nat else b.wan(outer)
    settings_a.connections[name] = connection(a.wan(outer), b_address, ID_A, ID_B, identity_a, lan_a, lan_b)
    settings_b.connections[name] = connection(b.wan(outer), a.wan(outer), ID_B, ID_A, identity_b, lan_b, lan_a)
    for settings, identity in ((settings_a, identity_a), (settings_b, identity_b)):
        if auth == "psk":
            settings.secrets["ike-1"] = {"id-a": ID_A, "id-b": ID_B, "secret": PSK}
        else:
            settings.keys.append(identity.key)
            settings.certificates.append(identity.certificate)
            settings.authorities.append(authority)
    return settings_a, settings_b


def add_second(settings_a: Settings, settings_b: Settings, *, name: str = "second", ids: tuple[str, str] | None = None,
               secret: str = PSK) -> None:
    """Adds a second connection between the same gateways, for the hosts' second addresses."""
    id_a, id_b = ids or ("a2.esplanade.test", "b2.esplanade.test")
    for settings, local_id, remote_id, local_ts, remote_ts in (
            (settings_a, id_a, id_b, SECOND_LAN_A4, SECOND_LAN_B4),
            (settings_b, id_b, id_a, SECOND_LAN_B4, SECOND_LAN_A4)):
        first = next(iter(settings.connections.values()))
        second = copy.deepcopy(first)
        second["local"] = {"auth": "psk", "id": local_id}
        second["remote"] = {"auth": "psk", "id": remote_id}
        second["children"]["net"].update(local_ts=local_ts, remote_ts=remote_ts)
        # Child names are unique, so that `up CHILD` is clear to both daemons.
        second["children"] = {f"{name}-net": second["children"]["net"]}
        settings.connections[name] = second
        settings.secrets[f"ike-{name}"] = {"id-a": id_a, "id-b": id_b, "secret": secret}
