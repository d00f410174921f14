"""One SA, many flows, two workers: which worker carries how much, and that nothing is lost or overtaken on the way."""

import subprocess
import sys

import pytest
from ends import delete_device, esplanade_pair, establish, with_peer
from harness.settings import pair
from harness.traffic import assert_ping, finish, transfer

FLOWS = 8

# Sends numbered datagrams of several flows in turn, or sends back what comes; both look at the order. Each flow has a
# port of its own, so that the same flows meet the same workers in every run.
ECHO = """
import collections, socket, sys
role, here, there, flows, rounds, in_flight = sys.argv[1:4] + [int(a) for a in sys.argv[4:]]
family = socket.AF_INET6 if ":" in here else socket.AF_INET
PORT = 7000
if role == "server":
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.bind((here, PORT))
    print("ready", flush=True)
    next_of = collections.Counter()
    for _ in range(flows * rounds * in_flight):
        one.settimeout(10)
        data, peer = one.recvfrom(100)
        assert int.from_bytes(data) == next_of[peer], (peer, int.from_bytes(data), next_of[peer])
        next_of[peer] += 1
        one.sendto(data, peer)
else:
    all = []
    for flow in range(flows):
        one = socket.socket(family, socket.SOCK_DGRAM)
        one.bind((here, 6000 + flow))
        one.connect((there, PORT))
        one.settimeout(10)
        all.append(one)
    for first in range(0, rounds * in_flight, in_flight):
        numbers = range(first, first + in_flight)
        for number in numbers:
            for one in all:
                one.send(number.to_bytes(4))
        for one in all:
            for number in numbers:
                got = int.from_bytes(one.recv(100))
                assert got == number, (got, number)
print("done")
"""


def echo(topology, version, rounds, in_flight=10):
    a, b = topology.a.host(version), topology.b.host(version)

    def run(space, *arguments):
        argv = [sys.executable, "-c", ECHO, *map(str, (*arguments, FLOWS, rounds, in_flight))]
        return space.start(argv, stdout=subprocess.PIPE)

    server = run(topology.host_b, "server", b, a)
    assert server.popen.stdout.readline() == b"ready\n"
    client = run(topology.host_a, "client", a, b)
    assert finish(client) == "done\n"
    assert finish(server) == "done\n"


def packets(end, direction):
    workers = end.status()["workers"]
    assert workers["total"] == 2
    return [workers[str(index)][f"packets-{direction}"] for index in range(2)]


def assert_nothing_lost(end):
    for reason in ("before-window", "replayed", "engine-failed"):
        assert end.counter(f"drops.{reason}") == 0, reason


@pytest.mark.esplanade_only
@pytest.mark.parametrize("encap", [False, True], ids=["raw", "in-udp"])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
def test_flows_of_one_sa(outer, encap, topology, daemon):
    """Each worker seals at least a quarter of the packets of one SA, and opens those of the SAs that are its own."""
    settings = pair(topology, outer=outer, encap=encap)
    for one in settings:
        one.gateway["workers"] = 2
        one.child()["peer_replay_window"] = 8192
    a, b = establish(daemon, esplanade_pair, settings)
    for version in (4, 6):
        # The kernel learns of each flow where its packets come in. Then they may change the worker.
        echo(topology, version, 1, in_flight=1)
        before = [packets(end, "out") for end in (a, b)]
        echo(topology, version, 50)
        for end, earlier in zip((a, b), before):
            sealed = [now - then for now, then in zip(packets(end, "out"), earlier)]
            assert min(sealed) * 4 >= sum(sealed) >= FLOWS * 500, sealed
            # An SA stays on a worker.
            assert min(packets(end, "in")) == 0
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=5_000_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=5_000_000)
    for end in (a, b):
        assert_nothing_lost(end)


@with_peer
def test_a_peer_with_a_small_window(ends, topology, daemon):
    """strongSwan takes 32 packets: workers take turns, and it drops none."""
    settings = pair(topology)
    for kind, one in zip(ends, settings):
        if kind == "esplanade":
            one.gateway["workers"] = 2
    a, b = establish(daemon, ends, settings)
    gateway, peer = (a, b) if a.kind == "esplanade" else (b, a)
    for version in (4, 6):
        echo(topology, version, 1, in_flight=1)
        echo(topology, version, 50)
    transfer(topology.host_a, topology.host_b, topology.b.host4)
    transfer(topology.host_b, topology.host_a, topology.a.host4)
    # What charon's ESP in user space says of a packet that is replayed or left of its window.
    assert "sequence number verification failed" not in peer.logs()
    assert_nothing_lost(gateway)


@pytest.mark.esplanade_only
def test_a_device_that_is_made_again(topology, daemon):
    """The workers have all of its new queues."""
    settings = pair(topology)
    for one in settings:
        one.gateway["workers"] = 2
        one.child()["peer_replay_window"] = 8192
    a, b = establish(daemon, esplanade_pair, settings)
    echo(topology, 4, 1, in_flight=1)
    delete_device(topology)
    echo(topology, 4, 1, in_flight=1)
    before = packets(a, "out")
    echo(topology, 4, 50)
    sealed = [now - then for now, then in zip(packets(a, "out"), before)]
    assert min(sealed) * 4 >= sum(sealed), sealed


@pytest.mark.esplanade_only
def test_workers_are_shown(topology, daemon):
    settings = pair(topology)
    settings[0].gateway["workers"] = 2
    a, _ = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4)
    text = a.command("status").stdout
    for index in range(2):
        shown = a.status()["workers"][str(index)]
        assert 0 <= shown["busy-percent"] <= 100
        sent, received = shown["packets-out"], shown["packets-in"]
        packets = "packet" if sent == 1 else "packets"
        assert f"worker    {index}: sent {sent} {packets}, received {received}, " in text
