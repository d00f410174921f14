"""`engine = ace`: lanes are loaded onto a simulated FPGA as SAs want them, and the CPU carries packets meanwhile. And the
order of proposals by what they cost (`esp_proposals = adaptive`)."""

import pytest
from ends import esplanade_pair, establish, start
from harness.esplanade import ROOT
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import Flow, assert_ping, assert_whole, transfer

pytestmark = pytest.mark.esplanade_only

LIBRARY = ROOT / "crates" / "ace" / "library"
# The proposal, and the lane for it.
LANES = [("aes128ctr-sha256", "rijndael"), ("serpent128ctr-sha256-esn", "serpent"), ("twofish128ctr-sha256", "twofish"),
         ("rc6_128ctr-sha256-esn", "rc6"), ("mars128ctr-sha256", "mars"),
         ("rc6_256ctr-sha256", "rc6")]
# Packets a second: so few that simulated lanes keep up with them on a busy machine.
RATE = 40


def signer():
    return (LIBRARY / "public.key").read_text().strip()


def aces(topology, esp="serpent128ctr-sha256", **options):
    settings = pair(topology, esp=esp)
    for one in settings:
        one.connections["site"]["private_use"] = "yes"
        one.gateway.update(engine="ace", ace={"library": str(LIBRARY), "signer": signer()} | options)
    return settings


def lanes_up(daemon, settings):
    try:
        return establish(daemon, esplanade_pair, settings)
    except HarnessError as error:
        if "no FPGA device" in str(error):
            pytest.skip("the program was built without simulated lanes")
        raise


def ace(end):
    return end.status()["engine"]["ace"]


def fabric(end):
    return ace(end)["fabrics"]["0"]


def wait_lane(end, algorithm):
    wait_until(f"the lane {algorithm} at {end.name}", lambda: fabric(end).get("lane", "").startswith(algorithm), timeout=30)


def assert_clean(*ends):
    for end in ends:
        for reason in ("engine-failed", "before-window", "replayed", "authentication-failed"):
            assert end.counter(f"drops.{reason}") == 0, reason
        stats = ace(end)
        assert (stats["failed-loads"], "failed" in fabric(end)) == (0, False), stats


@pytest.mark.parametrize("esp, algorithm", LANES, ids=[esp for esp, _ in LANES])
def test_lanes(esp, algorithm, topology, daemon):
    a, b = lanes_up(daemon, aces(topology, esp))
    for end in (a, b):
        wait_lane(end, algorithm)
    assert_ping(topology.host_a, topology.b.host4, count=10, interval=0.05)
    assert_ping(topology.host_a, topology.b.host6, size=1200)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=50_000)
    for end in (a, b):
        stats = ace(end)
        assert stats["fabric-packets"] > 40 and stats["loads"] == 1, stats
        assert stats["checked"] > 0, stats
        status = end.command("status").stdout
        keys = "all keys" if "256ctr" in esp else "keys of 128 bits"
        assert f"fabric 0 (LFE5U-25F): {algorithm} with {keys}" in status, status
    assert_clean(a, b)


def test_the_cpu_carries_packets_until_the_lane_is_there(topology, daemon):
    """A configuration interface that takes ten seconds."""
    a, b = lanes_up(daemon, aces(topology, interface_rate=60_000))
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    for end in (a, b):
        wait_lane(end, "serpent")
        wait_until("packets by the lane", lambda: ace(end)["fabric-packets"] > 20, timeout=30)
        stats = ace(end)
        assert stats["while-loading"] > 20 and stats["hidden-loads"] == 0, stats
        assert "a lane is loaded" in end.logs()
    assert_whole(topology, flow.stop())
    assert_clean(a, b)


