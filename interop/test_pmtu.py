"""Paths narrower than the gateways' interfaces: senders are told, and what they send then arrives."""

import subprocess
import sys

import pytest
from ends import ENDS, esplanade_pair, establish, ids
from harness.capture import Capture
from harness.namespaces import Namespace
from harness.oracle import esp_packets
from harness.process import run, wait_until
from harness.settings import pair
from harness.traffic import inject, ping, transfer
from scapy.layers.inet import ICMP, IP
from scapy.packet import Raw
from scapy.utils import checksum

PATH_MTU = 1400

# Sends UDP packets of `length` bytes, IP header included, with DF, until the kernel refuses them; then one of the length
# that it takes. Prints how many the first were, and that length.
PROBE = """
import socket, sys, time
address, length = sys.argv[1], int(sys.argv[2])
v6 = ":" in address
level, discover, mtu, headers = (41, 23, 24, 48) if v6 else (0, 10, 14, 28)
with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.setsockopt(level, discover, 2)
    probe.connect((address, 40300))
    sent = 0
    while sent < 50:
        try:
            probe.send(bytes(length - headers))
        except ConnectionRefusedError:
            continue
        except OSError:
            break
        sent += 1
        time.sleep(0.1)
    longest = probe.getsockopt(level, mtu)
    # An ICMP error waits in the socket and fails the next send, whatever its length.
    for attempt in range(5):
        try:
            probe.send(b"x" * (longest - headers))
            break
        except OSError as error:
            print(error, file=sys.stderr)
    print(sent, longest)
"""

# Prints the lengths of the first `count` datagrams of x that come.
LISTEN = """
import socket, sys
v6 = ":" in sys.argv[1]
with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as listener:
    listener.bind((sys.argv[1], 40300))
    listener.settimeout(20)
    print("ready", flush=True)
    count = int(sys.argv[2])
    while count:
        data = listener.recv(65536)
        if data.startswith(b"x"):
            print(len(data), flush=True)
            count -= 1
"""


def narrow(topology):
    """Between the router and gateway B: A has to be told by the router, B knows it of its own interface."""
    topology.wan.run(["ip", "link", "set", "to_b", "mtu", PATH_MTU])
    topology.gw_b.run(["ip", "link", "set", "wan", "mtu", PATH_MTU])


def longest_inner(outer, encap):
    """AES-GCM with a 16-byte ICV: ESP header 8, IV 8, padding to a multiple of four with its two bytes, ICV 16."""
    sealed = PATH_MTU - (20 if outer == 4 else 40) - (8 if encap else 0)
    return (sealed - 32) // 4 * 4 - 2


def probe(sender, receiver, address, length):
    listener = receiver.start([sys.executable, "-c", LISTEN, address, "1"], stdout=subprocess.PIPE)
    try:
        assert listener.popen.stdout.readline() == b"ready\n"
        done = sender.run([sys.executable, "-c", PROBE, address, str(length)], timeout=30)
        sent, longest = map(int, done.stdout.split())
        received = int(listener.popen.stdout.readline())
    finally:
        listener.stop()
    headers = 48 if ":" in address else 28
    assert received == longest - headers
    return sent, longest


def transfers_fit(topology, longest_wanted, sent_most):
    """Both ways and both versions: the sender learns the longest packet after `sent_most` at most, and a transfer passes."""
    for version in (4, 6):
        ways = [(topology.host_a, topology.host_b, topology.b.host(version)),
                (topology.host_b, topology.host_a, topology.a.host(version))]
        for sender, receiver, address in ways:
            sent, longest = probe(sender, receiver, address, 1400)
            assert longest == longest_wanted
            assert 1 <= sent <= sent_most
            transfer(sender, receiver, address, size=300_000)


@pytest.mark.parametrize("encap", [False, True], ids=["encap-off", "encap-on"])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
def test_senders_learn_what_the_tunnel_takes(outer, encap, topology, daemon):
    narrow(topology)
    a, b = establish(daemon, esplanade_pair, pair(topology, outer=outer, encap=encap, esp="aes128gcm16"))
    # One is lost for each thing to be learned: the path by the gateway, its own limit by the sender.
    transfers_fit(topology, longest_inner(outer, encap), sent_most=4)
    for end in (a, b):
        assert end.counter("drops.too-big") > 0
        assert end.counter("io.path-mtus-learned") == 1


