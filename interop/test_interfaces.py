"""Route-based use: children of every address are bound to interfaces, and routes decide what goes through them."""

import pytest
from ends import esplanade_pair, establish
from harness.capture import Capture
from harness.oracle import esp_packets
from harness.settings import pair
from harness.traffic import assert_ping, ping, transfer

IF_ID, NAME = 42, "ipsec0"
EVERYTHING = "0.0.0.0/0"
ADDRESSES = ("10.255.0.1", "10.255.0.2")


def bind(settings, address, *, if_id=IF_ID, name=NAME, connection="site", **keys):
    """Every address through an interface of its own."""
    settings.gateway.setdefault("interfaces", {})[name] = {"if_id": if_id, "addresses": f"{address}/30"} | keys
    settings.connections[connection].update(if_id_in=if_id, if_id_out=if_id)
    for child in settings.connections[connection]["children"].values():
        child.update(local_ts=EVERYTHING, remote_ts=EVERYTHING)


def route(space, destination, device=NAME, verb="add"):
    space.run(["ip", "route", verb, destination, "dev", device])


@pytest.mark.esplanade_only
# RFC 4301 R10
def test_routes_decide_what_goes_through(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    for one, address in zip(settings, ADDRESSES):
        bind(one, address)
    a, b = establish(daemon, esplanade_pair, settings)

    # Nothing is led there yet, whatever the selectors say.
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    assert_ping(topology.gw_a, topology.b.wan4)
    assert topology.gw_a.run(["ip", "route", "show", "table", "220"], check=False).stdout == ""
    assert_ping(topology.gw_a, ADDRESSES[1])

    route(topology.gw_a, topology.b.lan4)
    route(topology.gw_b, topology.a.lan4)
    wire = Capture(topology, folder / "wire.pcap")
    assert_ping(topology.host_a, topology.b.host4)
    assert_ping(topology.gw_a, topology.b.wan4)
    assert len(esp_packets(wire.stop())) == 6, "the pings that the route leads into the tunnel"
    transfer(topology.host_a, topology.host_b, topology.b.host4)
    transfer(topology.host_b, topology.host_a, topology.a.host4)

    route(topology.gw_a, topology.b.lan4, verb="del")
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    route(topology.gw_a, topology.b.lan4)
    a.command("rekey", "net")
    assert_ping(topology.host_a, topology.b.host4)