def test_lanes_change_under_traffic(topology, daemon):
    """The child is negotiated with another cipher three times. Nothing is lost or overtaken."""
    settings = aces(topology)
    a, b = lanes_up(daemon, settings)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=RATE)
    back = Flow(topology.host_b, topology.host_a, topology.a.host6, rate=RATE)
    wait_lane(a, "serpent")
    for swap in range(40):
        (a, b)[swap % 2].command("engine", "net", ("cpu", "ace")[swap // 2 % 2])
    for end in (a, b):
        end.command("engine", "net", "ace")
    wait_until("packets by the lane", lambda: ace(a)["fabric-packets"] > 100, timeout=30)
    assert_whole(topology, flow.stop())
    assert_whole(topology, back.stop())
    assert_clean(a, b)


def two_children(topology):
    """One child for IPv4 with Serpent, one for IPv6 with MARS, which costs the CPU far more."""
    settings = aces(topology)
    for one in settings:
        children = one.connections["site"]["children"]
        both = children.pop("net")
        for name, at, esp in (("net4", 0, "serpent128ctr-sha256"), ("net6", 1, "mars128ctr-sha256")):
            selectors = {key: both[key].split(",")[at] for key in ("local_ts", "remote_ts")}
            children[name] = both | selectors | {"esp_proposals": esp}
    return settings


def test_two_ciphers_share_a_fabric(topology, daemon):
    """The fabric goes to the cipher that costs the CPU more: two loads more than the lane has spared."""
    settings = two_children(topology)
    for one in settings:
        one.gateway["ace"]["interface_rate"] = 10_000_000_000
    a, b = start(daemon, esplanade_pair, settings)
    a.command("up", "net4")
    a.command("up", "net6")
    wait_lane(a, "serpent")
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4, rate=10)
    for _ in range(20):
        transfer(topology.host_a, topology.host_b, topology.b.host6, size=2_000_000)
        if fabric(a).get("lane", "").startswith("mars"):
            break
    wait_lane(a, "mars")
    before = ace(a)["fabric-packets"]
    assert_ping(topology.host_a, topology.b.host6, count=5, interval=0.05)
    assert ace(a)["fabric-packets"] >= before + 5
    assert_whole(topology, flow.stop())
    assert_clean(a, b)


def test_what_no_lane_has(topology, daemon):
    a, b = lanes_up(daemon, aces(topology, "aes256gcm16"))
    assert_ping(topology.host_a, topology.b.host4, count=10, interval=0.01)
    for end in (a, b):
        (sa,) = end.status()["sas"]
        (child,) = sa["site"]["child-sas"].values()
        assert (child["engine"], ace(end)["loads"]) == ("cpu", 0)


@pytest.mark.parametrize("broken, told", [
    ({"signer": "00" * 32}, "the signature is not of the key that is trusted"),
    ({"library": "/nowhere"}, "/nowhere/manifest"),
])
def test_a_library_that_is_refused(broken, told, topology, daemon):
    settings = aces(topology)
    settings[0].gateway["ace"].update(broken)
    a = daemon("esplanade", "a")
    with pytest.raises(HarnessError) as failed:
        a.start(settings[0])
    if "no FPGA device" in str(failed.value):
        pytest.skip("the program was built without simulated lanes")
    assert told in str(failed.value)
    assert "docs/ace.md" in str(failed.value)


def test_the_page_names_the_signer():
    assert f"signer = {signer()}" in (ROOT / "docs" / "ace.md").read_text()


def test_proposals_by_cost(topology, daemon):
    """The responder chooses what its CPU does fastest, by its own measurement."""
    settings = pair(topology, esp="adaptive, aes256-sha512, chacha20poly1305, aes128gcm16")
    a, b = establish(daemon, esplanade_pair, settings)
    for end in (a, b):
        costs = end.status()["engine"]["costs"]
        assert set(costs) == {"AES_CBC_256/HMAC_SHA2_512_256", "CHACHA20_POLY1305", "AES_GCM_16_128"}
    (child,) = a.installed()
    chosen = child["encr-alg"]
    chosen_cost = next(cost for name, cost in costs.items() if name.startswith(chosen))
    # Costs within a step of the scale are about equal.
    assert chosen_cost <= 1.1 * min(costs.values()), costs
    spis = child["spi-in"]
    a.command("reload")
    assert a.installed()[0]["spi-in"] == spis
    assert_ping(topology.host_a, topology.b.host4, count=3)
