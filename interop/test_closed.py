"""Protected traffic never leaves in the clear: whatever becomes of the process, and before the tunnel is up."""

import contextlib

import pytest
from ends import esplanade_pair, start
from harness.capture import Capture, dissect
from harness.settings import pair
from harness.traffic import Flow, assert_ping, ping

pytestmark = pytest.mark.esplanade_only

INNER = "net 10.2.0.0/16 or net fd00:b::/64"


@pytest.fixture
def site(topology, daemon):
    """Both gateways, up, between routers that know the way to the inner networks: what leaves in the clear arrives."""
    settings = pair(topology)
    settings[0].child()["start_action"] = "start"
    a, b = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    topology.wan.run(["ip", "route", "add", topology.b.lan4, "via", topology.b.wan4])
    topology.wan.run(["ip", "-6", "route", "add", topology.b.lan6, "via", topology.b.wan6])
    return a, b, settings


@contextlib.contextmanager
def traffic(topology, folder):
    """Traffic to the other site all the while; gives a list that has, at the end, the frames that were in the clear."""
    flows = [Flow(topology.host_a, topology.host_b, topology.b.host(version), port=40100 + version, rate=1000)
             for version in (4, 6)]
    wire = Capture(topology, folder / "clear.pcap", INNER)
    clear = []
    try:
        yield clear
    finally:
        for flow in flows:
            flow.abandon()
        clear += dissect(wire.stop())


@pytest.mark.parametrize("action", ["start", "trap", "none"])
@pytest.mark.parametrize("way", ["crash", "stop"])
def test_nothing_is_clear_across_a_restart(way, action, site, topology, folder, needs_capture):
    a, _, settings = site
    with traffic(topology, folder) as clear:
        a.kill() if way == "crash" else a.stop()
        for version in (4, 6):
            assert ping(topology.host_a, topology.b.host(version), count=2, timeout=0.2) == 0
        settings[0].child()["start_action"] = action
        a.start(settings[0])
        if action == "none":
            assert ping(topology.host_a, topology.b.host4, count=2, timeout=0.2) == 0
            a.up()
        a.wait_installed()
        for version in (4, 6):
            assert_ping(topology.host_a, topology.b.host(version))
    assert not clear, f"{len(clear)} frames in the clear"


def test_nothing_is_clear_before_a_command_and_after_down(topology, daemon, folder, needs_capture):
    settings = pair(topology)
    a, _ = start(daemon, esplanade_pair, settings)
    topology.wan.run(["ip", "route", "add", topology.b.lan4, "via", topology.b.wan4])
    topology.wan.run(["ip", "-6", "route", "add", topology.b.lan6, "via", topology.b.wan6])
    with traffic(topology, folder) as clear:
        assert ping(topology.host_a, topology.b.host4, count=2, timeout=0.2) == 0
        a.up()
        a.wait_installed()
        assert_ping(topology.host_a, topology.b.host4)
        a.down()
        assert ping(topology.host_a, topology.b.host4, count=2, timeout=0.2) == 0
        assert not a.sas(), "traffic asks for no SA"
    assert not clear, f"{len(clear)} frames in the clear"


def test_a_gateway_that_stops_open_leaves_nothing(site, topology, folder, needs_capture):
    """`on_stop = open`, by a reload: what the other tests must not see is seen here."""
    a, b, settings = site
    settings[0].gateway["on_stop"] = "open"
    a.load(settings[0])
    with traffic(topology, folder) as clear:
        a.stop()
        assert not topology.gw_a.run(["ip", "route", "show", "table", "220"], check=False).stdout.strip()
        assert "220" not in topology.gw_a.run(["ip", "rule", "show"]).stdout
        ping(topology.host_a, topology.b.host4, count=3, timeout=0.3)
    assert clear
