"""Route-based use: children of every address are bound to interfaces, and routes decide what goes through them."""

import json

import pytest
from ends import esplanade_pair, establish, start, with_peer
from harness.capture import Capture
from harness.namespaces import SECOND_A4, SECOND_B4, SECOND_LAN_A4, SECOND_LAN_B4
from harness.oracle import esp_packets
from harness.process import wait_until
from harness.settings import add_second, pair
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


def written(space, device):
    """How many packets the gateway has written to it."""
    (link,) = json.loads(space.run(["ip", "-s", "-j", "link", "show", "dev", device]).stdout)
    return link["stats64"]["rx"]["packets"]


@pytest.mark.esplanade_only
# RFC 4301 R10
def test_routes_decide_what_goes_through(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    for one, address in zip(settings, ADDRESSES):
        bind(one, address)
    a, b = establish(daemon, esplanade_pair, settings)

    assert a.installed()[0]["if-id-in"] == a.installed()[0]["if-id-out"] == f"{IF_ID:08x}"
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


@pytest.mark.esplanade_only
def test_a_policy_beside_it_works_as_ever(topology, daemon):
    """Addresses of the second connection go through the common device, by the gateway's own routes."""
    settings = pair(topology, inner=4)
    add_second(*settings)
    for one, address in zip(settings, ADDRESSES):
        bind(one, address)
    a, b = establish(daemon, esplanade_pair, settings)
    a.up("second-net")
    b.wait_installed("second")
    route(topology.gw_a, topology.b.lan4)
    route(topology.gw_b, topology.a.lan4)

    assert_ping(topology.host_a, SECOND_B4, source=SECOND_A4)
    assert (written(topology.gw_b, "esp0"), written(topology.gw_b, NAME)) == (3, 0)
    assert_ping(topology.host_a, topology.b.host4, source=topology.a.host4)
    assert (written(topology.gw_b, "esp0"), written(topology.gw_b, NAME)) == (3, 3)
    # The second connection has no policy for these, and nothing leads them to the interface.
    assert ping(topology.host_a, SECOND_B4, source=topology.a.host4, count=1, timeout=0.5) == 0
    a.down("second")
    assert_ping(topology.host_a, topology.b.host4, source=topology.a.host4)


@pytest.mark.esplanade_only
def test_each_interface_has_its_policies(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    add_second(*settings)
    for number, one in enumerate(settings):
        one.gateway["workers"] = 2
        bind(one, ADDRESSES[number])
        bind(one, f"10.255.1.{number + 1}", if_id=43, name="ipsec1", connection="second", mtu=1300)
    a, b = establish(daemon, esplanade_pair, settings)
    a.up("second-net")
    b.wait_installed("second")
    spis = {name: int(a.installed(name)[0]["spi-out"], 16) for name in ("site", "second")}
    for space, first, second in ((topology.gw_a, topology.b.lan4, SECOND_LAN_B4),
                                 (topology.gw_b, topology.a.lan4, SECOND_LAN_A4)):
        route(space, first)
        route(space, second, "ipsec1")
    for name, target, source in (("site", topology.b.host4, topology.a.host4), ("second", SECOND_B4, SECOND_A4)):
        wire = Capture(topology, folder / f"{name}.pcap")
        assert_ping(topology.host_a, target, source=source)
        seen = {packet.spi for packet in esp_packets(wire.stop())}
        assert spis[name] in seen and len(seen) == 2, "one SA for each direction"
    assert (written(topology.gw_b, NAME), written(topology.gw_b, "ipsec1")) == (3, 3)
    # Its MTU is its own, and the sender is told through it.
    before = written(topology.gw_a, "esp0")
    assert_ping(topology.host_a, SECOND_B4, source=SECOND_A4, size=1272)
    transfer(topology.host_a, topology.host_b, SECOND_B4)
    assert written(topology.gw_a, "esp0") == before == 0


@pytest.mark.esplanade_only
def test_senders_are_told_through_the_interface(topology, daemon):
    """What a route leads to the interface beside its policies is discarded."""
    settings = pair(topology, inner=4)
    bind(settings[0], ADDRESSES[0])
    settings[0].child().update(local_ts=topology.a.lan4, remote_ts=topology.b.lan4)
    settings[0].gateway["icmp_unreachable"] = "yes"
    establish(daemon, esplanade_pair, settings)
    route(topology.gw_a, topology.b.lan4)
    route(topology.gw_a, "10.3.0.0/16")
    assert_ping(topology.host_a, topology.b.host4, source=topology.a.host4)
    count = written(topology.gw_a, NAME)
    assert count == 3
    assert ping(topology.host_a, "10.3.0.1", count=1, timeout=0.5) == 0
    assert (written(topology.gw_a, "esp0"), written(topology.gw_a, NAME)) == (0, count + 1)


@with_peer
@pytest.mark.esplanade_only
def test_the_peer_need_not_know(ends, topology, daemon):
    """strongSwan has ordinary policies, which narrow those of the interface."""
    settings = pair(topology, inner=4)
    index = ends.index("esplanade")
    bind(settings[index], ADDRESSES[index])
    establish(daemon, ends, settings)
    space, remote = ((topology.gw_a, topology.b.lan4), (topology.gw_b, topology.a.lan4))[index]
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    route(space, remote)
    assert_ping(topology.host_a, topology.b.host4)
    assert_ping(topology.host_b, topology.a.host4)
    assert (written(space, "esp0"), written(space, NAME) > 0) == (0, True)


@pytest.mark.esplanade_only
def test_a_new_interface_takes_a_restart(topology, daemon):
    settings = pair(topology, inner=4)
    a, _ = establish(daemon, esplanade_pair, settings)
    changed = settings[0].copy()
    bind(changed, ADDRESSES[0])
    a.write(changed)
    refused = a.command("reload", check=False)
    assert refused.returncode != 0
    assert "site/net" in refused.stderr and "restart" in refused.stderr, refused.stderr
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_a_device_that_was_there_before_stays(topology, daemon):
    """And its routes with it, so that nothing goes another way while the gateway is down."""
    settings = pair(topology, inner=4)
    for one, address, space, remote in zip(settings, ADDRESSES, (topology.gw_a, topology.gw_b),
                                           (topology.b.lan4, topology.a.lan4)):
        bind(one, address)
        space.run(["ip", "tuntap", "add", NAME, "mode", "tun"])
        space.run(["ip", "link", "set", NAME, "up"])
        route(space, remote)
    settings[0].child()["start_action"] = "trap"
    a, b = start(daemon, esplanade_pair, settings)
    wait_until("traffic brings it up", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1), timeout=15)
    a.kill()
    shown = topology.gw_a.run(["ip", "route", "get", topology.b.host4], check=False).stdout
    assert NAME in shown, shown
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    a.start(settings[0])
    wait_until("and again", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1), timeout=15)


