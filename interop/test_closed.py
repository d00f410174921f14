"""Protected traffic never leaves in the clear: whatever becomes of the process, and before the tunnel is up."""

import contextlib
import json
import re
import subprocess

import pytest
from ends import esplanade_pair, start
from harness.capture import Capture, frames
from harness.esplanade import binary
from harness.process import HarnessError, wait_until
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
        clear += frames(wire.stop())


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
        for family in ("-4", "-6"):
            routes = topology.gw_a.run(["ip", family, "route", "show", "table", "all", "proto", "static"]).stdout
            assert not routes.strip(), routes
        assert "220" not in topology.gw_a.run(["ip", "rule", "show"]).stdout
        ping(topology.host_a, topology.b.host4, count=3, timeout=0.3)
    assert clear


def guards(space) -> dict[str, bool]:
    """What keeps the other site's traffic in while no gateway runs, and whether it stands."""
    def shown(*command):
        return space.run(command, check=False).stdout

    return {"rules": all("lookup 220" in shown("ip", family, "rule") for family in ("-4", "-6")),
            "routes": all(re.search(f"^unreachable {net}", shown("ip", family, "route", "show", "table", "220"), re.M)
                          for family, net in (("-4", "10.2.0.0/16"), ("-6", "fd00:b::/64"))),
            "nftables": "table inet esplanade-220" in shown("nft", "list", "tables")}


def failing_starts(a, settings, descriptors=range(6, 64)):
    """Starts that fail at one step after the other, for want of a file descriptor, until one does not."""
    for limit in descriptors:
        a.wrapper = ["prlimit", f"--nofile={limit}:{limit}"]
        ready = a.logs().count("the gateway is ready")
        process = a.launch(settings)
        wait_until("an end or a start",
                   lambda: process.returncode is not None or a.logs().count("the gateway is ready") > ready)
        if process.returncode is None:
            # Its descriptors do for a start, not for clients.
            a.wrapper = []
            return a.kill()
        yield limit, process.returncode
    raise AssertionError("no start succeeds")


def test_a_start_that_fails_takes_no_guard_away(site, topology, folder, needs_capture):
    """Whatever step it fails at; also where the gateway that was there has crashed and `on_stop = open`."""
    a, _, settings = site
    settings[0].gateway["on_stop"] = "open"
    with traffic(topology, folder) as clear:
        a.kill()
        failed = 0
        for limit, code in failing_starts(a, settings[0]):
            assert code != 0, limit
            # With very few descriptors the configuration may not be readable, which is no step of the start.
            failed += code != 3
            assert all(guards(topology.gw_a).values()), (limit, guards(topology.gw_a), a.logs()[-1000:])
        assert failed > 5
        a.start(settings[0])
        a.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert not clear, f"{len(clear)} frames in the clear"


# What takes a step of the start away, and what gives it back. They come in the order of the steps.
HINDERED = {
    "keys": ("mkdir {keys}", "rmdir {keys}"),
    "socket": ("mkdir {socket}", "rmdir {socket}"),
    "port": ("", ""),
    "tun": ("ip link add esp0 type veth peer name other0", "ip link del esp0"),
}


@pytest.mark.parametrize("earlier", ["first", "after-a-crash"])
@pytest.mark.parametrize("step", HINDERED)
def test_a_start_that_fails_keeps_traffic_in(step, earlier, topology, daemon, folder, needs_capture):
    """The guards come before all that can fail: also where there was no gateway before."""
    settings = pair(topology)
    socket = folder / "hindered"
    settings[0].gateway.update(on_stop="open", socket=str(socket))
    settings[0].child()["start_action"] = "start"
    topology.wan.run(["ip", "route", "add", topology.b.lan4, "via", topology.b.wan4])
    topology.wan.run(["ip", "-6", "route", "add", topology.b.lan6, "via", topology.b.wan6])
    a, b = daemon("esplanade", "a"), daemon("esplanade", "b")
    b.start(settings[1])
    space = topology.gw_a
    if earlier == "after-a-crash":
        a.launch(settings[0])
        wait_until("the gateway is ready", lambda: "the gateway is ready" in a.logs())
        a.kill()
        a.keys.unlink()
        socket.unlink()
    if step == "port":
        holder = topology.start("gw_a", ["python3", "-c", HOLDER], stdout=subprocess.PIPE)
        assert holder.popen.stdout.readline() == b"ready\n"
    names = {"keys": a.keys, "socket": socket}
    space.run(["sh", "-c", HINDERED[step][0].format(**names)])
    process = a.launch(settings[0])
    wait_until("the start has failed", lambda: process.returncode is not None)
    assert process.returncode not in (0, 3), a.logs()[-2000:]
    assert "guard clear" in a.logs(), "it is told"
    assert all(guards(space).values()), guards(space)
    with traffic(topology, folder) as clear:
        for version in (4, 6):
            assert ping(topology.host_a, topology.b.host(version), count=2, timeout=0.2) == 0
        if step == "port":
            holder.stop()
        space.run(["sh", "-c", HINDERED[step][1].format(**names)])
        a.socket = socket
        a.start(settings[0])
        a.wait_installed()
    for version in (4, 6):
        assert_ping(topology.host_a, topology.b.host(version))
    assert not clear, f"{len(clear)} frames in the clear"


