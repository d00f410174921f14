"""Others take rules, routes, devices and nftables tables away: they are put back, and nothing is in the clear meanwhile."""

import ipaddress
import json
import re
import signal
import socket
import time

import pytest
from ends import esplanade_pair, start
from harness.capture import Capture, frames, packet_socket
from harness.esplanade import binary
from harness.namespaces import A, B
from harness.process import wait_until
from harness.settings import add_second, pair
from harness.traffic import Flow, assert_ping, ping

pytestmark = [pytest.mark.esplanade_only, pytest.mark.usefixtures("needs_capture")]

INNER = f"net {B.lan4} or net {B.lan6}"
# An administrator's rule may give the gateway's own packets another source, which no policy takes.
OF_POLICIES = f"({INNER}) and not src host {A.wan4} and not src host {A.wan6}"


@pytest.fixture
def site(topology, daemon):
    """Both gateways, up, between routers that know the way to the inner networks: what leaves in the clear arrives."""
    settings = pair(topology)
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    b.wait_installed()
    for site in (topology.a, topology.b):
        for version in (4, 6):
            topology.wan.run(["ip", "route", "add", site.lan(version), "via", site.wan(version)])
    # ESP that has come in once: where none ever does, traffic of one direction makes an IKE SA that tries UDP.
    for version in (4, 6):
        assert_ping(topology.host_a, topology.b.host(version))
    return a, b, settings


class Traffic:
    """To the other site all the while, from A's host and from A itself."""

    def __init__(self, topology, folder, expression=INNER):
        self.flows = [Flow(topology.host_a, topology.host_b, topology.b.host(version), port=40100 + version, rate=1000)
                      for version in (4, 6)]
        self.flows += [Flow(topology.gw_a, topology.host_b, topology.b.host(version), port=40200 + version, rate=500)
                       for version in (4, 6)]
        self.wire = Capture(topology, folder / "clear.pcap", expression)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for flow in self.flows:
            flow.abandon()
        self.clear = list(frames(self.wire.stop()))


def state(space) -> str:
    text = "".join(space.run(["ip", *what], check=False).stdout for what in (
        ["-4", "rule"], ["-6", "rule"], ["-4", "route", "show", "table", "220"], ["-6", "route", "show", "table", "220"],
        ["-br", "link", "show", "dev", "esp0"]))
    rules = space.run(["nft", "list", "ruleset"]).stdout
    return text + re.sub(r"packets \d+ bytes \d+", "", rules)


# Each by what an administrator, or a daemon that thinks the network its own, might do.
TAKEN = {
    "rules": ["ip rule del table 220; ip -6 rule del table 220"],
    "routes": ["ip route flush table 220; ip -6 route flush table 220"],
    "rules-and-routes": ["ip rule del table 220; ip -6 rule del table 220",
                         "ip route flush table 220; ip -6 route flush table 220"],
    "link-down": ["ip link set esp0 down"],
    "mtu": ["ip link set esp0 mtu 1300"],
    "name": ["ip link set esp0 down; ip link set esp0 name elsewhere"],
    "device": ["ip link del esp0"],
    "device-and-nftables": ["nft flush ruleset; ip link del esp0"],
    "device-moved": ["ip link set esp0 netns {other}"],
    "nftables": ["nft flush ruleset"],
    "nftables-then-rules": ["nft flush ruleset", "sleep 0.3; ip rule del table 220; ip -6 rule del table 220"],
    "another-route": ["ip route replace {lan4} via 172.16.1.1 table 220; "
                      "ip -6 route add {lan6} via fd00:1::1 metric 1 table 220"],
    "a-rule-in-front": ["ip rule add pref 100 lookup main; ip -6 rule add pref 100 lookup main; sleep 0.3; "
                        "ip rule del pref 100; ip -6 rule del pref 100"],
}


