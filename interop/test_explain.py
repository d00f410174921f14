"""`esplanade explain` says what the running gateway then does."""

import json

import pytest
from ends import esplanade_pair, start
from harness.capture import Capture
from harness.oracle import esp_packets
from harness.settings import pair
from harness.traffic import assert_ping
from test_pmtu import PATH_MTU, longest_inner, narrow, probe


def explain(end, packet, *options):
    report = json.loads(end.command("explain", packet, *options, "--json").stdout)
    return report, " ".join(step["text"] for step in report["steps"])


@pytest.mark.esplanade_only
@pytest.mark.parametrize("encap", [False, True], ids=["raw", "udp"])
def test_it_says_what_happens_then(encap, topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4, encap=encap)
    for one in settings:
        one.connections["site"]["children"]["net"]["start_action"] = "trap"
    a, b = start(daemon, esplanade_pair, settings)
    there = f"icmp {topology.a.host4} -> {topology.b.host4}"

    report, text = explain(a, there)
    assert (report["decision"], report.get("hops")) == ("protect", None)
    assert "no-sa" in text and "it asks for one" in text
    assert not a.sas(), "explaining has asked for nothing"
    report, text = explain(b, there, "--in")
    assert report["decision"] == "discard" and "no SA of site/net is up" in text

    a.up()
    child_a, child_b = a.wait_installed(), b.wait_installed()
    report, _ = explain(a, there, "--length", "1000", "--dont-fragment")
    (hop,) = report["hops"]
    assert (hop["spi"], hop["state"]) == (child_a["spi-out"], "INSTALLED")
    assert (hop["udp_encap"], hop["path_mtu"], hop["outcome"]) == (encap, 1500, "sent")
    wire = Capture(topology, folder / "wire.pcap")
    assert_ping(topology.host_a, topology.b.host4, size=1000 - 28, count=1)
    first = esp_packets(wire.stop())[0]
    assert f"{first.spi:08x}" == hop["spi"]
    assert len(first.frame) == hop["outer_len"]

    report, _ = explain(b, there, "--in")
    assert [(hop["spi"], hop["outcome"]) for hop in report["hops"]] == [(child_b["spi-in"], "accepted")]
    report, text = explain(a, f"udp {topology.a.host4}:1 -> 203.0.113.9:2")
    assert report["decision"] == "discard" and "no-policy" in text

    narrow(topology)
    fits = longest_inner(4, encap)
    # The first packets teach the gateway, and then their sender, what the path takes.
    assert probe(topology.host_a, topology.host_b, topology.b.host4, fits + 1)[1] == fits
    report, text = explain(a, there, "--length", str(fits + 1), "--dont-fragment")
    (hop,) = report["hops"]
    assert (hop["path_mtu"], hop["inner_mtu"], hop["outcome"]) == (PATH_MTU, fits, "too-big")
    assert "as learned" in text and f"tells its sender {fits} bytes" in text
    report, _ = explain(a, there, "--length", str(fits), "--dont-fragment")
    assert report["hops"][0]["outcome"] == "sent"

    a.down()
    b.wait_gone()
    assert "no-sa" in explain(a, there)[1]


@pytest.mark.esplanade_only
@pytest.mark.parametrize("version", [4, 6])
def test_it_sees_what_rules_and_routes_look_at(version, topology, daemon, needs_capture):
    """The kernel chooses a route by the source, the way in, the ports and the DSCP too."""
    settings = pair(topology, inner=version)
    for one in settings:
        one.connections["site"]["children"]["net"]["start_action"] = "trap"
    a, _ = start(daemon, esplanade_pair, settings)
    gateway = topology.gw_a
    own, host = (topology.a.gw4, topology.a.host4) if version == 4 else (topology.a.gw6, topology.a.host6)
    far = topology.b.host(version)
    ip = ["ip", f"-{version}"]

    def decision(packet, *options):
        report, text = explain(a, packet, *options)
        return report["decision"], text

    def end(address, port):
        return f"{address}:{port}" if version == 4 else f"[{address}]:{port}"

    web = f"tcp {end(host, 40000)} -> {end(far, 443)}"
    ssh = f"tcp {end(host, 40000)} -> {end(far, 22)}"
    ours = f"tcp {end(own, 40000)} -> {end(far, 443)}"
    for packet in (web, ssh, ours):
        assert decision(packet)[0] == "protect"

    # Each rule leads its packets to the main table, before the gateway's rule.
    for rule, past, still in [
        (["iif", "lan"], [web, ssh], [ours]),
        (["from", host], [web, ssh], [ours]),
        (["ipproto", "6", "dport", "443"], [web, ours], [ssh]),
    ]:
        gateway.run([*ip, "rule", "add", "priority", "100", *rule, "lookup", "main"])
        for packet in past:
            assert decision(packet)[0] == "elsewhere", (rule, packet)
            assert "out of wan" in decision(packet)[1]
        for packet in still:
            assert decision(packet)[0] == "protect", (rule, packet)
        gateway.run([*ip, "rule", "del", "priority", "100", *rule, "lookup", "main"])
    if version == 4:
        gateway.run([*ip, "rule", "add", "priority", "100", "dsfield", "0x10", "lookup", "main"])
        assert decision(web)[0] == "protect"
        assert decision(web, "--dscp", "4")[0] == "elsewhere"
        gateway.run([*ip, "rule", "del", "priority", "100", "dsfield", "0x10", "lookup", "main"])

    forwarding = "ipv4__conf__lan__forwarding" if version == 4 else "ipv6__conf__all__forwarding"
    gateway.sysctl(**{forwarding: 0})
    assert decision(web)[0] == "elsewhere" and "does not forward" in decision(web)[1]
    assert decision(ours)[0] == "protect", "its own packets need no forwarding"
    forced = "ipv6/conf/lan/force_forwarding"
    if version == 6 and gateway.run(["test", "-e", f"/proc/sys/net/{forced}"], check=False).returncode == 0:
        gateway.sysctl(**{forced: 1})
        assert decision(web)[0] == "protect", "the kernel forwards from this interface alone"
    gateway.sysctl(**{forwarding: 1})
    assert decision(web)[0] == "protect"
