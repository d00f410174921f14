"""Children that are told apart by firewall marks: `mark_in`, `mark_out`, `set_mark_in`."""

import json

import pytest
from ends import esplanade_pair, establish, start
from harness.capture import Capture, frames
from harness.esplanade import binary
from harness.namespaces import Namespace
from harness.process import run, wait_until
from harness.settings import PSK, pair
from harness.traffic import assert_ping, ping

SITE = "10.2.0.0/16"
HOST = "10.2.0.2"
# Host A's addresses: the rules of the administrator mark what comes from the first two.
FIRST, SECOND, UNMARKED = "10.1.0.2", "10.1.0.3", "10.1.0.4"
ID_C = "c.esplanade.test"
WAN_C = "172.16.4.2"


@pytest.fixture
def third_site(topology):
    """A gateway gw_c with a host behind it, whose network is that of host B."""
    prefix = topology.gw_a.name.removesuffix("gw_a")
    for role in ("gw_c", "host_c"):
        topology.spaces[role] = Namespace(prefix + role)
    gw, host, wan = (topology.spaces[role].name for role in ("gw_c", "host_c", "wan"))
    lines = [f"netns add {gw}", f"netns add {host}",
             f"link add to_c netns {wan} type veth peer name wan netns {gw}",
             f"link add lan netns {gw} type veth peer name lan netns {host}"]
    run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
    setup = {
        "gw_c": ["link set lo up", "link set wan up", "link set lan up", f"address add {WAN_C}/24 dev wan",
                 "address add 10.2.0.1/16 dev lan", "route add default via 172.16.4.1"],
        "host_c": ["link set lo up", "link set lan up", f"address add {HOST}/16 dev lan",
                   "route add default via 10.2.0.1"],
        # What leaves in the clear passes the captures.
        "wan": ["link set to_c up", "address add 172.16.4.1/24 dev to_c", f"route add {SITE} via 172.16.2.2"],
        "host_a": [f"address add {address}/16 dev lan" for address in (SECOND, UNMARKED)],
    }
    for role, lines in setup.items():
        space = topology.spaces[role]
        if role in ("gw_c", "host_c"):
            space.sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0, ipv4__conf__default__rp_filter=0)
        run(["ip", "-n", space.name, "-batch", "-"], stdin="\n".join(lines) + "\n")
    return topology


def administrate(space, marks, given=()):
    """The administrator's rules: marks by source address, and counters of what comes from the other sites."""
    rules = "".join(f'iifname "lan" ip saddr {source} meta mark set {mark}\n' for source, mark in marks.items())
    counters = "".join(f"counter mark{mark} {{ }}\n" for mark in given)
    count = "".join(f"ip saddr {SITE} meta mark {mark} counter name mark{mark}\n" for mark in given)
    space.run(["nft", "-f", "-"], stdin=(
        f"table inet admin\ndelete table inet admin\ntable inet admin {{\n{counters}"
        f"chain marked {{ type filter hook prerouting priority -150;\n{rules}}}\n"
        f"chain counted {{ type filter hook prerouting priority -300;\n{count}}}\n}}\n"))


def counted(space, mark):
    listed = json.loads(space.run(["nft", "-j", "list", "counters", "table", "inet", "admin"]).stdout)
    counters = [entry["counter"] for entry in listed["nftables"] if "counter" in entry]
    return next(one["packets"] for one in counters if one["name"] == f"mark{mark}")


def written(space, device):
    """How many packets the gateway has written to it."""
    (link,) = json.loads(space.run(["ip", "-s", "-j", "link", "show", "dev", device]).stdout)
    return link["stats64"]["rx"]["packets"]


def devices(space):
    return {link["ifname"] for link in json.loads(space.run(["ip", "-j", "link"]).stdout)
            if link["ifname"].startswith("espm")}