@pytest.mark.parametrize("taken", TAKEN)
def test_what_is_taken_is_put_back(taken, site, topology, folder):
    a, _, _ = site
    other = topology.start("host_a", ["sleep", "60"]).popen.pid
    before = state(topology.gw_a)
    begun = time.monotonic()
    assert "put back" not in a.logs()
    spis = {sa["spi-in"] for sa in a.installed()}
    assert "table inet esplanade-220" in before
    expression = OF_POLICIES if taken == "a-rule-in-front" else INNER
    with Traffic(topology, folder, expression) as traffic:
        for _ in range(3):
            for command in TAKEN[taken]:
                topology.gw_a.run(["sh", "-c", command.format(lan4=B.lan4, lan6=B.lan6, other=other)])
            wait_until("all is as before", lambda: state(topology.gw_a) == before)
    # Not beside the traffic, which may be more than a loaded machine carries.
    for version in (4, 6):
        assert_ping(topology.host_a, topology.b.host(version))
    assert not traffic.clear, f"{len(traffic.clear)} frames in the clear"
    assert {sa["spi-in"] for sa in a.installed()} == spis
    warnings = [line for line in a.logs().splitlines() if "put back" in line]
    took = time.monotonic() - begun
    if taken != "a-rule-in-front":
        assert warnings and "WARN" in warnings[0], a.logs()[-3000:]
    assert len(warnings) <= 1 + took // 10, "of many, one line is told in ten seconds"


def test_an_address_comes_and_goes(site, topology, folder):
    """The routes have it as their source, and the kernel takes them away with it."""
    before = state(topology.gw_a)
    with Traffic(topology, folder) as traffic:
        for change in (("del", ""), ("add", "nodad")):
            for own in (topology.a.gw4 + "/16", topology.a.gw6 + "/64"):
                flags = change[1:] if ":" in own and change[1] else ()
                topology.gw_a.run(["ip", "address", change[0], own, "dev", "lan", *flags])
            # Time for packets that would leave in the clear.
            time.sleep(0.3)
        wait_until("all is as before", lambda: state(topology.gw_a) == before)
    assert not traffic.clear, f"{len(traffic.clear)} frames in the clear"


def test_the_link_of_the_source_goes_and_comes(site, topology):
    """IPv6 loses its address with the link, and the routes their source. A reload without the policy leaves no route."""
    def routes() -> str:
        return topology.gw_a.run(["ip", "-6", "route", "show", "table", "all", "proto", "static"]).stdout

    before, (a, _, settings) = routes(), site
    assert "metric 32768" in before, before
    topology.gw_a.run(["ip", "link", "set", "lan", "down"])
    wait_until("the source is gone", lambda: topology.a.gw6 not in routes())
    assert f"unreachable {topology.b.lan6}" in routes()
    topology.gw_a.run(["ip", "link", "set", "lan", "up"])
    topology.gw_a.run(["ip", "address", "add", topology.a.gw6 + "/64", "dev", "lan", "nodad"])
    wait_until("all is as before", lambda: routes() == before)
    settings[0].connections["site"]["children"] = {}
    a.load(settings[0])
    wait_until("no route is left", lambda: not routes().strip())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_device_comes_back_when_its_name_is_free(workers, topology, daemon, folder):
    """Until then nothing goes."""
    settings = pair(topology)
    settings[0].gateway["workers"] = workers
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    b.wait_installed()
    for version in (4, 6):
        topology.wan.run(["ip", "route", "add", B.lan(version), "via", B.wan(version)])
    before = state(topology.gw_a)
    with Traffic(topology, folder) as traffic:
        a.signal(signal.SIGSTOP)
        topology.gw_a.run(["sh", "-c", "ip link del esp0 && ip link add esp0 type veth peer name other0 && ip link set esp0 up"])
        a.signal(signal.SIGCONT)
        wait_until("it is told", lambda: "not as they should be" in a.logs())
        assert ping(topology.host_a, topology.b.host4, count=3, timeout=0.2) == 0
        topology.gw_a.run(["ip", "link", "del", "esp0"])
        wait_until("all is as before", lambda: state(topology.gw_a) == before)
    for version in (4, 6):
        assert_ping(topology.host_a, topology.b.host(version))
        assert_ping(topology.host_b, topology.a.host(version))
    assert not traffic.clear, f"{len(traffic.clear)} frames in the clear"