def silent_hole(topology):
    """The narrow link is the router's, and its errors do not come back: both gateways lose long packets and hear nothing."""
    topology.wan.run(["ip", "link", "set", "to_b", "mtu", PATH_MTU])
    topology.wan.run(["nft", "-f", "-"], stdin="table inet deaf { chain out { type filter hook output priority 0;\n"
                                               "icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }\n")


def known_mtu(end):
    sa, = end.sas()["site"]
    return int(sa.get("path-mtu", 0)), sa.get("path-mtu-by")


@pytest.mark.parametrize("encap", [False, True], ids=["encap-off", "encap-on"])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
def test_a_path_that_loses_long_packets_in_silence_is_found(outer, encap, topology, daemon):
    """RFC 8899: no ICMP error tells, and probes do."""
    silent_hole(topology)
    a, b = establish(daemon, esplanade_pair, pair(topology, outer=outer, encap=encap, esp="aes128gcm16"))
    assert known_mtu(a) == (0, None)

    def found():
        ping(topology.host_a, topology.b.host4, count=1, timeout=0.2)
        return [known_mtu(end) for end in (a, b)] == [(PATH_MTU, "probes")] * 2

    wait_until("both ends have found it", found, timeout=20)
    transfers_fit(topology, longest_inner(outer, encap), sent_most=2)
    assert ping(topology.host_a, topology.b.host4, size=1400) == 3, "without DF"
    for end in (a, b):
        assert end.counter("io.path-mtus-learned") == 0
        told = [line for line in end.logs().splitlines() if "no ICMP error says so" in line]
        assert len(told) == 1 and "WARN" in told[0] and f"the path MTU is {PATH_MTU} now" in told[0], told
        assert f"path MTU {PATH_MTU} bytes; probes have found it" in end.command("status").stdout
    explained = a.command("explain", f"icmp {topology.a.host4} -> {topology.b.host4}").stdout
    assert f"the path takes {PATH_MTU} bytes, as probes have found" in explained, explained


def test_a_transfer_over_a_silent_path_goes_on_by_itself(topology, daemon):
    silent_hole(topology)
    establish(daemon, esplanade_pair, pair(topology, inner=4))
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=300_000)


@pytest.mark.parametrize("ends", ENDS[:2], ids=ids)
def test_strongswan_answers_probes(ends, topology, daemon):
    silent_hole(topology)
    ours = ends.index("esplanade")
    sides = establish(daemon, ends, pair(topology, inner=4, encap=True, esp="aes128gcm16"))
    end, here, there = sides[ours], (topology.host_a, topology.host_b)[ours], (topology.host_b, topology.host_a)[ours]
    address = (topology.b, topology.a)[ours].host4

    def found():
        assert ping(here, address, count=1), "the tunnel is up"
        return known_mtu(end) == (PATH_MTU, "probes")

    wait_until("the path is found", found, timeout=20)
    assert probe(here, there, address, 1400)[1] == longest_inner(4, True)
    assert ping(here, address) == 3
    assert len(end.installed()) == 1
    assert end.counter("ike.path-probes-lost") >= 4


def test_a_path_that_takes_all_is_probed_once(topology, daemon):
    """And one on which routers tell is not said to be silent."""
    a, b = establish(daemon, esplanade_pair, pair(topology, inner=4))
    wait_until("A has probed", lambda: ping(topology.host_a, topology.b.host4, count=1)
               and a.counter("ike.path-probes-sent"))
    assert ping(topology.host_a, topology.b.host4, count=20, interval=0.1) == 20
    assert a.counter("ike.path-probes-sent") == 1
    for end in (a, b):
        assert end.counter("ike.path-probes-lost") == 0
        assert known_mtu(end) == (0, None)


def test_errors_about_probes_are_heard(topology, daemon):
    narrow(topology)
    a, b = establish(daemon, esplanade_pair, pair(topology, inner=4, encap=True))
    wait_until("A knows", lambda: ping(topology.host_a, topology.b.host4, count=1) and known_mtu(a)[0] == PATH_MTU)
    assert known_mtu(a) == (PATH_MTU, "icmp")
    wait_until("the search is over", lambda: a.counter("ike.path-probes-sent") == 2)
    assert "no ICMP error says so" not in a.logs() + b.logs()
    assert a.counter("io.icmp-disbelieved") == 0