def mark_rules(space):
    """The rules for marks, and the routes of their tables."""
    shown = json.loads(space.run(["ip", "-j", "rule", "show"]).stdout)
    rules = [rule for rule in shown if rule["priority"] == 219]
    routes = [space.run(["ip", "route", "show", "table", str(rule["table"])], check=False).stdout for rule in rules]
    return [(int(rule["fwmark"], 16), routes) for rule, routes in zip(rules, routes)]


def two_peers(topology):
    """Settings of A, which tells B and C by marks, of B and of C, which know no marks."""
    first, second = pair(topology, inner=4)
    second_a, third = pair(topology, inner=4)
    first.child().update(mark_in="10", mark_out="10", local_ts="10.1.0.0/16", remote_ts=SITE)
    other = second_a.connections["site"]
    other["remote_addrs"] = WAN_C
    other["remote"]["id"] = ID_C
    other["children"] = {"other-net": other["children"]["net"] | {
        "mark_in": "20/0xffffffff", "set_mark_in": "%same", "mark_out": "21", "remote_ts": SITE}}
    first.connections["other"] = other
    connection = third.connections["site"]
    connection["local_addrs"] = WAN_C
    connection["local"]["id"] = ID_C
    connection["children"] = {"other-net": connection["children"]["net"]}
    for one in (first, third):
        one.secrets["ike-c"] = {"id-a": "a.esplanade.test", "id-c": ID_C, "secret": PSK}
    return first, second, third


@pytest.mark.parametrize("kind", ["esplanade", "charon"])
def test_two_peers_with_the_same_network(kind, third_site, daemon, folder, needs_capture):
    topology = third_site
    settings = two_peers(topology)
    a, b, c = daemon("esplanade", "a"), daemon(kind, "b"), daemon(kind, "c")
    for one, own in zip((b, c, a), (*settings[1:], settings[0])):
        one.start(own)
    administrate(topology.gw_a, {FIRST: 10, SECOND: 21}, given=(10, 20))
    a.up()
    a.up("other-net")
    b.wait_installed()
    c.wait_installed()
    assert {one["mark-out"] for one in a.installed() + a.installed("other")} == {"0000000a", "00000015"}

    def opened(name):
        return int(a.installed(name)[0]["packets-in"])

    def sealed():
        return sum(int(a.installed(name)[0]["packets-out"]) for name in ("site", "other"))

    assert_ping(topology.host_a, HOST, source=FIRST)
    assert (opened("site"), opened("other")) == (3, 0)
    assert (counted(topology.gw_a, 10), counted(topology.gw_a, 20)) == (3, 0)
    assert_ping(topology.host_a, HOST, source=SECOND)
    assert (opened("site"), opened("other")) == (3, 3)
    assert (counted(topology.gw_a, 10), counted(topology.gw_a, 20)) == (3, 3)
    assert devices(topology.gw_a) == {"espm10", "espm21"}

    # What has no mark is for neither.
    wire = Capture(topology, folder / "clear.pcap", f"src host {UNMARKED}")
    ping(topology.host_a, HOST, source=UNMARKED, count=1, timeout=0.5)
    assert len(list(frames(wire.stop()))) == 1
    assert sealed() == 6

    # From the other side: the answer finds the way back by the mark of its source.
    assert_ping(topology.host_b, FIRST)
    assert_ping(topology.spaces["host_c"], SECOND)
    a.command("rekey", "net")
    assert_ping(topology.host_a, HOST, source=FIRST)
    # Marks of a child that is down keep their packets in.
    a.down("other")
    wire = Capture(topology, folder / "held.pcap", f"src host {SECOND}")
    assert ping(topology.host_a, HOST, source=SECOND, count=1, timeout=0.5) == 0
    assert list(frames(wire.stop())) == []
    assert_ping(topology.host_a, HOST, source=FIRST)