@pytest.fixture
def routed(topology, daemon):
    """Gateways with an interface each, which an administrator's routes lead the inner networks into."""
    settings = pair(topology)
    for one in settings:
        one.gateway["interfaces"] = {"ipsec0": {"if_id": 42, "addresses": "10.255.0.1/30"}}
        one.connections["site"].update(if_id_in=42, if_id_out=42)
        one.child().update(local_ts="0.0.0.0/0, ::/0", remote_ts="0.0.0.0/0, ::/0", start_action="trap|start")
    topology.wan.run(["ip", "route", "add", topology.b.lan4, "via", topology.b.wan4])
    topology.wan.run(["ip", "-6", "route", "add", topology.b.lan6, "via", topology.b.wan6])
    return settings


def lead(topology):
    for version in (4, 6):
        topology.gw_a.run(["ip", "route", "add", topology.b.lan(version), "dev", "ipsec0"])
        topology.gw_b.run(["ip", "route", "add", topology.a.lan(version), "dev", "ipsec0"])


@pytest.mark.parametrize("way", ["crash", "stop", "crash-on-stop-open"])
def test_routes_into_an_interface_outlive_the_gateway(way, routed, topology, daemon, folder, needs_capture):
    settings = routed
    a, b = start(daemon, esplanade_pair, settings)
    lead(topology)
    a.up()
    with traffic(topology, folder) as clear:
        if "open" in way:
            settings[0].gateway["on_stop"] = "open"
            a.load(settings[0])
        a.stop() if way == "stop" else a.kill()
        for version in (4, 6):
            assert ping(topology.host_a, topology.b.host(version), count=2, timeout=0.2) == 0
        # Another number of workers has another number of queues.
        settings[0].gateway["workers"] = 3
        a.start(settings[0])
        a.up()
        for version in (4, 6):
            assert_ping(topology.host_a, topology.b.host(version))
        other = daemon("esplanade", "a")
        settings[0].gateway.update(tun="other0", socket=str(other.socket), port=1500, port_nat_t=14500)
        with pytest.raises(HarnessError, match="ipsec0 is in use by another program"):
            other.start(settings[0])
    assert not clear, f"{len(clear)} frames in the clear"


def links(space):
    return {link["ifname"] for link in json.loads(space.run(["ip", "-j", "link"]).stdout)}


def test_an_interface_goes_when_it_is_given_up(routed, topology, daemon, folder, needs_capture):
    """By `on_stop = open`, by `guard clear`, by a start that does not name it; never one of somebody else's."""
    settings = routed
    space = topology.gw_a
    space.run(["ip", "tuntap", "add", "theirs", "mode", "tun"])
    settings[0].gateway["interfaces"]["theirs"] = {"if_id": 43}
    a, b = start(daemon, esplanade_pair, settings)
    a.stop()
    assert {"ipsec0", "theirs"} <= links(space)
    assert space.run([binary(), "guard", "clear", "--config", a.config]).returncode == 0
    assert links(space) & {"ipsec0", "theirs"} == {"theirs"}

    a.start(settings[0])
    settings[0].gateway["on_stop"] = "open"
    a.load(settings[0])
    a.stop()
    assert links(space) & {"ipsec0", "theirs"} == {"theirs"}

    settings[0].gateway["on_stop"] = "closed"
    a.start(settings[0])
    a.stop()
    unnamed = pair(topology)[0]
    a.start(unnamed)
    wait_until("the start deletes it", lambda: links(space) & {"ipsec0", "theirs"} == {"theirs"})


# Holds the port of IKE.
HOLDER = """
import socket, time
six, four = (socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET6, socket.AF_INET))
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.bind(("::", 500))
four.bind(("0.0.0.0", 500))
print("ready", flush=True)
time.sleep(60)
"""