@pytest.mark.parametrize("encap", [False, True], ids=["esp", "udp"])
@pytest.mark.esplanade_only
def test_a_route_that_takes_the_tunnel_into_itself_does_no_harm(encap, topology, daemon):
    settings = pair(topology, inner=4, encap=encap)
    for one, address in zip(settings, ADDRESSES):
        bind(one, address)
        # IKE is led there too, and would be counted.
        one.connections["site"]["path_mtu_probe"] = "no"
    a, _ = establish(daemon, esplanade_pair, settings)
    route(topology.gw_a, topology.b.lan4)
    route(topology.gw_b, topology.a.lan4)
    assert_ping(topology.host_a, topology.b.host4)
    route(topology.gw_a, topology.b.wan4)
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    assert a.counter("drops.nested-too-deep") == 1, "where it would go round for ever"
    route(topology.gw_a, topology.b.wan4, verb="del")
    assert_ping(topology.host_a, topology.b.host4)
    # In the gateway's own table such a route is harmless.
    topology.gw_a.run(["ip", "route", "add", "default", "dev", NAME, "table", "220"])
    assert_ping(topology.gw_a, topology.b.host4)


@with_peer
@pytest.mark.parametrize("if_id", [str(IF_ID), "%unique"])
def test_an_interface_is_made_for_a_number(ends, if_id, topology, daemon):
    """strongSwan's own way to write it, without a section for the interface."""
    settings = pair(topology, inner=4)
    at, space = ends.index("esplanade"), (topology.gw_a, topology.gw_b)[ends.index("esplanade")]
    settings[at].connections["site"].update(if_id_in=if_id, if_id_out=if_id)
    a, b = establish(daemon, ends, settings)
    device = f"esp{int((a, b)[at].installed()[0]['if-id-out'], 16)}"
    # Nothing is led there yet.
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    route(space, (topology.b, topology.a)[at].lan4, device)
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_the_gateway_makes_devices_that_no_section_names(topology, daemon, folder):
    """The file is one of strongSwan: a number at one end, `%unique` at the other."""
    settings = pair(topology, inner=4)
    calls, script = folder / "calls", folder / "script.sh"
    script.write_text(f"#!/bin/sh\nenv | grep ^PLUTO_IF_ID >> {calls}\n")
    script.chmod(0o755)
    for one, value in zip(settings, (IF_ID, "%unique")):
        one.connections["site"].update(if_id_in=value, if_id_out=value)
        one.child().update(local_ts=EVERYTHING, remote_ts=EVERYTHING)
    settings[1].child()["updown"] = str(script)
    a, b = establish(daemon, esplanade_pair, settings)
    unique = int(b.installed()[0]["if-id-in"], 16)
    assert a.installed()[0]["if-id-out"] == f"{IF_ID:08x}"
    assert unique >= 0x80000000
    wait_until("the call of the script", lambda: calls.exists() and "OUT" in calls.read_text())
    assert set(calls.read_text().split()) == {f"PLUTO_IF_ID_IN={unique}", f"PLUTO_IF_ID_OUT={unique}"}

    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    route(topology.gw_a, topology.b.lan4, f"esp{IF_ID}")
    route(topology.gw_b, topology.a.lan4, f"esp{unique}")
    assert_ping(topology.host_a, topology.b.host4)
    assert written(topology.gw_b, f"esp{unique}") == 3
    # The same file gives the same device.
    b.command("reload")
    assert_ping(topology.host_a, topology.b.host4)
    assert int(b.installed()[0]["if-id-in"], 16) == unique
