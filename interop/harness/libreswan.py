"""Runs libreswan's pluto as a second peer for the IKE exchanges. The test machine's kernel has no ESP for it.

The package conflicts with strongSwan's. So it is unpacked and not installed, and is mounted over /usr/libexec in a
mount namespace of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import newer
from .namespaces import Namespace
from .process import Process, run, unpacked_or_reason

ROOT = Path(os.environ.get("ESPLANADE_LIBRESWAN", Path(__file__).parents[2] / "target/tools/libreswan"))


def missing(newest: bool = False) -> str | None:
    """The reason why pluto cannot be the peer here, or None."""
    if newest:
        return newer.missing()
    return unpacked_or_reason("libreswan", ROOT, "usr/libexec/ipsec/pluto")


class Pluto:
    kind = "libreswan"

    def __init__(self, name: str, space: Namespace, folder: Path, newest: bool = False):
        self._newest = newest
        self.name, self.space, self.folder = f"{name} (pluto)", space, folder
        (folder / "nss").mkdir(parents=True, exist_ok=True)
        self.log = folder / "pluto.log"
        self._control = folder / "pluto.ctl"
        self._process: Process | None = None

    def start(self, connections: dict[str, dict[str, str]], secrets: str) -> None:
        """Starts the daemon. `connections` holds the keys of ipsec.conf, and `secrets` is the text of
        ipsec.secrets."""
        text = f"config setup\n    logfile={self.log}\n    dnssec-enable=no\n"
        for name, keys in connections.items():
            text += f"\nconn {name}\n" + "".join(f"    {key}={value}\n" for key, value in keys.items())
        (self.folder / "ipsec.conf").write_text(text)
        (self.folder / "ipsec.secrets").write_text(secrets)
        run(["certutil", "-N", "--empty-password", "-d", f"sql:{self.folder}/nss"])
        pluto = ["/usr/libexec/ipsec/pluto", "--nofork", "--config", f"{self.folder}/ipsec.conf", "--nssdir",
                 f"{self.folder}/nss", "--rundir", self.folder, "--secretsfile", f"{self.folder}/ipsec.secrets"]
        self._process = Process(self.space.wrap(self._inside(pluto)), log=self.folder / "output.log")
        self._process.wait_ready(self.name, lambda: "loading secrets" in self.logs(), self.logs, timeout=15)
        for name in connections:
            self._ipsec("addconn", "--ctlsocket", str(self._control), "--config", f"{self.folder}/ipsec.conf", name)
        self.whack("--listen")

    def _inside(self, argv: list) -> list[str]:
        if self._newest:
            return newer.inside(argv)
        script = (f"mount -t tmpfs none /run && mkdir /run/pluto && mount --bind {ROOT}/usr/libexec /usr/libexec && "
                  'exec "$@"')
        return ["unshare", "-m", "sh", "-c", script, "sh", *map(str, argv)]

    def _ipsec(self, tool: str, *arguments: str, check: bool = True, timeout: float = 20):
        command = self._inside([f"/usr/libexec/ipsec/{tool}", *arguments])
        return run(self.space.wrap(command), check=check, timeout=timeout)

    def whack(self, *arguments: str, check: bool = False, timeout: float = 20):
        return self._ipsec("whack", "--ctlsocket", str(self._control), *arguments, check=check, timeout=timeout)

    def status(self) -> str:
        return self.whack("--status").stdout

    def up(self, connection: str = "site") -> None:
        self.whack("--initiate", "--asynchronous", "--name", connection)

    def down(self, connection: str = "site") -> None:
        self.whack("--terminate", "--name", connection)

    def stop(self) -> int | None:
        return self._process.stop() if self._process else None

    def logs(self) -> str:
        return "".join(file.read_text(errors="replace") for file in (self.folder / "output.log", self.log)
                       if file.exists())