@pytest.mark.esplanade_only
def test_what_is_held_asks_for_an_sa(topology, daemon, folder, needs_capture):
    """While the child is down, its marked packets go nowhere; with `trap` they bring it up."""
    topology.wan.run(["ip", "route", "add", SITE, "via", topology.b.wan4])
    settings = pair(topology, inner=4)
    settings[0].child().update(mark_in="8", mark_out="8/0xff")
    a, _ = start(daemon, esplanade_pair, settings)
    administrate(topology.gw_a, {FIRST: "0x108"}, given=(8,))
    wire = Capture(topology, folder / "held.pcap", f"src host {FIRST}")
    assert ping(topology.host_a, HOST, count=2, timeout=0.5) == 0
    assert list(frames(wire.stop())) == []
    assert a.installed() == []

    settings[0].child()["start_action"] = "trap"
    a.load(settings[0])
    wait_until("traffic brings it up", lambda: ping(topology.host_a, HOST, count=1, timeout=1), timeout=15)
    before = counted(topology.gw_a, 8)
    assert_ping(topology.host_a, HOST)
    assert counted(topology.gw_a, 8) == before + 3


@pytest.mark.esplanade_only
@pytest.mark.parametrize("word", ["%unique", "%unique-dir"])
def test_a_child_gets_numbers_of_its_own(word, topology, daemon, folder):
    calls, script = folder / "calls", folder / "script.sh"
    script.write_text(f"#!/bin/sh\nenv | grep -E '^PLUTO_(MARK|IF_ID|INTERFACE)' >> {calls}\n")
    script.chmod(0o755)
    settings = pair(topology, inner=4)
    settings[0].child().update(mark_in=word, mark_out=word, updown=str(script))
    a, _ = establish(daemon, esplanade_pair, settings)
    wait_until("the call of the script", lambda: calls.exists() and "OUT" in calls.read_text())
    told = dict(line.split("=", 1) for line in calls.read_text().split())
    marks = [int(told[f"PLUTO_MARK_{way}"].removesuffix("/0xffffffff")) for way in ("IN", "OUT")]
    assert told == {"PLUTO_MARK_IN": f"{marks[0]}/0xffffffff", "PLUTO_MARK_OUT": f"{marks[1]}/0xffffffff",
                    "PLUTO_INTERFACE": f"espm{marks[1]}"}
    assert (marks[0] == marks[1]) == (word == "%unique")
    (shown,) = a.installed()
    assert (shown["mark-in"], shown["mark-mask-in"]) == (f"{marks[0]:08x}", "ffffffff")
    assert "if-id-in" not in shown

    administrate(topology.gw_a, {FIRST: marks[1]}, given=marks[:1])
    assert_ping(topology.host_a, HOST)
    assert counted(topology.gw_a, marks[0]) == 3
    # The same file gives the same numbers.
    a.command("reload")
    assert_ping(topology.host_a, HOST)


@pytest.mark.esplanade_only
def test_a_reload_follows_the_marks(topology, daemon, folder, needs_capture):
    topology.wan.run(["ip", "route", "add", SITE, "via", topology.b.wan4])
    settings = pair(topology, inner=4)
    for one in settings:
        one.gateway["workers"] = 2
    gw_a = topology.gw_a
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, HOST)
    assert devices(gw_a) == set()

    # The kernel would not find the way back to a source without the mark.
    gw_a.sysctl(ipv4__conf__default__rp_filter=1)

    def load(**marks):
        changed = settings[0].copy()
        changed.child().update(marks)
        a.load(changed)
        a.up()
        return changed

    # A mark comes, gets another mask, another value, and goes.
    for mark, device in (("10/0xff", "espm10"), ("10", "espm10"), ("0x0b", "espm11")):
        load(mark_in=mark, mark_out=mark)
        value = int(device.removeprefix("espm"))
        wait_until("the former device is gone", lambda: devices(gw_a) == {device})
        ((led, routes),) = mark_rules(gw_a)
        assert led == value and f"{SITE} dev {device}" in routes and f"unreachable {SITE}" in routes
        administrate(gw_a, {FIRST: value}, given=(value,))
        assert_ping(topology.host_a, HOST)
        assert counted(gw_a, value) == 3
        assert_ping(topology.host_b, FIRST)
    administrate(gw_a, {FIRST: 10})
    wire = Capture(topology, folder / "former.pcap", f"src host {FIRST}")
    ping(topology.host_a, HOST, count=1, timeout=0.5)
    assert len(list(frames(wire.stop()))) == 1, "the former mark means nothing now"
    load()
    assert_ping(topology.host_a, HOST)
    wait_until("nothing is left", lambda: devices(gw_a) == set() and mark_rules(gw_a) == [])
    wait_until("no name is left", lambda: "espm" not in gw_a.run(["nft", "list", "table", "inet", "esplanade-220"]).stdout)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("key, device, given", [("mark_in", "espmi7", 7), ("mark_out", "espm7", 0)])
