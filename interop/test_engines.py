"""A child's engine is changed while its packets flow: none is lost, none is overtaken."""

import re
import time

import draw
import pytest
from ends import esplanade_pair, establish
from harness.esplanade import binary
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import Flow, assert_whole, transfer

pytestmark = pytest.mark.esplanade_only

# The soak runs the long one.
SWAPS, SECONDS = (100, 10) if draw.WHOLE else (24, 2)


def both_engines(topology, *, delay_ms=0, workers=1, **options):
    """The CPU, and a pool of helper threads beside it."""
    settings = pair(topology, **options)
    for one in settings:
        one.gateway.update(pool_threads=2, trial=f"pool-delay-ms={delay_ms}", workers=workers)
    return settings


def spis(end):
    return {child["spi-in"] for child in end.children()}


def assert_clean(*ends):
    for end in ends:
        for reason in ("engine-failed", "before-window", "replayed", "authentication-failed"):
            assert end.counter(f"drops.{reason}") == 0, reason
        assert end.counter("io.engines-lost") == 0


def engine_of(end):
    (sa,) = end.status()["sas"]
    (sa,) = sa.values()
    (child,) = sa["child-sas"].values()
    return child["engine"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("delay_ms", [0, 3])
@pytest.mark.parametrize("encap", [False, True], ids=["raw", "in-udp"])
def test_swaps_under_load(encap, delay_ms, workers, topology, daemon):
    settings = both_engines(topology, delay_ms=delay_ms, workers=workers, encap=encap)
    a, b = establish(daemon, esplanade_pair, settings)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=1000)
    back = Flow(topology.host_b, topology.host_a, topology.a.host6, rate=1000)
    begun = time.monotonic()
    for swap in range(SWAPS):
        end, engine = (a, b)[swap % 2], ("pool", "cpu")[swap // 2 % 2]
        end.command("engine", "net", engine)
        assert engine_of(end) == engine
        if swap % 12 == 6:
            transfer(topology.host_a, topology.host_b, topology.b.host4, size=2_000_000)
            transfer(topology.host_b, topology.host_a, topology.a.host4, size=2_000_000)
        due = begun + (swap + 1) * SECONDS / SWAPS
        time.sleep(max(0, due - time.monotonic()))
    assert_whole(topology, flow.stop(), back.stop())
    assert_clean(a, b)


def test_a_child_keeps_its_engine(topology, daemon):
    settings = both_engines(topology)
    settings[0].child()["engine"] = "pool"
    a, b = establish(daemon, esplanade_pair, settings)
    assert (engine_of(a), engine_of(b)) == ("pool", "cpu")
    status = a.command("status").stdout
    # A lower tier may be cheaper for a transform, which stands in parentheses.
    assert re.search(r"^engine    cpu, tier \w+( \([^)]*\))?; also pool \(threads: 2\)$", status, re.MULTILINE)
    assert re.search(r"^    engine  pool$", status, re.MULTILINE)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    assert b.command("engine", "site/net", "pool").stdout == "site/net: engine pool, its SAs go on there\n"
    for end in (a, b):
        old = [spis(one) for one in (a, b)]
        end.command("rekey", "net")
        for one, spi in zip((a, b), old):
            wait_until("the new child SA alone", lambda: len(spis(one)) == 1 and not spis(one) & spi)
        assert (engine_of(a), engine_of(b)) == ("pool", "pool")
    # An order goes before the configuration.
    a.command("engine", "net", "cpu")
    a.command("reload")
    assert engine_of(a) == "cpu"
    a.down()
    assert a.command("engine", "net", "pool").stdout == "net: engine pool, none of its SAs is up\n"
    a.up()
    assert engine_of(a) == "pool"
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=1_000_000)
    assert_clean(a, b)


def test_what_cannot_be_moved(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology))
    for child, engine, why in [
        ("net", "pool", 'this gateway has no engine "pool" (it has cpu): set `pool_threads`, or `engine = pool`, in the gateway section'),
        ("nothing", "cpu", 'no child that is protected is called "nothing"'),
        ("elsewhere/net", "cpu", 'no child that is protected is called "net"'),
    ]:
        refused = a.command("engine", child, engine, check=False)
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
    assert a.command("engine", "net", "cpu").stdout == "net: engine cpu, its SAs go on there\n"


def test_an_engine_from_outside(topology, daemon, monkeypatch):
    """The example of docs/add-an-engine.md: an engine that the gateway's own crates do not know."""
    program = binary().parent / "examples" / "add_an_engine"
    assert program.exists(), f"no program at {program}: cargo build --workspace --example add_an_engine"
    monkeypatch.setenv("ESPLANADE_BIN", str(program))
    settings = pair(topology)
    settings[0].gateway.update(engine="tally", tally={"note": "of a"})
    settings[1].gateway.update(tally={"note": "of b"})
    a, b = establish(daemon, esplanade_pair, settings)
    assert (engine_of(a), engine_of(b)) == ("tally", "cpu")
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=1_000_000)
    assert tallied(a)["sealed"] > 500 and tallied(a)["opened"] > 0
    assert tallied(b) == {"sealed": 0, "opened": 0}
    flow = Flow(topology.host_b, topology.host_a, topology.a.host4, rate=1000)
    for engine in ("tally", "cpu", "tally"):
        b.command("engine", "net", engine)
        assert engine_of(b) == engine
    transfer(topology.host_a, topology.host_b, topology.b.host6, size=1_000_000)
    assert_whole(topology, flow.stop())
    assert tallied(b)["opened"] > 500
    assert "engine    tally (of a), tier " in a.command("status").stdout
    assert re.search(r"^engine    cpu, .*; also tally \(of b\)$", b.command("status").stdout, re.MULTILINE)
    assert_clean(a, b)


def test_a_device_from_outside(topology, daemon, monkeypatch):
    """The other example of docs/add-an-engine.md: a device in front of the data plane, which carries no SAs."""
    program = binary().parent / "examples" / "add_a_device"
    assert program.exists(), f"no program at {program}: cargo build --workspace --example add_a_device"
    monkeypatch.setenv("ESPLANADE_BIN", str(program))
    settings = pair(topology)
    settings[0].gateway["engine"] = "observer"
    a, b = establish(daemon, esplanade_pair, settings)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=100_000)
    assert engine_of(a) == "cpu"
    assert a.status()["engine"]["observer"]["seen"] > 50
    assert "it only looks on" in a.command("status").stdout
    assert_clean(a, b)


def tallied(end):
    return end.status()["engine"]["tally"]
