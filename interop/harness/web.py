"""Web servers that have CRLs, and OCSP responders, on the network between the gateways."""

from __future__ import annotations

import shutil
from pathlib import Path

from .process import Process, wait_until

# The router between the gateways.
HOST = "172.16.2.1"
LISTENING = ["ss", "-Hltn"]


class Server:
    """A server of the router. It logs its requests."""

    def __init__(self, topology, argv: list[str], port: int, log: Path):
        self._log = log
        self.process: Process = topology.start("wan", argv, log=log)
        self.uri = f"http://{HOST}:{port}"
        wait_until(f"a server listens at port {port}",
                   lambda: f":{port} " in topology.wan.run(LISTENING).stdout)

    def requests(self, word: str) -> int:
        return self._log.read_text(errors="replace").count(word)


def crl_server(topology, folder: Path, port: int) -> Server:
    """Serves the files of the folder."""
    folder.mkdir(exist_ok=True)
    argv = ["python3", "-u", "-m", "http.server", str(port), "--bind", HOST, "--directory", str(folder)]
    return Server(topology, argv, port, folder.parent / f"web-{port}.log")


def publish(folder: Path, crl: Path) -> None:
    """Puts a CRL into the folder, as `ca.crl`."""
    shutil.copy(crl, folder / "ca.crl")