def test_probes_can_be_switched_off(topology, daemon):
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"]["path_mtu_probe"] = "no"
    a, _ = establish(daemon, esplanade_pair, settings)
    assert ping(topology.host_a, topology.b.host4, count=15, interval=0.1) == 15
    assert a.counter("ike.path-probes-sent") == 0


def test_errors_of_a_blind_forger_move_nothing(topology, daemon):
    """He knows the gateways' addresses, and how SPIs would be made if they named their slots: 12 random bits."""
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    assert ping(topology.host_a, topology.b.host4) == 3
    local, remote = topology.a.wan4, topology.b.wan4
    outer = IP(src="192.0.2.66", dst=local) / ICMP(type=3, code=4, nexthopmtu=576)
    quoted = bytes(IP(src=local, dst=remote, proto=50, len=1400, flags="DF"))
    forged = []
    for slot in range(2):
        for tag in range(1, 4096):
            payload = quoted + (tag << 20 | slot).to_bytes(4, "big") + (1).to_bytes(4, "big")
            forged.append(bytes(outer / Raw(payload)) if not forged else reforge(forged[0], payload))
    inject(topology.wan, forged)
    wait_until("they were read", lambda: a.counter("io.icmp-disbelieved") > 0)
    assert a.counter("io.path-mtus-learned") == 0


def reforge(packet, payload):
    """The same ICMP error about another packet; building each with scapy takes minutes."""
    message = packet[20:22] + b"\0\0" + packet[24:28] + payload
    return packet[:20] + message[:2] + checksum(message).to_bytes(2, "big") + message[4:]


def test_clamped_connections_need_no_icmp(topology, daemon):
    """With `mss_clamp` TCP fits the TUN's MTU; here nothing tells the hosts about it."""
    for host in (topology.host_a, topology.host_b):
        host.run(["nft", "-f", "-"], stdin="table inet deaf { chain in { type filter hook input priority 0;\n"
                                           "icmp type destination-unreachable drop; }; }\n")
    settings = pair(topology, inner=4)
    for one in settings:
        one.gateway["mss_clamp"] = "yes"
    a, b = establish(daemon, esplanade_pair, settings)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=300_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=300_000)
    assert a.counter("io.mss-clamped") > 0


# RFC 4303 R21
def test_padding_is_not_fragmented(topology, daemon, folder, needs_capture):
    """Packets are padded to the TUN's MTU, which is more than the path takes, until that is known."""
    narrow(topology)
    settings = pair(topology, inner=4, encap=True)
    for one in settings:
        one.child()["tfc_padding"] = "mtu"
    a, b = establish(daemon, esplanade_pair, settings)
    # With DF, as the outer packets then have it too: the router tells A, and its interface tells B.
    probe(topology.host_a, topology.host_b, topology.b.host4, 1400)
    probe(topology.host_b, topology.host_a, topology.a.host4, 1400)
    wire = Capture(topology, folder / "wire.pcap")
    assert ping(topology.host_a, topology.b.host4) == 3
    lengths = {len(packet.frame) for packet in esp_packets(wire.stop())}
    assert len(lengths) == 1 and PATH_MTU - 3 <= max(lengths) <= PATH_MTU, lengths


# Behind host B, which is a router then, on a narrow link. The router itself is in no selector.
FAR = {4: "10.3.0.2", 6: "fd00:c::2"}
FAR_MTU = 1320


def far_host(topology):
    """A sixth namespace. Its own interface is wide, so that TCP learns nothing from the segment size it announces."""
    name = topology.host_b.name.replace("host_b", "far")
    topology.spaces["far"] = Namespace(name)
    run(["ip", "netns", "add", name])
    run(["ip", "link", "add", "far", "netns", topology.host_b.name, "type", "veth", "peer", "name", "lan", "netns", name])
    for space, device, end in ((topology.host_b, "far", 1), (topology.far, "lan", 2)):
        lines = [f"address add 10.3.0.{end}/24 dev {device}", f"address add fd00:c::{end}/64 dev {device} nodad",
                 f"link set {device} up", "link set lo up"]
        run(["ip", "-n", space.name, "-batch", "-"], stdin="\n".join(lines) + "\n")
    topology.host_b.run(["ip", "link", "set", "far", "mtu", str(FAR_MTU)])
    for space, via4, via6 in ((topology.far, "10.3.0.1", "fd00:c::1"), (topology.gw_b, topology.b.host4, topology.b.host6)):
        to4, to6 = ("default", "default") if space is topology.far else ("10.3.0.0/24", "fd00:c::/64")
        space.run(["ip", "route", "add", to4, "via", via4])
        space.run(["ip", "-6", "route", "add", to6, "via", via6])
    return topology.far


