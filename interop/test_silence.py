"""Silent peers: ESP that a filter drops while IKE passes, and a peer that does not answer at all."""

import pytest
from ends import ENDS, establish, ids, start
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import ping

BLOCK = "table inet block {{\nchain forward {{\ntype filter hook forward priority 0;\n{} drop\n}}\n}}\n"
PAIR = pytest.mark.parametrize("ends", [ENDS[2]], ids=ids)


def lines(end, *words: str) -> list[str]:
    return [line for line in end.logs().splitlines() if all(word in line for word in words)]


@PAIR
# RFC 7296 R169
def test_esp_that_a_filter_drops_is_told_and_goes_in_udp(ends, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    a, _ = establish(daemon, ends, settings)
    topology.wan.run(["nft", "-f", "-"], stdin=BLOCK.format("meta l4proto esp"))

    def check():
        return a.command("status", "--check", check=False)

    def is_told():
        assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.2) == 0
        return check().returncode == 1

    assert check().returncode == 0
    wait_until("the check fails", is_told, timeout=30)
    told = check()
    assert "one-way traffic" in told.stderr and "site/net" in told.stderr and "protocol 50" in told.stderr, told.stderr
    assert ", one-way, TUNNEL" in told.stdout and "1. a filter" in told.stdout, told.stdout
    packet = f"icmp {topology.a.host4} -> {topology.b.host4}"
    explained = a.command("explain", packet).stdout
    assert "packets out, 0 in" in explained, explained
    # UDP encapsulation is tried, and helps.
    wait_until("pings come back", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=0.2))
    wait_until("the check passes", lambda: check().returncode == 0)
    child, = a.installed()
    assert child["encap"] == "yes"
    assert len(lines(a, "WARN", "one-way traffic", "protocol 50", "tries ESP in UDP")) == 1
    assert len(lines(a, "INFO", "packets come in again", "ESP goes in UDP now")) == 1


@PAIR
def test_a_peer_that_does_not_answer_is_told_soon(ends, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    topology.wan.run(["nft", "-f", "-"], stdin=BLOCK.format(f"ip daddr {topology.b.wan4} udp dport 500"))
    a, _ = start(daemon, ends, settings, retransmit_timeout=0.2, retransmit_tries=8)
    wait_until("the log tells", lambda: lines(a, "WARN", "requests unanswered", topology.b.wan4, "UDP port 500"))
    shown = a.command("status").stdout
    assert f"requests unanswered, nothing has come from {topology.b.wan4}" in shown, shown
    packet = f"icmp {topology.a.host4} -> {topology.b.host4}"
    assert "requests unanswered" in a.command("explain", packet).stdout
    assert len(lines(a, "WARN", "requests unanswered")) == 1
    topology.wan.run(["nft", "flush", "ruleset"])
    wait_until("the tunnel is up", a.installed)