def spoof(space, source, target, count=1):
    """Sends datagrams whose source is not the sender's own."""
    v6 = ":" in target
    with space.socket(socket.AF_INET6 if v6 else socket.AF_INET) as out:
        out.setsockopt(*((socket.IPPROTO_IPV6, 75) if v6 else (socket.IPPROTO_IP, 19)), 1)  # IP_TRANSPARENT
        out.bind((source, 4321))
        for _ in range(count):
            out.sendto(b"x", (target, 9))


def arrived(topology, source, target) -> int:
    """How many of ten datagrams in the clear reach A's host."""
    # A datagram of a source that no policy names goes the same way. What it has not overtaken will not come.
    mark = "172.16.1.1" if ":" not in target else "fd00:1::1"
    seen = []
    with packet_socket(topology.host_a, "lan", f"dst host {target} and udp port 9") as wire:
        wire.setblocking(False)

        def sources():
            try:
                while True:
                    frame = wire.recv(2000)
                    family, place = (socket.AF_INET6, 22) if ":" in target else (socket.AF_INET, 26)
                    seen.append(socket.inet_ntop(family, frame[place:place + (16 if ":" in target else 4)]))
            except BlockingIOError:
                return seen

        spoof(topology.wan, source, target, count=10)
        spoof(topology.wan, mark, target)
        wait_until("the mark", lambda: mark in sources(), step=0.01)
        return seen.count(source)


@pytest.mark.parametrize("version", [4, 6])
def test_clear_packets_that_claim_the_other_site_are_refused(version, topology, daemon, folder):
    settings = pair(topology)
    topology.wan.run(["ip", "route", "add", A.lan(version), "via", A.wan(version)])
    claimed, target = B.host(version), A.host(version)
    assert arrived(topology, claimed, target) == 10, "without a gateway they arrive"
    a, _ = start(daemon, esplanade_pair, settings)
    assert arrived(topology, claimed, target) == 0
    a.up()
    assert arrived(topology, claimed, target) == 0
    assert_ping(topology.host_a, topology.b.host(version))
    stranger = "172.16.9.9" if version == 4 else "fd00:9::9"
    assert arrived(topology, stranger, target) == 10, "others are none of the gateway's business"
    a.stop()
    assert arrived(topology, claimed, target) == 0, "nor when no gateway runs"


def test_what_a_stopped_gateway_leaves_is_removed_by_hand(site, topology):
    a, _, _ = site

    def clear():
        return topology.gw_a.run([binary(), "guard", "clear", "--config", a.config], check=False)

    refused = clear()
    assert refused.returncode == 1 and "stop it first" in refused.stderr, refused
    a.stop()
    left = topology.gw_a.run(["nft", "list", "tables"]).stdout
    assert "esplanade-220" in left
    for _ in range(2):
        assert clear().returncode == 0, "also where nothing is left"
        left = [topology.gw_a.run(what).stdout for what in (
            ["nft", "list", "tables"], ["ip", "rule"], ["ip", "-6", "rule"],
            ["ip", "route", "show", "table", "all"], ["ip", "-6", "route", "show", "table", "all"])]
        assert not [text for text in left if "220" in text], left


@pytest.mark.parametrize("version", [4, 6])
def test_what_is_bypassed_comes_in(version, topology, daemon, folder):
    """A policy in front lets one port through, both ways."""
    settings = pair(topology)
    port = {"mode": "pass", "start_action": "trap", "local_ts": f"{A.lan(version)}[udp/9]",
            "remote_ts": f"{B.lan(version)}[udp/4321]"}
    settings[0].connections["site"]["children"]["open"] = port
    topology.wan.run(["ip", "route", "add", A.lan(version), "via", A.wan(version)])
    a, _ = start(daemon, esplanade_pair, settings)
    assert arrived(topology, B.host(version), A.host(version)) == 10
    port["remote_ts"] = f"{B.lan(version)}[udp/4322]"
    a.load(settings[0])
    assert arrived(topology, B.host(version), A.host(version)) == 0


