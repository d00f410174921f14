"""Runs strongSwan's charon as a peer, with its ESP in user space (kernel-libipsec).

kernel-libipsec supports only UDP-encapsulated ESP in tunnel mode. So charon pretends to be behind a NAT in every
negotiation, and the other end must encapsulate too, whatever `encap` says.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from . import newer
from .control import Control
from .namespaces import Namespace
from .process import Process
from .settings import Settings

CHARON = Path("/usr/lib/ipsec/charon")
PLUGINS = ("random nonce aes sha1 sha2 hmac mgf1 kdf drbg gmp x509 revocation constraints pubkey pkcs1 pkcs8 pem "
           "openssl curve25519 gcm xcbc cmac kernel-libipsec kernel-netlink socket-default vici updown gcrypt")
NEEDED_PLUGINS = ("kernel-libipsec", "openssl", "curve25519", "vici")

CONFIG = """
charon {{
  load = {plugins}
  install_virtual_ip = no
  accept_private_algs = yes
  retransmit_timeout = {retransmit_timeout}
  retransmit_tries = {retransmit_tries}
  delete_rekeyed_delay = 1
  {extra}
  filelog {{ log {{ path = {log}
    default = 1
    ike = {ike_level}
    chd = {key_level}
    time_format = %H:%M:%S
    flush_line = yes }} }}
  plugins {{ vici {{ socket = unix://{socket} }} }}
}}
"""


def missing(newest: bool = False) -> str | None:
    """The reason why charon cannot be the peer here, or None."""
    if newest and (reason := newer.missing()):
        return reason
    if not CHARON.exists():
        return "charon is not installed (tools/deps.sh)"
    if not shutil.which("swanctl"):
        return "swanctl is not installed (tools/deps.sh)"
    for plugin in NEEDED_PLUGINS:
        if reason := missing_plugin(plugin, newest):
            return reason
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    return None


def missing_plugin(plugin: str, newest: bool = False) -> str | None:
    """The reason why charon cannot load this plugin here, or None."""
    root = newer.ROOT if newest else Path("/")
    if (root / f"usr/lib/ipsec/plugins/libstrongswan-{plugin}.so").exists():
        return None
    return f"charon's plugin {plugin} is not installed (tools/deps.sh)"


class Charon(Control):
    kind = "charon"

    def __init__(self, name: str, space: Namespace, folder: Path, *, dump_keys: bool = False,
                 retransmit_timeout: float = 1.0, retransmit_tries: int = 3, extra: str = "", fetches: bool = False,
                 newest: bool = False):
        # The path of its pid file is fixed, so every charon gets a /run of its own.
        alone = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /run && exec {CHARON}"]
        self._command = newer.inside([CHARON]) if newest else alone
        self.name, self.space, self.folder = f"{name} (charon)", space, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "vici"
        self.log = folder / "charon.log"
        # charon looks for certificates and keys beside this file.
        self._settings = folder / "swanctl" / "swanctl.conf"
        self._config = folder / "strongswan.conf"
        self.swanctl_env = {"STRONGSWAN_CONF": str(self._config)}
        self._config.write_text(CONFIG.format(plugins=PLUGINS + " curl" * fetches, log=self.log, socket=self.socket, extra=extra,
                                              retransmit_timeout=retransmit_timeout,
                                              retransmit_tries=retransmit_tries, key_level=4 if dump_keys else 1,
                                              ike_level=4 if dump_keys else 1))
        self._process: Process | None = None

    def start(self, settings: Settings) -> None:
        self.socket.unlink(missing_ok=True)
        self._process = Process(self.space.wrap(self._command), env={"STRONGSWAN_CONF": str(self._config)},
                                log=self.folder / "output.log")
        self._process.wait_ready(self.name, self.takes_commands, self.logs)
        self.load(settings)

    def load(self, settings: Settings) -> None:
        for name, files in (("x509", settings.certificates), ("private", settings.keys),
                            ("pubkey", settings.public_keys), *settings.certificate_folders()):
            target = self._settings.parent / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for file in files:
                shutil.copy(file, target)
        self._settings.write_text(settings.text())
        self.swanctl("--load-all", "--clear", "--file", str(self._settings))

    def up(self, child: str = "net", *, check: bool = True, timeout: int = 12):
        return self.swanctl("--initiate", "--child", child, "--timeout", str(timeout), check=check)

    def down(self, connection: str = "site") -> None:
        self.swanctl("--terminate", "--ike", connection, "--timeout", "8")

    def down_child(self, child: str = "net") -> None:
        self.swanctl("--terminate", "--child", child, "--timeout", "8")

    def kill(self) -> None:
        """Kills the daemon, which tells its peer nothing."""
        self._process.stop(9)

    def stop(self) -> int | None:
        return self._process.stop() if self._process else None

    def logs(self) -> str:
        return "".join(file.read_text(errors="replace") for file in (self.folder / "output.log", self.log)
                       if file.exists())

    def key_lines(self) -> list[str]:
        """Key lines in the form of Esplanade's exported keys, from a log taken with `dump_keys`.

        The end must have initiated every exchange itself, and only one IKE SA may be up.
        """
        lines, secrets, child = [], {}, {}
        log = iter(self.log.read_text(errors="replace").splitlines())
        for line in log:
            if match := re.search(r"(Sk_\w+|encryption \w+|integrity \w+) (?:secret|key) => (\d+) bytes", line):
                data = b""
                while len(data) < int(match[2]):
                    data += bytes.fromhex(re.search(r"\d+: ((?:[0-9A-F]{2} )+)", next(log))[1])
                (secrets if match[1].startswith("Sk") else child)[match[1]] = data[:int(match[2])]
            elif match := re.search(r"SPI 0x(\w+), src (\S+) dst (\S+)", line):
                to_peer = match[2] in self._own_addresses()
                whose = "initiator" if to_peer else "responder"
                aead = f"integrity {whose}" not in child
                lines.append(
                    f'esp_sa:"IPv{6 if ":" in match[2] else 4}","{match[2]}","{match[3]}","0x{match[1]}",'
                    f'"{"AES-GCM with 16 octet ICV [RFC4106]" if aead else "AES-CBC [RFC3602]"}",'
                    f'"0x{child[f"encryption {whose}"].hex()}",'
                    + ('"NULL",""' if aead else
                       f'"HMAC-SHA-256-128 [RFC4868]","0x{child[f"integrity {whose}"].hex()}"'))
        for sas in self.sas().values():
            sa = sas[0]
            cipher = ("AES-GCM-{} with 16 octet ICV [RFC5282]" if "GCM" in sa["encr-alg"] else "AES-CBC-{} [RFC3602]")
            integrity = "NONE [RFC4306]" if "GCM" in sa["encr-alg"] else "HMAC_SHA2_256_128 [RFC4868]"
            sk = {name: secrets.get(f"Sk_{name}", b"").hex() for name in ("ei", "er", "ai", "ar")}
            lines.append(f'ikev2_decryption_table:{sa["initiator-spi"]},{sa["responder-spi"]},{sk["ei"]},{sk["er"]},'
                         f'"{cipher.format(sa["encr-keysize"])}",{sk["ai"]},{sk["ar"]},"{integrity}"')
        return lines

    def _own_addresses(self) -> str:
        return self.space.run(["ip", "-o", "address"]).stdout
