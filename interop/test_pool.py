"""`engine = pool`: nothing is lost or overtaken where the engine answers late, and the CPU goes on for one that is lost."""

import pytest
from ends import delete_device, esplanade_pair, establish
from harness.settings import pair
from harness.traffic import Flow, assert_ping, assert_whole, transfer

pytestmark = pytest.mark.esplanade_only


def pools(topology, *, delay_ms=0, workers=1, threads=2, **options):
    settings = pair(topology, **options)
    for one in settings:
        one.gateway.update(engine="pool", pool_threads=threads, trial=f"pool-delay-ms={delay_ms}", workers=workers)
    return settings


def assert_nothing_lost(*ends):
    for end in ends:
        for reason in ("engine-failed", "before-window", "replayed"):
            assert end.counter(f"drops.{reason}") == 0, reason


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("delay_ms", [0, 5, 20])
@pytest.mark.parametrize("encap", [False, True], ids=["raw", "in-udp"])
def test_a_late_engine(encap, delay_ms, workers, topology, daemon):
    settings = pools(topology, delay_ms=delay_ms, workers=workers, encap=encap)
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.01)
    assert_ping(topology.host_a, topology.b.host6, size=1200)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=1000)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=5_000_000)
    transfer(topology.host_b, topology.host_a, topology.a.host6, size=5_000_000)
    assert_whole(topology, flow.stop())
    assert_nothing_lost(a, b)
    for end in (a, b):
        engine = end.status()["engine"]
        assert (engine["name"], engine["threads"]) == ("pool", 2)
    assert "engine    pool (threads: 2), tier " in a.command("status").stdout


@pytest.mark.parametrize("esp", ["aes256-sha256", "chacha20poly1305", "aes128gcm16"])
def test_ciphers(esp, topology, daemon):
    settings = pools(topology)
    for one in settings:
        one.child()["esp_proposals"] = esp
    a, b = establish(daemon, esplanade_pair, settings)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=5_000_000)
    assert_nothing_lost(a, b)


def test_a_lost_engine(topology, daemon):
    """It holds a batch for longer than it may."""
    settings = pools(topology, delay_ms=10_000, threads=1)
    a, b = establish(daemon, esplanade_pair, settings)
    # One after the other, the engines on the way are found to be lost. Nothing else is.
    assert_ping(topology.host_a, topology.b.host4, count=10, timeout=20)
    assert_ping(topology.host_a, topology.b.host4, count=20, interval=0.01)
    for end in (a, b):
        assert end.counter("io.engines-lost") == 2
        assert end.logs().count("does not answer: the CPU does what it has") == 2
    assert_nothing_lost(a, b)


def test_a_device_that_is_made_again(topology, daemon):
    a, b = establish(daemon, esplanade_pair, pools(topology, delay_ms=5))
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    delete_device(topology)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=1_000_000)
    assert_nothing_lost(a, b)
