"""Runs OpenIKED's iked as a third peer for the IKE exchanges. Instead of the kernel, pf_key.c takes its SAs: they stay
up and have keys, and no packet goes through them.

The package is unpacked and not installed. In a mount namespace of its own iked finds an /etc that the test makes.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
from pathlib import Path

from .namespaces import Namespace
from .pki import Identity, make_key
from .process import Process, run, unpacked_or_reason

ROOT = Path(os.environ.get("ESPLANADE_OPENIKED", Path(__file__).parents[2] / "target/tools/openiked"))

# linux/pfkeyv2.h
UPDATE, ADD, DELETE, EXPIRE = 2, 3, 4, 8
EXT_SA, EXT_LIFETIME_HARD, EXT_LIFETIME_SOFT, EXT_AUTH_KEY, EXT_CIPHER_KEY = 1, 3, 4, 8, 9
SATYPE_ESP = 3


def missing() -> str | None:
    """The reason why iked cannot be the peer here, or None."""
    if not shutil.which("cc"):
        return "no C compiler for what stands in for iked's kernel (tools/deps.sh)"
    return unpacked_or_reason("OpenIKED", ROOT, "usr/sbin/iked")


def compile_kernel(folder: Path) -> Path:
    """The library that stands in for the kernel."""
    library = folder / "pf_key.so"
    run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library,
         Path(__file__).with_name("pf_key.c")])
    return library


class Iked:
    kind = "openiked"

    def __init__(self, name: str, space: Namespace, folder: Path, kernel: Path):
        self.name, self.space, self.folder = f"{name} (iked)", space, folder
        self.log = folder / "iked.log"
        self._kernel, self._requests = kernel, folder / "pf_key.requests"
        self._control = folder / "control"
        self._process: Process | None = None
        etc = folder / "etc"
        for one in ("ca", "crls", "certs", "private", "pubkeys"):
            (etc / "iked" / one).mkdir(parents=True)
        # iked does not start without a key and this user.
        make_key("ecdsa", etc / "iked/private/local.key")
        (etc / "passwd").write_text("_iked:x:0:0::/:/\n")

    def trust(self, authority: Path, own: Identity) -> None:
        """Certificates, by the names that iked looks for."""
        places = {"ca/ca.crt": authority, "certs/own.crt": own.certificate, "private/local.key": own.key}
        for place, file in places.items():
            shutil.copy(file, self.folder / "etc/iked" / place)

    def start(self, configuration: str) -> None:
        """Starts the daemon with this iked.conf."""
        (self.folder / "etc/iked.conf").write_text(configuration)
        (self.folder / "etc/iked.conf").chmod(0o600)
        script = f'mount --bind {self.folder}/etc /etc && exec env LD_PRELOAD={self._kernel} "$@"'
        command = ["unshare", "-m", "sh", "-c", script, "sh", ROOT / "usr/sbin/iked", "-dvv", "-s", self._control]
        self._process = Process(self.space.wrap(command), log=self.log, env={"PF_KEY_LOG": str(self._requests)})
        self._process.wait_ready(self.name, self._is_ready, self.logs)

    def _is_ready(self) -> bool:
        """This is the last line about its configuration."""
        return "stickyaddress" in self.logs()

    def command(self, *words: str) -> str:
        return run([ROOT / "usr/sbin/ikectl", "-s", self._control, *words]).stdout

    def reset(self, identity: str) -> None:
        """Deletes the IKE SAs with this peer, and says so to it."""
        self.command("reset", "id", f"FQDN/{identity}")

    def ike_sas(self) -> list[str]:
        """The lines about established IKE SAs."""
        lines = self.command("show", "sa").splitlines()
        return [line for line in lines if line.startswith("iked_sas:") and "ESTABLISHED" in line]

    def kernel_sas(self) -> dict[int, bytes]:
        """The SAs that the kernel would have: by SPI, the key of the cipher and behind it that of the integrity."""
        sas: dict[int, bytes] = {}
        for kind, extensions in self._kernel_requests():
            if kind in (ADD, UPDATE):
                sas[_spi(extensions)] = _key(extensions.get(EXT_CIPHER_KEY)) + _key(extensions.get(EXT_AUTH_KEY))
            elif kind in (DELETE, EXPIRE):
                sas.pop(_spi(extensions), None)
        return sas

    def _kernel_requests(self):
        """The type and the extensions of each request (RFC 2367 §2.1). The last one may be written in part."""
        data = self._requests.read_bytes()
        while 0 < (length := 8 * int.from_bytes(data[4:6], "little")) <= len(data):
            kind, message, data = data[1], data[16:length], data[length:]
            extensions = {}
            while len(message) >= 4:
                words, name = struct.unpack("<HH", message[:4])
                extensions[name], message = message[4:8 * words], message[8 * words:]
            yield kind, extensions

    def expire(self, spi: int, *, hard: bool = False) -> None:
        """The kernel says that a lifetime of an SA has ended: the soft one, at which iked rekeys, or the hard one, with
        which the kernel gives up the SA."""
        lifetime = EXT_LIFETIME_HARD if hard else EXT_LIFETIME_SOFT
        body = struct.pack("<HH4s8x", 2, EXT_SA, spi.to_bytes(4)) + struct.pack("<HH28x", 4, lifetime)
        message = struct.pack("<BBBBHHII", 2, EXPIRE, 0, SATYPE_ESP, (16 + len(body)) // 8, 0, 0, 0) + body
        if hard:
            with self._requests.open("ab") as record:
                record.write(message)
        with self.space.socket(socket.AF_UNIX) as kernel:
            kernel.sendto(message, b"\0pf_key")

    def stop(self) -> int | None:
        return self._process.stop() if self._process else None

    def logs(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _spi(extensions: dict[int, bytes]) -> int:
    return int.from_bytes(extensions[EXT_SA][:4])


def _key(extension: bytes | None) -> bytes:
    """After its length in bits."""
    return extension[4:4 + int.from_bytes(extension[:2], "little") // 8] if extension else b""