def test_one_mark_is_enough(key, device, given, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child()[key] = "7"
    establish(daemon, esplanade_pair, settings)
    assert devices(topology.gw_a) == {device}
    administrate(topology.gw_a, {} if key == "mark_in" else {FIRST: 7}, given=(given,))
    assert_ping(topology.host_a, HOST)
    assert counted(topology.gw_a, given) == written(topology.gw_a, device) == 3
    assert [mark for mark, _ in mark_rules(topology.gw_a)] == ([] if key == "mark_in" else [7])


@pytest.mark.esplanade_only
def test_what_others_take_away_is_put_back(topology, daemon, folder, needs_capture):
    topology.wan.run(["ip", "route", "add", SITE, "via", topology.b.wan4])
    settings = pair(topology, inner=4)
    settings[0].child().update(mark_in="10", mark_out="10")
    gw_a = topology.gw_a
    establish(daemon, esplanade_pair, settings)
    administrate(gw_a, {FIRST: 10}, given=(10,))
    assert_ping(topology.host_a, HOST)
    (table,) = [rule["table"] for rule in json.loads(gw_a.run(["ip", "-j", "rule", "show"]).stdout)
                if rule["priority"] == 219]
    wire = Capture(topology, folder / "clear.pcap", f"src host {FIRST}")
    for taken in ("rule del priority 219", f"route flush table {table}", "link del espm10"):
        gw_a.run(["ip", *taken.split()])
        wait_until(f"it works again after `{taken}`",
                   lambda: ping(topology.host_a, HOST, count=1, timeout=0.5) == 1 and devices(gw_a) == {"espm10"})
    before = counted(gw_a, 10)
    gw_a.run(["nft", "delete", "table", "inet", "esplanade-220"])
    wait_until("decrypted packets get the mark again",
               lambda: ping(topology.host_a, HOST, count=1, timeout=0.5) == 1 and counted(gw_a, 10) > before)
    assert list(frames(wire.stop())) == []


@pytest.mark.esplanade_only
def test_nothing_is_left_behind(topology, daemon, folder, needs_capture):
    """A crash leaves what keeps marked packets in; the next start, or `guard clear`, takes it away."""
    topology.wan.run(["ip", "route", "add", SITE, "via", topology.b.wan4])
    settings = pair(topology, inner=4)
    settings[0].child().update(mark_in="10", mark_out="10")
    gw_a = topology.gw_a
    a, _ = establish(daemon, esplanade_pair, settings)
    administrate(gw_a, {FIRST: 10})
    assert_ping(topology.host_a, HOST)

    def held():
        wire = Capture(topology, folder / "held.pcap", f"src host {FIRST}")
        assert ping(topology.host_a, HOST, count=1, timeout=0.5) == 0
        held = list(frames(wire.stop())) == []
        (folder / "held.pcap").unlink()
        return held

    a.kill()
    wait_until("the device goes with the gateway", lambda: devices(gw_a) == set())
    assert held()
    a.start(settings[0])
    assert held()
    a.stop()
    assert held()
    assert len(mark_rules(gw_a)) == 1
    unmarked = settings[0].copy()
    for key in ("mark_in", "mark_out"):
        del unmarked.child()[key]
    a.start(unmarked)
    assert (mark_rules(gw_a), devices(gw_a)) == ([], set())
    a.stop()

    a.start(settings[0])
    a.stop()
    gw_a.run([binary(), "guard", "clear", "--config", a.config])
    assert mark_rules(gw_a) == []
    assert "esplanade" not in gw_a.run(["nft", "list", "tables"]).stdout
    # An ordered stop may open by itself.
    settings[0].gateway["on_stop"] = "open"
    a.start(settings[0])
    a.stop()
    assert (mark_rules(gw_a), devices(gw_a)) == ([], set())


@pytest.mark.esplanade_only
def test_clear_packets_with_the_mark_are_refused(topology, daemon):
    """Whatever gives them the mark: no SA has brought them."""
    settings = pair(topology, inner=4)
    settings[0].child().update(mark_in="10", mark_out="10")
    gw_a = topology.gw_a
    establish(daemon, esplanade_pair, settings)
    administrate(gw_a, {FIRST: 10})
    assert_ping(topology.host_a, HOST)
    topology.wan.run(["ip", "route", "add", "10.1.0.0/16", "via", topology.a.wan4])
    topology.wan.run(["ip", "address", "add", "10.2.0.9/32", "dev", "lo"])
    gw_a.run(["nft", "-f", "-"], stdin=(
        "table inet seen {\ncounter forwarded { }\n"
        "chain marked { type filter hook prerouting priority -150;\niifname wan ip saddr 10.2.0.9 meta mark set 10; }\n"
        "chain seen { type filter hook forward priority 10; ip saddr 10.2.0.9 counter name forwarded; }\n}\n"))
    ping(topology.wan, FIRST, source="10.2.0.9", count=2, timeout=0.5)
    listed = gw_a.run(["nft", "list", "counters", "table", "inet", "seen"]).stdout
    assert "packets 0 " in listed, listed


@pytest.mark.esplanade_only
def test_sites_with_the_same_network_meet_by_nat(topology, daemon):
    """strongSwan's scenario net2net-same-nets: NAT at one gateway maps both networks, by the marks."""
    settings = pair(topology, inner=4)
    # Both sites have 10.0.0.0/14. A shows its own as 10.4.0.0/14, and sees the other as 10.8.0.0/14.
    both, shown = "10.0.0.0/14", "10.4.0.0/14"
    settings[0].child().update(local_ts=shown, remote_ts=both, mark_in="8", set_mark_in="%same", mark_out="4")
    settings[1].child().update(local_ts=both, remote_ts=shown)
    gw_a = topology.gw_a
    gw_a.run(["nft", "-f", "-"], stdin=(
        "table ip netmap {\n"
        "chain marked { type filter hook prerouting priority -150;\n"
        "iifname lan ip daddr 10.8.0.0/14 meta mark set 4; }\n"
        "chain pre { type nat hook prerouting priority -100;\n"
        "meta mark 4 dnat ip prefix to ip daddr map { 10.8.0.0/14 : 10.0.0.0/14 }\n"
        "meta mark 8 dnat ip prefix to ip daddr map { 10.4.0.0/14 : 10.0.0.0/14 }\n}\n"
        "chain post { type nat hook postrouting priority 100;\n"
        "meta mark 4 snat ip prefix to ip saddr map { 10.0.0.0/14 : 10.4.0.0/14 }\n"
        "meta mark 8 snat ip prefix to ip saddr map { 10.0.0.0/14 : 10.8.0.0/14 }\n}\n}\n"))
    a, _ = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, "10.10.0.2")
    assert a.installed()[0]["packets-in"] == "3"
    assert_ping(topology.host_b, "10.5.0.2")