def port_specific(topology, version, **keys):
    """A tunnel for the probe's UDP port and the transfer's TCP port, and nothing else."""
    settings = pair(topology, inner=version)
    near, far = topology.a.lan(version), "10.3.0.0/24" if version == 4 else "fd00:c::/64"
    protocols = ("udp", 40300), ("tcp", 40000)
    ours = ",".join(f"{near}[{protocol}]" for protocol, _ in protocols)
    theirs = ",".join(f"{far}[{protocol}/{port}]" for protocol, port in protocols)
    for one, local, remote in ((settings[0], ours, theirs), (settings[1], theirs, ours)):
        one.child().update(local_ts=local, remote_ts=remote, **keys)
    return settings


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
def test_a_router_behind_a_tunnel_for_ports_is_heard(version, topology, daemon):
    """RFC 4301 section 6.2: its errors are in no selector, and go with the flow that they quote."""
    far = far_host(topology)
    a, b = establish(daemon, esplanade_pair, port_specific(topology, version))
    sent, longest = probe(topology.host_a, far, FAR[version], 1400)
    assert longest == FAR_MTU
    assert 1 <= sent <= 3
    transfer(topology.host_a, far, FAR[version], size=300_000)
    for end in (a, b):
        assert end.counter("drops.icmp-error-mismatch") == end.counter("drops.malformed-icmp-error") == 0


def test_a_tunnel_can_refuse_what_routers_say(topology, daemon):
    far_host(topology)
    _, b = establish(daemon, esplanade_pair, port_specific(topology, 4, icmp_errors="header"))
    before = b.counter("drops.no-policy")
    sender = topology.host_a.run([sys.executable, "-c", PROBE, FAR[4], "1400"], timeout=30)
    assert sender.stdout.split() == ["50", "1500"], "the sender was told"
    assert b.counter("drops.no-policy") > before


# Sends datagrams of `length` bytes of x.
SEND = """
import socket, sys, time
address, length, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(count):
        sender.sendto(b"x" * length, (address, 40300))
        time.sleep(0.05)
"""


# Put together, a datagram of IPv6 would be too long for the network behind B, where no router may cut it again.
@pytest.mark.parametrize("version, agreed", [(4, True), (6, True), (4, False)],
                         ids=["v4-agreed", "v6-agreed", "v4-one-end-only"])
def test_fragments_through_a_tunnel_for_ports(version, agreed, topology, daemon):
    """RFC 4301 section 7.3: as they are where both ends say so, otherwise put together before the tunnel."""
    settings = pair(topology, inner=version)
    port = settings[0].child()["remote_ts"] + "[udp/40300]"
    for one, key in zip(settings, ("remote_ts", "local_ts")):
        one.child()[key] = port
        if agreed or one is settings[0]:
            one.child()["non_first_fragments"] = "yes"
    a, b = establish(daemon, esplanade_pair, settings)
    address, length = topology.b.host(version), 4000
    # The first ones may get lost while the sender learns how long fragments may be.
    listener = topology.host_b.start([sys.executable, "-c", LISTEN, address, "5"], stdout=subprocess.PIPE)
    try:
        assert listener.popen.stdout.readline() == b"ready\n"
        topology.host_a.run([sys.executable, "-c", SEND, address, str(length), "10"], timeout=30)
        lengths = [int(listener.popen.stdout.readline()) for _ in range(5)]
    finally:
        listener.stop()
    assert lengths == [length] * 5
    assert (a.counter("io.reassembled") == 0) == agreed
    for reason in ("unknown-fragment", "fragment-refused", "selector-mismatch"):
        assert b.counter(f"drops.{reason}") == 0, reason
