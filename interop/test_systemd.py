"""The installed unit, under systemd."""

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from ends import make_anew
from harness.esplanade import ROOT
from harness.process import wait_until
from harness.settings import pair
from harness.systemd import Systemd, missing
from harness.traffic import assert_ping, ping

pytestmark = pytest.mark.esplanade_only


@pytest.fixture
def systemd(topology, folder):
    if reason := missing():
        pytest.skip(reason)
    booted = Systemd(topology.gw_a, folder)
    yield booted
    booted.close()


def test_under_systemd(systemd, topology, daemon, folder):
    """`make install`, then what an administrator does with the unit."""
    settings = pair(topology, inner=4)
    daemon("esplanade", "b").start(settings[1])
    a = daemon("esplanade", "a", export_keys=False)
    del a.gateway["socket"]
    a.write(settings[0])
    config = systemd.path("/etc/esplanade/esplanade.conf")
    shutil.copy(a.config, config)
    systemd.run(["chown", "esplanade:esplanade", "/etc/esplanade/esplanade.conf"])
    config.chmod(0o600)

    def state():
        return systemd.show("esplanade", "ActiveState"), systemd.show("esplanade", "SubState")

    def fields():
        lines = Path(f"/proc/{pid()}/status").read_text().splitlines()
        return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}

    def pid() -> int:
        """The gateway's process, by the number that it has outside systemd's namespace."""
        inside = systemd.show("esplanade", "MainPID")
        for status in Path("/proc").glob("[0-9]*/status"):
            # Any other process may end while it is looked at.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                text = status.read_text()
                names = [line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")]
                if names and len(names[0]) > 1 and names[0][-1] == inside and "esplanade" in text:
                    return int(status.parent.name)
        raise AssertionError(f"no process {inside}")

    def esplanade(*arguments):
        return systemd.run(["/usr/local/sbin/esplanade", *arguments])

    systemd.systemctl("start", "esplanade")
    assert state() == ("active", "running"), "it is active when it has said that it is ready"
    esplanade("up", "net")
    assert_ping(topology.host_a, topology.b.host4)
    assert set(fields()["Uid"]) != {"0"}
    assert int(fields()["CapEff"][0], 16) == 1 << 12 | 1 << 13, "NET_ADMIN and NET_RAW"
    assert fields()["NoNewPrivs"] == ["1"]

    systemd.systemctl("reload", "esplanade")
    assert_ping(topology.host_a, topology.b.host4)
    before = systemd.show("esplanade", "MainPID")
    os.kill(pid(), signal.SIGKILL)
    # It stays active, without a process, until systemd has seen the end of the former one.
    wait_until(
        "it is started again",
        lambda: state() == ("active", "running") and systemd.show("esplanade", "MainPID") not in ("0", before),
        timeout=20,
    )
    esplanade("up", "net")
    assert_ping(topology.host_a, topology.b.host4)

    config.write_text("gateway { nonsense = yes }")
    assert systemd.systemctl("reload", "esplanade", check=False).returncode != 0
    assert_ping(topology.host_a, topology.b.host4)
    systemd.systemctl("stop", "esplanade")
    assert state() == ("inactive", "dead")
    assert systemd.systemctl("start", "esplanade", check=False).returncode != 0
    assert state() == ("failed", "failed"), "another start would change nothing"


def test_a_link_past_the_stack_under_systemd(systemd, topology, daemon):
    """With the lines that the documentation gives for it."""
    settings = pair(topology, inner=4)
    daemon("esplanade", "b").start(settings[1])
    a = daemon("esplanade", "a", export_keys=False)
    del a.gateway["socket"]
    settings[0].gateway["xdp"] = "wan"
    a.write(settings[0])
    config = systemd.path("/etc/esplanade/esplanade.conf")
    shutil.copy(a.config, config)
    systemd.run(["chown", "esplanade:esplanade", "/etc/esplanade/esplanade.conf"])
    config.chmod(0o600)
    assert systemd.systemctl("start", "esplanade", check=False).returncode != 0, "it has no right to it"
    lines = (ROOT / "docs/configuration/xdp.md").read_text().split("```systemd\n")[1].split("```")[0]
    more = systemd.path("/etc/systemd/system/esplanade.service.d/xdp.conf")
    more.parent.mkdir()
    more.write_text(lines)
    systemd.systemctl("daemon-reload")
    systemd.systemctl("reset-failed", "esplanade")
    systemd.systemctl("start", "esplanade")
    systemd.run(["/usr/local/sbin/esplanade", "up", "net"])
    assert_ping(topology.host_a, topology.b.host4)
    status = json.loads(systemd.run(["/usr/local/sbin/esplanade", "status", "--json"]).stdout)
    assert status["counters"]["io"]["link-received"] > 0
    systemd.systemctl("restart", "esplanade")
    systemd.run(["/usr/local/sbin/esplanade", "up", "net"])
    assert_ping(topology.host_a, topology.b.host4)

    def past_the_stack():
        """Whether the link is open, and what has come by it."""
        shown = json.loads(systemd.run(["/usr/local/sbin/esplanade", "status", "--json"]).stdout)
        return shown["links"]["wan"]["attached"], shown["counters"]["io"]["link-received"]

    # The user of the unit has CAP_BPF no more, and has never had CAP_IPC_LOCK.
    make_anew(topology)
    wait_until("the link is opened again", lambda: past_the_stack()[0])
    before = past_the_stack()[1]
    wait_until("pings", lambda: ping(topology.host_a, topology.b.host4, count=2, timeout=2) == 2, timeout=20)
    assert past_the_stack()[1] > before
    # Its program is left when it is killed, and does not keep the next one from the link.
    former = systemd.show("esplanade", "MainPID")
    systemd.systemctl("kill", "--signal=SIGKILL", "esplanade")
    wait_until(
        "it is started again",
        lambda: systemd.show("esplanade", "SubState") == "running" and systemd.show("esplanade", "MainPID") not in ("0", former),
        timeout=20,
    )
    assert past_the_stack() == (True, 0)


def test_a_gateway_that_stands_still_is_started_again(systemd, topology, daemon):
    """The unit has a watchdog. What the policies protect goes nowhere meanwhile."""
    settings = pair(topology, inner=4)
    a = daemon("esplanade", "a", export_keys=False)
    del a.gateway["socket"]
    a.write(settings[0])
    config = systemd.path("/etc/esplanade/esplanade.conf")
    shutil.copy(a.config, config)
    systemd.run(["chown", "esplanade:esplanade", "/etc/esplanade/esplanade.conf"])
    config.chmod(0o600)
    assert "\nWatchdogSec=30\n" in (ROOT / "dist/esplanade.service").read_text()
    shorter = systemd.path("/etc/systemd/system/esplanade.service.d/watchdog.conf")
    shorter.parent.mkdir()
    shorter.write_text("[Service]\nWatchdogSec=2\nRestartSec=5\n")
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", "esplanade")
    before = systemd.show("esplanade", "MainPID")
    systemd.run(["kill", "-STOP", before])
    wait_until("systemd ends it", lambda: systemd.show("esplanade", "MainPID") == "0", timeout=30)
    rules = topology.gw_a.run(["ip", "route", "show", "table", "220"]).stdout
    assert "unreachable" in rules, rules
    wait_until("it runs again", lambda: systemd.show("esplanade", "ActiveState") == "active", timeout=30)
    assert systemd.show("esplanade", "MainPID") not in ("0", before)
    assert systemd.show("esplanade", "NRestarts") == "1"