def test_a_peer_whose_address_comes_with_it_is_held_while_it_is_there(topology, daemon, folder):
    """`dynamic`, where any peer may connect: before and after, its address is nobody's."""
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["remote_addrs"] = "%any"
    settings[0].child().update(local_ts=A.lan4, remote_ts="dynamic")
    settings[1].child().update(local_ts="dynamic", remote_ts=A.lan4)
    topology.wan.run(["ip", "route", "add", A.lan4, "via", A.wan4])
    a, b = start(daemon, esplanade_pair, settings)
    assert arrived(topology, B.wan4, A.host4) == 10
    b.up()
    a.wait_installed()
    assert arrived(topology, B.wan4, A.host4) == 0
    flow = Flow(topology.host_a, topology.gw_b, B.wan4, port=40300, rate=1000)
    wire = Capture(topology, folder / "clear.pcap", f"src net {A.lan4} and dst host {B.wan4}")
    for _ in range(5):
        topology.gw_a.run(["sh", "-c", "ip rule del table 220; ip route flush table 220"])
        wait_until("they are put back", lambda: f"{B.wan4} dev esp0" in topology.gw_a.run(
            ["ip", "route", "show", "table", "220"]).stdout)
    flow.abandon()
    clear = list(frames(wire.stop()))
    assert_ping(topology.host_a, B.wan4)
    assert not clear, f"{len(clear)} frames in the clear"
    b.command("rekey", "net")
    assert arrived(topology, B.wan4, A.host4) == 0
    b.down()
    a.wait_gone()
    wait_until("nobody has the address", lambda: arrived(topology, B.wan4, A.host4) == 10)


def shield(space) -> tuple[int, int]:
    """How many rules the table has, and how many elements its maps have."""
    listed = json.loads(space.run(["nft", "-j", "list", "table", "inet", "esplanade-220"]).stdout)["nftables"]
    maps = [entry["map"].get("elem", []) for entry in listed if "map" in entry]
    return sum("rule" in entry for entry in listed), sum(map(len, maps))


def test_a_peer_with_thousands_of_selectors_leaves_the_shield_to_others(topology, daemon, folder):
    """Selectors are elements of maps: the rules stay the same, and what another peer brings is shielded."""
    settings = pair(topology, inner=4)
    add_second(*settings)
    other = str(ipaddress.ip_address(B.wan4) + 100)
    topology.gw_b.run(["ip", "address", "add", f"{other}/24", "dev", "wan"])
    for name, child in (("site", "net"), ("second", "second-net")):
        settings[0].connections[name]["remote_addrs"] = "%any"
        settings[0].child(name, child).update(local_ts=A.lan4, remote_ts="dynamic")
        settings[1].child(name, child).update(local_ts="dynamic", remote_ts=A.lan4)
    settings[1].connections["second"]["local_addrs"] = other
    children = settings[1].connections["site"]["children"]
    net = children.pop("net")
    for number in range(16):
        ports = range(1000 * (number + 1), 1000 * (number + 1) + 500, 2)
        selectors = ",".join(f"{A.host4}/32[tcp/{port}]" for port in ports)
        children[f"net-{number}"] = net | {"remote_ts": selectors}
    topology.wan.run(["ip", "route", "add", A.lan4, "via", A.wan4])
    a, b = start(daemon, esplanade_pair, settings)
    rules, _ = shield(topology.gw_a)
    for number in range(16):
        b.up(f"net-{number}")
    wait_until("all are shielded", lambda: a.status()["shield"]["elements"] >= 4000)
    after, elements = shield(topology.gw_a)
    assert after == rules < 60
    assert elements >= 4000
    for source in (B.wan4, other):
        assert arrived(topology, source, A.host4) == 10, "UDP, which no policy names"
    b.up("second-net")
    assert arrived(topology, other, A.host4) == 0
    assert arrived(topology, B.wan4, A.host4) == 10
    b.down("site")
    wait_until("the elements go", lambda: a.status()["shield"]["elements"] < 100)
    assert arrived(topology, other, A.host4) == 0
    assert shield(topology.gw_a)[0] == rules
    a.command("status", "--check")


