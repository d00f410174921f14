"""A peer is killed and started again while the other end goes on. The tests print the time without traffic."""

import time

import pytest
from ends import ENDS, esplanade_pair, ids, start
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import assert_ping, ping

# What strongSwan as the survivor needs to find out by itself.
CHARON = {"dpd_delay": "2s"}


def survivor_and_victim(topology, daemon, ends, folder, **child):
    """A initiates and survives; B only answers."""
    settings = pair(topology, inner=4)
    settings[0].child().update(start_action="start", dpd_action="start", close_action="start", **child)
    if ends[0] == "charon":
        settings[0].connections["site"].update(CHARON)
    for one, name in zip(settings, "ab"):
        state = folder / f"state-{name}"
        state.mkdir(mode=0o700)
        one.gateway["state_directory"] = str(state)
    # A calls by itself: strongSwan refuses a second request for the same child.
    a, b = start(daemon, ends, settings)
    a.wait_installed()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    return a, b, settings


def outage(topology, timeout: float) -> float:
    """The time until a packet comes through."""
    begun = time.monotonic()
    wait_until("traffic", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=0.2), timeout)
    return time.monotonic() - begun


@pytest.mark.parametrize("ends", ENDS, ids=ids)
def test_a_peer_that_is_killed_and_started_again_is_back(ends, topology, daemon, folder):
    a, b, settings = survivor_and_victim(topology, daemon, ends, folder)
    b.kill()
    b.start(settings[1])
    print(f"{ids(ends)}: {outage(topology, 60):.2f} s without traffic after the restart")
    if ends == esplanade_pair:
        assert "crash token" in a.logs()


@pytest.mark.parametrize("peer", ["charon", "esplanade"])
def test_a_child_that_starts_comes_back_from_a_peer_that_stopped_in_good_order(peer, topology, daemon):
    """The peer deletes its SAs when it stops. Nothing but `start_action` brings the tunnel back."""
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    a, b = start(daemon, ("esplanade", peer), settings, retransmit_timeout=0.5)
    a.wait_installed()
    b.stop()
    assert not a.installed()
    b.start(settings[1])
    a.wait_installed()
    assert a.command("status", "--check", check=False).returncode == 0


@pytest.mark.esplanade_only
def test_without_tokens_a_hint_lets_the_peer_be_asked(topology, daemon, folder):
    a, b, settings = survivor_and_victim(topology, daemon, esplanade_pair, folder)
    settings[1].gateway["quick_crash_detection"] = "no"
    b.kill()
    b.start(settings[1])
    print(f"without a token: {outage(topology, 40):.2f} s without traffic after the restart")
    assert "crash token" not in a.logs()
    assert a.counter("unauthenticated-notify") > 0
