"""Updown scripts: what they are told, when, and that nobody waits for them."""

import os
import signal
from pathlib import Path

import pytest
from ends import establish, every_end, start
from harness.process import wait_until
from harness.settings import add_second, pair
from harness.traffic import Flow, assert_ping

# Each end has its own way to number SAs and to name the device that leads to them. strongSwan's extra variables are of
# features that the kernel's data plane has.
OWN = {"PLUTO_UNIQUEID", "PLUTO_INTERFACE", "PLUTO_REQID", "PLUTO_ME", "PLUTO_PEER", "PLUTO_UDP_ENC"}
MIRRORED = {"PLUTO_MY_ID": "PLUTO_PEER_ID", "PLUTO_MY_CLIENT": "PLUTO_PEER_CLIENT", "PLUTO_MY_PORT": "PLUTO_PEER_PORT",
            "PLUTO_MY_PROTOCOL": "PLUTO_PEER_PROTOCOL"}


def recorder(folder, name):
    """A script that appends its variables to a file, one call a line. Returns both."""
    calls, script = folder / f"{name}.calls", folder / f"{name}.sh"
    script.write_text(f"#!/bin/sh\nenv | grep ^PLUTO_ | sort | tr '\\n' ';' >> {calls}\necho >> {calls}\n")
    script.chmod(0o755)
    calls.touch()
    return str(script), calls


def read(calls):
    lines = [line for line in calls.read_text().splitlines() if line]
    return [dict(part.partition("=")[::2] for part in line.split(";") if part) for line in lines]


@every_end
def test_scripts_hear_the_same_from_both(ends, topology, daemon, folder):
    settings = pair(topology, ike="aes128gcm16-prfsha256-x25519")
    recorded = []
    for one, name in zip(settings, "ab"):
        script, calls = recorder(folder, name)
        one.child()["updown"] = script
        one.child()["hostaccess"] = "yes"
        recorded.append(calls)
    a, b = establish(daemon, ends, settings)
    for calls in recorded:
        wait_until("a call for each IP version", lambda: len(read(calls)) == 2)
    seen = [sorted(read(calls), key=lambda call: call["PLUTO_MY_CLIENT"]) for calls in recorded]
    for mine, theirs in zip(*seen):
        assert mine["PLUTO_VERB"].startswith("up-client") and mine["PLUTO_VERB"] == theirs["PLUTO_VERB"]
        assert set(mine) - OWN == set(theirs) - OWN
        for name in set(mine) - OWN - set(MIRRORED) - set(MIRRORED.values()):
            assert mine[name] == theirs[name], name
        for name, other in MIRRORED.items():
            assert (mine[name], mine[other]) == (theirs[other], theirs[name])
        assert (mine["PLUTO_ME"], mine["PLUTO_PEER"]) == (theirs["PLUTO_PEER"], theirs["PLUTO_ME"])
    # A rekey is none of their business.
    old = {child["spi-in"] for child in a.children()}
    a.rekey_child()
    wait_until("the new child SA", lambda: len(a.children()) == 1 and a.children()[0]["spi-in"] not in old)
    a.down()
    for calls in recorded:
        wait_until("the calls of the end", lambda: len(read(calls)) == 4)
        assert all(call["PLUTO_VERB"].startswith("down-client") for call in read(calls)[2:])


@pytest.mark.esplanade_only
def test_nobody_waits_for_a_script(topology, daemon, folder):
    """A script that hangs holds up neither traffic nor other connections nor the end of the gateway."""
    settings = pair(topology, inner=4)
    settings[0].child()["updown"] = "sleep 1000; exit 1"
    script, calls = recorder(folder, "b")
    settings[1].child()["updown"] = f"{script}; echo 'from the script'; exit 7"
    a, b = establish(daemon, ("esplanade", "esplanade"), settings)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4)
    wait_until("the line about the script", lambda: "failed with status 7" in b.logs() and "from the script" in b.logs())
    a.rekey_child()
    assert_ping(topology.host_a, topology.b.host4)
    report = flow.stop()
    assert (report.lost, report.corrupt) == (0, 0), report
    [up] = read(calls)
    assert up["PLUTO_CONNECTION"] == "net" and up["PLUTO_INTERFACE"] == "esp0", up
    # The end of the gateway is told too.
    assert b.stop() == 0
    assert [call["PLUTO_VERB"] for call in read(calls)] == ["up-client", "down-client"]


@pytest.mark.esplanade_only
def test_a_hanging_script_holds_up_its_own_connection_alone(topology, daemon, folder):
    settings = pair(topology, inner=4)
    add_second(*settings)
    settings[1].child()["updown"] = "sleep 1000"
    script, calls = recorder(folder, "second")
    settings[1].child("second", "second-net")["updown"] = script
    a, _ = establish(daemon, ("esplanade", "esplanade"), settings)
    a.up("second-net")
    [call] = wait_until("the call of the other connection", lambda: read(calls))
    assert (call["PLUTO_VERB"], call["PLUTO_CONNECTION"]) == ("up-client", "second-net")


def children_of(parent, command):
    """The processes of this hidden command that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == parent and command.encode() in arguments:
            found.append(int(folder.name))
    return found


@pytest.mark.esplanade_only
def test_a_runner_that_ends_is_started_again(topology, daemon, folder):
    """Nothing is lost: the call under way is made again, and the end is told to the next runner."""
    settings = pair(topology, inner=4)
    script, calls = recorder(folder, "b")
    # The first call does not end by itself.
    settings[1].child()["updown"] = f"if test -e {folder}/again; then {script}; else {script}; sleep 30; fi"
    a, b = establish(daemon, ("esplanade", "esplanade"), settings)
    wait_until("the first call", lambda: len(read(calls)) == 1)
    (folder / "again").touch()
    [keeper] = children_of(b._process.popen.pid, "updown-keeper")
    [runner] = children_of(keeper, "updown-runner")
    os.kill(runner, signal.SIGKILL)
    wait_until("the call that was under way, again", lambda: len(read(calls)) == 2)
    wait_until("the line about it", lambda: "was started again" in b.logs())
    a.down()
    wait_until("the call of the end", lambda: len(read(calls)) == 3)
    first, again, end = read(calls)
    assert first == again and end == {**first, "PLUTO_VERB": "down-client"}
    assert b.stop() == 0
    wait_until("the keeper's end", lambda: not children_of(keeper, "updown-runner"))


@pytest.mark.esplanade_only
def test_a_child_whose_script_cannot_be_told_is_refused(topology, daemon, folder):
    """Each range is 46 subnets, so that there are 2,116 pairs."""
    settings = pair(topology, inner=4)
    ranges = ["60.0.0.1-60.255.255.254", "61.0.0.1-61.255.255.254"]
    for one, (local, remote) in zip(settings, (ranges, reversed(ranges))):
        one.child().update(local_ts=local, remote_ts=remote)
    script, calls = recorder(folder, "b")
    settings[0].child()["start_action"] = "start"
    settings[1].child()["updown"] = script
    a, b = start(daemon, ("esplanade", "esplanade"), settings)
    wait_until("the refusal", lambda: "would be called 2116 times" in b.logs())
    wait_until("the ends of the SA", lambda: not a.children() and not b.children())
    assert not read(calls)


@pytest.mark.esplanade_only
def test_a_new_script_needs_a_restart(topology, daemon, folder):
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, ("esplanade", "esplanade"), settings)
    settings[0].child()["updown"] = "true"
    a.write(settings[0])
    refused = a.command("reload", check=False)
    assert refused.returncode != 0 and "restart the gateway" in refused.stderr, refused
    assert_ping(topology.host_a, topology.b.host4)
