"""The gateway as its systemd unit runs it."""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from harness.esplanade import ROOT, binary
from harness.settings import pair
from harness.traffic import assert_ping

pytestmark = pytest.mark.esplanade_only


def unit_rights() -> list[str]:
    unit = (ROOT / "dist" / "esplanade.service").read_text().splitlines()
    [rights] = [line.partition("=")[2].split() for line in unit if line.startswith("AmbientCapabilities=")]
    return [right.removeprefix("CAP_").lower() for right in rights]


def test_an_ordinary_user_with_the_rights_of_the_unit(topology, daemon, folder):
    """As the systemd unit runs it, and heard as systemd hears it."""
    nobody = 65534
    # A user namespace of an ordinary user has no second one: there it is root with the rights of the unit.
    mapped = int(Path("/proc/self/uid_map").read_text().split()[2])
    user = nobody if mapped > nobody else 0
    settings = pair(topology, inner=4)
    b = daemon("esplanade", "b")
    b.start(settings[1])
    a = daemon("esplanade", "a")
    a.write(settings[0])
    program = a.folder / "esplanade"
    shutil.copy(binary(), program)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(10)
    listener.bind(str(a.folder / "notify"))
    for path in (a.folder, *a.folder.iterdir()):
        os.chown(path, user, user)
    above = [parent for parent in a.folder.parents if parent.stat().st_mode & 0o001 == 0]
    for parent in above:
        parent.chmod(parent.stat().st_mode | 0o011)
    rights = ",".join(f"+{right}" for right in unit_rights())
    become = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    argv = ["env", f"NOTIFY_SOCKET={a.folder / 'notify'}", "setpriv", *become, f"--bounding-set=-all,{rights}",
            f"--inh-caps=-all,{rights}", f"--ambient-caps=-all,{rights}", "--no-new-privs", program, "run",
            "--config", a.config]
    a._process = a.space.start(argv, log=a.log)
    assert listener.recv(200).startswith(b"READY=1\n"), a.logs()
    assert a.ready(), "it is ready when it says so"
    a.up()
    assert_ping(topology.host_a, topology.b.host4)
    a.command("reload")
    a.rekey_child()
    assert_ping(topology.host_a, topology.b.host4)
    assert a.stop() == 0
    assert listener.recv(200).startswith(b"STOPPING=1\n")
    assert "not permitted" not in a.logs()


def test_a_watchdog_hears_the_control_thread(topology, daemon):
    """Three times in WATCHDOG_USEC. A process that stands still says nothing, so that systemd ends it."""
    a = daemon("esplanade", "a")
    a.write(pair(topology, inner=4)[0])
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(10)
    listener.bind(str(a.folder / "notify"))
    a.wrapper = ["env", f"NOTIFY_SOCKET={a.folder / 'notify'}", "WATCHDOG_USEC=600000"]
    a.launch()
    assert listener.recv(200).startswith(b"READY=1\n"), a.logs()
    for _ in range(5):
        assert listener.recv(200) == b"WATCHDOG=1"
    a.signal(signal.SIGSTOP)
    listener.settimeout(2)
    with pytest.raises(TimeoutError):
        while True:
            listener.recv(200)
    a.signal(signal.SIGCONT)
    assert listener.recv(200) == b"WATCHDOG=1"
    listener.settimeout(10)
    a.stop()
    while listener.recv(200) == b"WATCHDOG=1":
        pass