def nested(host: str, number: int, count: int) -> str:
    steps = range(number * count, (number + 1) * count)
    return ",".join(f"{host}/32[udp/{1 + step}-{60000 - step}]" for step in steps)


def test_policies_that_the_shield_has_no_room_for_are_refused(topology, daemon):
    """A reload changes nothing then. A start gives no SA to children that the table lacks."""
    settings = pair(topology, inner=4)
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    before, spis = state(topology.gw_a), {sa["spi-in"] for sa in a.installed()}
    children = settings[0].connections["site"]["children"]
    for number in range(4):
        # Each selector lies around the next, at both ends.
        children[f"wide-{number}"] = children["net"] | {
            "local_ts": nested(A.host4, number, 60), "remote_ts": nested(B.host4, number, 17)}
    a.write(settings[0])
    refused = a.command("reload", check=False)
    assert refused.returncode != 0
    assert "site/wide-" in refused.stderr and "fewer selectors" in refused.stderr
    assert (state(topology.gw_a), {sa["spi-in"] for sa in a.installed()}) == (before, spis)
    a.command("status", "--check")
    a.stop()
    a.start(settings[0])
    assert a.up(check=False).returncode != 0
    checked = a.command("status", "--check", check=False)
    assert checked.returncode != 0 and "site/wide-" in checked.stderr, checked
    assert not a.installed()
    for number in range(4):
        del children[f"wide-{number}"]
    a.load(settings[0])
    a.up()
    a.command("status", "--check")


@pytest.mark.parametrize("version", [4, 6])
def test_what_a_route_leads_into_an_interface_comes_out_of_it(version, topology, daemon, folder):
    settings = pair(topology)
    for one in settings:
        one.gateway["interfaces"] = {"ipsec0": {"if_id": 42}}
        one.connections["site"].update(if_id_in=42, if_id_out=42)
        one.child().update(local_ts="0.0.0.0/0, ::/0", remote_ts="0.0.0.0/0, ::/0")
    topology.wan.run(["ip", "route", "add", A.lan(version), "via", A.wan(version)])
    claimed, target = B.host(version), A.host(version)
    a, b = start(daemon, esplanade_pair, settings)
    assert arrived(topology, claimed, target) == 10, "nothing leads there"
    topology.gw_a.run(["ip", "route", "add", B.lan(version), "dev", "ipsec0"])
    topology.gw_b.run(["ip", "route", "add", A.lan(version), "dev", "ipsec0"])
    assert arrived(topology, claimed, target) == 0
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host(version))
    assert_ping(topology.host_b, topology.a.host(version))
    assert arrived(topology, claimed, target) == 0
    stranger = "172.16.9.9" if version == 4 else "fd00:9::9"
    assert arrived(topology, stranger, target) == 10
    topology.gw_a.run(["ip", "route", "del", B.lan(version), "dev", "ipsec0"])
    assert arrived(topology, claimed, target) == 10, "routes decide"


def test_settings_of_others_ahead_of_ours_are_named(topology, daemon):
    """They may be meant so, and stay. Packets of policies go their way, or nowhere."""
    topology.gw_a.run(["ip", "rule", "add", "priority", "100", "lookup", "main"])
    a = daemon("esplanade", "a")
    a.start(pair(topology, inner=4)[0])
    wait_until("the rule is named", lambda: "the IPv4 rule 100 for table 254" in a.logs())
    topology.gw_a.run(["ip", "rule", "del", "priority", "100"])
    wait_until("its end is told", lambda: "no longer come before the gateway's" in a.logs())
