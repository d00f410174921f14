"""strongSwan's charon as a peer, with its ESP in user space (kernel-libipsec).

kernel-libipsec knows only UDP-encapsulated ESP in tunnel mode: charon therefore pretends to be
behind a NAT in every negotiation, and the other end must encapsulate too, whatever `encap` says.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections import OrderedDict
from pathlib import Path

import vici

from .namespaces import Namespace
from .process import HarnessError, Process, run, wait_until
from .settings import Settings

CHARON = Path("/usr/lib/ipsec/charon")
PLUGINS = ("random nonce aes sha1 sha2 hmac mgf1 kdf drbg gmp x509 revocation constraints pubkey pkcs1 pkcs8 pem "
           "openssl curve25519 gcm kernel-libipsec kernel-netlink socket-default vici updown")
NEEDED_PLUGINS = ("kernel-libipsec", "openssl", "curve25519", "vici")

CONFIG = """
charon {{
  load = {plugins}
  install_virtual_ip = no
  retransmit_timeout = {retransmit_timeout}
  retransmit_tries = {retransmit_tries}
  {extra}
  filelog {{ log {{ path = {log}
    default = 1
    ike = 2
    chd = {key_level}
    time_format = %H:%M:%S
    flush_line = yes }} }}
  plugins {{ vici {{ socket = unix://{socket} }} }}
}}
"""


def missing() -> str | None:
    """Why charon cannot be the peer here, or None."""
    if not CHARON.exists():
        return "charon is not installed (tools/deps.sh)"
    if not shutil.which("swanctl"):
        return "swanctl is not installed (tools/deps.sh)"
    for plugin in NEEDED_PLUGINS:
        if not (CHARON.parent / "plugins" / f"libstrongswan-{plugin}.so").exists():
            return f"charon's plugin {plugin} is not installed (tools/deps.sh)"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    return None


class ViciControl:
    """What both kinds of daemon answer on their control socket, in one shape."""

    socket: Path

    def session(self) -> vici.Session:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self.socket))
        return vici.Session(connection)

    def sas(self) -> dict[str, list[dict]]:
        """IKE SAs by connection name, as vici's list-sas tells them, decoded."""
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


class Charon(ViciControl):
    kind = "charon"

    def __init__(self, name: str, space: Namespace, folder: Path, *, dump_keys: bool = False,
                 retransmit_timeout: float = 1.0, retransmit_tries: int = 3, extra: str = ""):
        self.name, self.space, self.folder = f"{name} (charon)", space, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "vici"
        self.log = folder / "charon.log"
        self._settings = folder / "swanctl.conf"
        self._config = folder / "strongswan.conf"
        self._config.write_text(CONFIG.format(plugins=PLUGINS, log=self.log, socket=self.socket, extra=extra,
                                              retransmit_timeout=retransmit_timeout,
                                              retransmit_tries=retransmit_tries, key_level=4 if dump_keys else 1))
        self._process: Process | None = None

    def start(self, settings: Settings) -> None:
        self.socket.unlink(missing_ok=True)
        # Its pid file has a fixed place, so every charon gets a /run of its own.
        self._process = Process(
            self.space.wrap(["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /run && exec {CHARON}"]),
            env={"STRONGSWAN_CONF": str(self._config)}, log=self.folder / "output.log")
        wait_until(f"{self.name} listens", lambda: self.socket.exists() or self._process.returncode is not None)
        if self._process.returncode is not None:
            raise HarnessError(f"{self.name} ended at start\n{self.logs()}")
        self.load(settings)

    def load(self, settings: Settings) -> None:
        for name, files in (("x509", settings.certificates), ("x509ca", settings.authorities),
                            ("private", settings.keys)):
            target = self.folder / "swanctl" / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for file in files:
                shutil.copy(file, target)
        self._settings.write_text(settings.text())
        self._swanctl("--load-all", "--clear", "--file", str(self._settings))

    def _swanctl(self, command: str, *arguments: str, check: bool = True):
        return run(["swanctl", command, *arguments, "--uri", f"unix://{self.socket}"], check=check, timeout=30,
                   env={"SWANCTL_DIR": str(self.folder / "swanctl"), "STRONGSWAN_CONF": str(self._config)})

    def up(self, child: str = "net", *, check: bool = True, timeout: int = 12):
        return self._swanctl("--initiate", "--child", child, "--timeout", str(timeout), check=check)

    def down(self, connection: str = "site") -> None:
        self._swanctl("--terminate", "--ike", connection, "--timeout", "8")

    def down_child(self, child: str = "net") -> None:
        self._swanctl("--terminate", "--child", child, "--timeout", "8")

    def rekey_child(self, child: str = "net") -> None:
        self._swanctl("--rekey", "--child", child)

    def rekey_ike(self, connection: str = "site") -> None:
        self._swanctl("--rekey", "--ike", connection)

    def kill(self) -> None:
        """Dies without a word to its peer."""
        self._process.stop(9)

    def stop(self) -> int | None:
        return self._process.stop() if self._process else None

    def logs(self) -> str:
        return "".join(file.read_text(errors="replace") for file in (self.folder / "output.log", self.log)
                       if file.exists())

    def dumped_keys(self) -> list[dict[str, bytes]]:
        """The child SAs' keys, in order of derivation, from a log taken with `dump_keys`."""
        sets, current = [], {}
        lines = iter(self.log.read_text(errors="replace").splitlines())
        for line in lines:
            match = re.search(r"(encryption|integrity) (initiator|responder) key => (\d+) bytes", line)
            if not match:
                continue
            wanted = int(match[3])
            data = b""
            while len(data) < wanted:
                dump = re.search(r"\d+: ((?:[0-9A-F]{2} )+)", next(lines))
                data += bytes.fromhex(dump[1])
            label = f"{match[1]} {match[2]}"
            if label in current:
                sets.append(current)
                current = {}
            current[label] = data[:wanted]
        return sets + [current] if current else sets
