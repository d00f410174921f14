"""Policies for every address: the other end's networks are `0.0.0.0/0` or `::/0`, or the own ones are."""

from ipaddress import ip_address, ip_network

import pytest
from ends import esplanade_pair, start
from harness.capture import Capture, frames
from harness.esplanade import binary
from harness.names import SERVER, Names
from harness.namespaces import SECOND_A4, SECOND_LAN_A4
from harness.process import run, wait_until
from harness.settings import pair
from harness.traffic import assert_ping, ping

pytestmark = pytest.mark.esplanade_only

EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}


@pytest.mark.parametrize("version", [4, 6])
def test_a_hub_for_every_address_answers_from_one_of_its_own(version, topology, daemon):
    """Its own packets to a spoke come from an address that the spoke can answer to: neither loopback nor link-local."""
    settings = pair(topology, inner=version)
    settings[0].child()["start_action"] = "start"
    settings[1].child()["local_ts"] = EVERYTHING[version]
    a, b = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    b.wait_installed()
    # The lower MTU makes the hub's kernel send an error into the tunnel.
    topology.gw_b.run(["ip", "link", "set", "lan", "mtu", "1300"])
    far, hub = topology.b.host(version), topology.b.gw4 if version == 4 else topology.b.gw6
    assert_ping(topology.host_a, far)
    assert_ping(topology.gw_b, topology.a.host(version))
    large = topology.host_a.run(["ping", "-M", "do", "-c", "3", "-i", ".2", "-W", "1", "-s", "1320", far], check=False)
    assert "mtu" in large.stdout + large.stderr, large.stdout
    second = topology.host_a.run(["ping", "-c", "1", "-W", "1", "-t", "2", far], check=False).stdout
    assert f"From {hub}" in second and ("exceeded" in second or "Time" in second), second


def branch(topology, version=4, **child):
    """A's network goes through the tunnel as a whole."""
    settings = pair(topology, inner=version)
    lan = topology.a.lan(version)
    settings[0].child().update({"local_ts": lan, "remote_ts": EVERYTHING[version]} | child)
    settings[1].child().update(local_ts=EVERYTHING[version], remote_ts=lan)
    if version == 4:
        topology.wan.run(["ip", "route", "add", SECOND_LAN_A4, "via", topology.a.wan4])
    topology.wan.run(["ip", "route", "add", lan, "via", topology.a.wan(version)])
    return settings


def reachable(topology, version):
    """What no policy takes: how many pings come back."""
    lan = topology.a.gw4 if version == 4 else topology.a.gw6
    router = "172.16.1.1" if version == 4 else "fd00:1::1"
    ways = {"LAN to gateway": (topology.host_a, lan, {}),
            "gateway to LAN": (topology.gw_a, topology.a.host(version), {}),
            "outside to gateway": (topology.wan, topology.a.wan(version), {}),
            "gateway to outside": (topology.gw_a, router, {})}
    if version == 4:
        ways["other LAN to outside"] = (topology.host_a, router, {"source": SECOND_A4})
    return {way: ping(space, target, count=1, timeout=1, **options) for way, (space, target, options) in ways.items()}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("action", ["start", "none"])
def test_what_a_full_tunnel_does_not_name_stays_reachable(action, version, topology, daemon, folder, needs_capture):
    """Whether the tunnel is up, down or its gateway gone; and nothing of the network is in the clear."""
    settings = branch(topology, version, start_action=action)
    a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
    b.start(settings[1])
    a.write(settings[0])
    said = run([binary(), "check", a.config]).stderr
    assert "`site/net` is for every destination" in said and "mode = pass" in said, said
    wire = Capture(topology, folder / "clear.pcap", f"net {topology.a.lan(version)}")
    a.start(settings[0])
    assert "`site/net` is for every destination" in a.logs()
    all_ways = dict.fromkeys(reachable(topology, version), 1)

    def held():
        target = "172.16.2.1" if version == 4 else "fd00:2::1"
        return (ping(topology.host_a, target, count=1, timeout=0.3),
                ping(topology.wan, topology.a.host(version), count=1, timeout=0.3))

    if action == "none":
        assert reachable(topology, version) == all_ways
        assert held() == (0, 0)
        a.up()
    a.wait_installed()
    assert_ping(topology.host_a, topology.b.host(version))
    assert reachable(topology, version) == all_ways
    # The gateway's own errors about the tunnel's packets go into the tunnel: they quote them.
    topology.gw_a.run(["ip", "link", "set", "lan", "mtu", "1300"])
    large = ["ping", "-M", "do", "-c", "3", "-i", ".2", "-W", "1", "-s", "1320", topology.a.host(version)]
    assert "mtu" in "".join(topology.host_b.run(large, check=False).stdout.lower().split())
    a.down()
    assert reachable(topology, version) == all_ways
    a.stop()
    assert reachable(topology, version) == all_ways
    assert held() == (0, 0)
    from_network = [frame for frame in frames(wire.stop()) if not came_from_outside(frame, topology, version)]
    assert not from_network, f"{len(from_network)} frames in the clear"


