"""A peer is killed and started again while the other end goes on. The tests print the time without traffic."""

import itertools
import struct
import threading
import time
from contextlib import contextmanager

import pytest
from ends import ENDS, esplanade_pair, ids, start
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import assert_ping, inject, ping
from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import ESP

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


@contextmanager
def strangers(topology, end, address):
    """About 2000 packets a second with false sources: ESP, and requests of IKE, for SAs that are not there."""
    numbers = itertools.count()
    ended = threading.Event()

    def forged():
        number = next(numbers)
        source = f"198.18.{number >> 8 & 255}.{number & 255}"
        spis = struct.pack("!QQ", 0x5EED0000 + number, 0xFEED0000 + number)
        request = spis + bytes([46, 0x20, 37, 0x08]) + struct.pack("!II", 9, 60) + bytes([0, 0, 0, 32]) + bytes(28)
        outer = IP(src=source, dst=address)
        yield bytes(outer / UDP(sport=500, dport=500) / request)
        yield bytes(outer / ESP(spi=0xDEAD0000 + number, seq=1, data=bytes(64)))

    packets = [packet for _ in range(2000) for packet in forged()]

    def flood():
        while not ended.is_set():
            for at in range(0, len(packets), 100):
                inject(topology.wan, packets[at:at + 100])
                if ended.wait(0.04):
                    return

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield lambda: (end.counter("ike.refused.unknown-spi"), end.counter("drops.unknown-spi"))
    finally:
        ended.set()
        thread.join()


@pytest.mark.esplanade_only
def test_a_flood_of_strangers_does_not_hide_a_crash(topology, daemon, folder):
    a, b, settings = survivor_and_victim(topology, daemon, esplanade_pair, folder)
    with strangers(topology, b, topology.b.wan4) as counts:
        time.sleep(1)
        b.kill()
        b.start(settings[1])
        took = outage(topology, 60)
        print(f"under a flood: {took:.2f} s without traffic after the restart")
        wait_until("the flood is there", lambda: min(counts()) > 1000)
    assert "crash token" in a.logs()
    assert took < 5


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