def came_from_outside(frame, topology, version):
    """The pings that must not come in are on the wire."""
    source = frame[26:30] if version == 4 else frame[22:38]
    return ip_address(source) not in ip_network(topology.a.lan(version))


def test_everything_to_everything_leaves_the_networks_of_the_host(topology, daemon):
    """A policy for everything covers these networks and does not name them. The peer narrows it."""
    settings = pair(topology, inner=4)
    settings[1].child().update(local_ts=EVERYTHING[4], remote_ts=EVERYTHING[4])
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert_ping(topology.host_b, topology.a.host4)
    assert_ping(topology.host_b, topology.b.gw4)
    assert_ping(topology.gw_b, topology.b.host4)
    # A network that comes later stays reachable too.
    topology.host_b.run(["ip", "address", "add", "10.99.0.2/24", "dev", "lan"])
    topology.gw_b.run(["ip", "address", "add", "10.99.0.1/24", "dev", "lan"])
    wait_until("the new network is reachable", lambda: ping(topology.gw_b, "10.99.0.2", count=1, timeout=0.5) == 1)


def test_what_a_gateway_asks_takes_no_way_through_its_own_tunnel(topology, daemon, folder):
    """The peer has a name, and the name server is outside: the answer is what brings the tunnel up."""
    names = Names(topology, folder)
    names.serve(b_gateway_test=topology.b.wan4)
    settings = branch(topology, start_action="start")
    settings[0].connections["site"]["remote_addrs"] = "b.gateway.test"
    a, _ = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    assert names.questions() > 0
    assert_ping(topology.host_a, topology.b.host4)


def test_a_host_that_sends_everything_keeps_what_its_tunnel_waits_for(topology, daemon, folder):
    """Its own address is the policy's: packets without a source of their own go into the tunnel, unless a child passes
    them."""
    names = Names(topology, folder)
    names.serve(b_gateway_test=topology.b.wan4)
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["remote_addrs"] = "b.gateway.test"
    settings[0].child().update(local_ts=topology.a.gw4, remote_ts=EVERYTHING[4], start_action="start")
    settings[0].connections["site"]["children"]["names"] = {
        "local_ts": EVERYTHING[4], "remote_ts": SERVER, "mode": "pass", "start_action": "trap"}
    settings[1].child().update(local_ts=EVERYTHING[4], remote_ts=topology.a.gw4)
    a, b = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    assert "questions to name servers too" in a.logs()
    before = int(a.installed()[0]["packets-out"])
    assert_ping(topology.gw_a, topology.b.host4)
    assert_ping(topology.gw_a, topology.b.wan4)
    assert int(a.installed()[0]["packets-out"]) == before + 6
    # What names another source, or stays on a link, goes on as before.
    assert_ping(topology.gw_a, "172.16.1.1")
    assert_ping(topology.wan, topology.a.wan4)


@pytest.mark.parametrize("local, translation", [("{wan}/32", "masquerade"), ("{lan}", "snat ip to {gateway}")])
def test_a_source_that_translation_gives_is_not_in_the_clear(local, translation, topology, daemon, folder, needs_capture):
    """Rules and routes see the source before the gateway's own translation of addresses, the last chain behind it."""
    names = {"wan": topology.a.wan4, "lan": topology.a.lan(4), "gateway": topology.a.gw4}
    settings = pair(topology, inner=4)
    settings[0].child().update(local_ts=local.format(**names), start_action="start")
    settings[1].child()["remote_ts"] = local.format(**names)
    a, b = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    rule = translation.format(**names)
    topology.gw_a.run(["nft", "add table ip translation; add chain ip translation post "
                       "{ type nat hook postrouting priority 100; }; add rule ip translation post "
                       f"ip saddr {SECOND_LAN_A4} ip daddr {topology.b.lan(4)} {rule}"])
    wire = Capture(topology, folder / "translated.pcap", "icmp")
    ping(topology.host_a, topology.b.host4, source=SECOND_A4, timeout=0.5)
    clear = list(frames(wire.stop()))
    assert not clear, clear
