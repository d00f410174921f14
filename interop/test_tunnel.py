"""Tunnels come up and carry traffic: who initiates, how they authenticate, which suites, over what."""

import pytest
from ends import ENDS, each_end, esplanade_pair, establish, every_end, ids, start, with_peer
from harness.capture import Capture, dissect
from harness.namespaces import A, B, SECOND_B4, SECOND_LAN_A4, SECOND_LAN_B4
from harness.oracle import esp_packets
from harness.settings import ID_A, ID_B, pair
from harness.process import wait_until
from harness.traffic import Flow, assert_ping, assert_whole, exercise, ping, transfer


@pytest.mark.parametrize("encap", [False, True], ids=["encap-off", "encap-on"])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
@each_end
# RFC 4301 R7, R69
def test_psk(ends, outer, encap, topology, daemon, folder, needs_capture):
    """Both inner versions in both outer ones, through one child SA."""
    wire = Capture(topology, folder / "wire.pcap")
    a, b = establish(daemon, ends, pair(topology, outer=outer, encap=encap))
    exercise(topology)
    packets = esp_packets(wire.stop())
    assert packets, "no ESP on the wire"
    # charon's ESP in user space only knows UDP, so it always claims to be behind a NAT.
    expect_udp = encap or {a.kind, b.kind} != {"esplanade"}
    assert {packet.udp is not None for packet in packets} == {expect_udp}


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ecdsa384", "ecdsa521", "ed25519"])
@every_end
# RFC 7296 R128
def test_certificates(ends, kind, topology, daemon, authorities):
    authority = authorities(kind)
    identities = authority.identity(ID_A), authority.identity(ID_B)
    establish(daemon, ends, pair(topology, inner=4, identities=identities, authority=authority.certificate))
    assert_ping(topology.host_a, topology.b.host4, count=5)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=300_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=300_000)


@pytest.mark.one_direction
@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ecdsa384", "ecdsa521"])
@with_peer
# RFC 7296 R239
def test_certificates_without_signature_hashes(ends, kind, topology, daemon, authorities):
    """A peer without RFC 7427 signs with methods 1, 9, 10, 11, and takes no others."""
    authority = authorities(kind)
    identities = authority.identity(ID_A), authority.identity(ID_B)
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    daemons = []
    for daemon_kind, end, one in zip(ends, "ab", settings):
        if daemon_kind == "esplanade":
            one.connections["site"]["legacy"] = "yes"
        extra = {"extra": "signature_authentication = no"} if daemon_kind == "charon" else {}
        daemons.append(daemon(daemon_kind, end, **extra))
    a, b = daemons
    b.start(settings[1])
    a.start(settings[0])
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4, count=5)


SUITES = [
    # IKE proposal, ESP proposal, then what list-sas must call the ESP suite.
    ("aes128gcm16-prfsha256-x25519", "aes128gcm16", ("AES_GCM_16", "128", None)),
    ("aes256gcm16-prfsha384-ecp256", "aes256gcm16", ("AES_GCM_16", "256", None)),
    ("aes128-sha256-ecp384", "aes128-sha256", ("AES_CBC", "128", "HMAC_SHA2_256_128")),
    ("aes256-sha384-modp2048", "aes256-sha256", ("AES_CBC", "256", "HMAC_SHA2_256_128")),
    ("aes256-sha512-modp3072", "aes256gcm16-ecp256", ("AES_GCM_16", "256", None)),
    ("aes256-sha1-modp2048", "aes256-sha256", ("AES_CBC", "256", "HMAC_SHA2_256_128")),
    ("aes128gcm16-prfsha512-modp4096", "aes128-sha256-x25519", ("AES_CBC", "128", "HMAC_SHA2_256_128")),
    ("aes128-aesxcbc-ecp521", "aes128gcm16-ecp521", ("AES_GCM_16", "128", None)),
    ("aes256-aescmac-modp6144", "aes128gcm16", ("AES_GCM_16", "128", None)),
    ("aes128-sha256-prfaesxcbc-modp1024", "aes128gcm16-modp1536", ("AES_GCM_16", "128", None)),
    ("aes128gcm16-prfaescmac-modp1024s160", "aes128gcm16-modp2048s224", ("AES_GCM_16", "128", None)),
    ("aes128-sha256-modp2048s256", "aes128gcm16", ("AES_GCM_16", "128", None)),
]
LEGACY = ("sha1", "modp1024", "modp1536", "modp2048s")


def suite_of(child):
    return child["encr-alg"], child["encr-keysize"], child.get("integ-alg")


@pytest.mark.one_direction
@pytest.mark.parametrize("ike, esp, expected", SUITES, ids=[f"{ike}--{esp}" for ike, esp, _ in SUITES])
@every_end
# RFC 7296 R139, R227
def test_suites(ends, ike, esp, expected, topology, daemon):
    """Every group and every suite once; a group in the ESP proposal is used when the child is rekeyed."""
    settings = pair(topology, ike=ike, esp=esp, inner=4)
    for kind, one in zip(ends, settings):
        if kind == "esplanade" and any(name in ike + esp for name in LEGACY):
            one.connections["site"]["legacy"] = "yes"
    a, b = establish(daemon, ends, settings)
    for end in (a, b):
        child = end.installed()[0]
        assert suite_of(child) == expected
    assert_ping(topology.host_a, topology.b.host4, count=5)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=300_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=300_000)
    old = {child["spi-in"] for child in a.children()}
    a.rekey_child()
    wait_until("the new child SA alone", lambda: len(a.installed()) == 1 and len(a.children()) == 1
               and a.installed()[0]["spi-in"] not in old)
    assert_ping(topology.host_a, topology.b.host4, count=5)


@every_end
# RFC 7296 R91, R210
def test_choice_among_several_proposals(ends, topology, daemon):
    """The initiator offers much, the responder accepts little: the common suite is taken."""
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["proposals"] = "aes256-sha512-modp2048,aes256gcm16-aes128gcm16-prfsha256-ecp256-x25519"
    settings[0].child()["esp_proposals"] = "aes256-sha512,aes256gcm16-aes128gcm16"
    a, _ = establish(daemon, ends, settings)
    child = a.installed()[0]
    assert suite_of(child) == ("AES_GCM_16", "128", None)
    assert_ping(topology.host_a, topology.b.host4)


@every_end
# RFC 7296 R4
def test_invalid_ke_retry(ends, topology, daemon, folder, needs_capture):
    """The initiator guesses x25519, the responder insists on ecp256: one more round trip."""
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["proposals"] = "aes128gcm16-prfsha256-x25519-ecp256"
    settings[1].connections["site"]["proposals"] = "aes128gcm16-prfsha256-ecp256"
    wire = Capture(topology, folder / "wire.pcap", "udp port 500")
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
    exchanges = [packet.exchange for packet in dissect(wire.stop()) if packet.exchange]
    assert exchanges[:4] == [34] * 4, "a second IKE_SA_INIT was to follow INVALID_KE_PAYLOAD"


@every_end
# RFC 7296 R83, R90
def test_a_cookie_and_another_group_are_demanded(ends, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["proposals"] = "aes128gcm16-prfsha256-x25519-ecp256"
    settings[1].connections["site"]["proposals"] = "aes128gcm16-prfsha256-ecp256"
    settings[1].gateway["cookie_threshold"] = 0
    _, b = establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
    if b.kind == "esplanade":
        # A request that is repeated is answered again, because nothing is kept of it.
        assert b.counter("cookie-required") >= 1
        assert b.counter("invalid-ke-payload") >= 1


@each_end
# RFC 7296 R113
def test_narrowed_selectors(ends, topology, daemon):
    """The initiator asks for the whole network, the responder grants a part of it."""
    settings = pair(topology, inner=4)
    settings[1].child()["local_ts"] = "10.2.0.0/24"
    a, _ = establish(daemon, ends, settings)
    assert a.installed()[0]["remote-ts"] == ["10.2.0.0/24"]
    assert_ping(topology.host_a, topology.b.host4)
    outside = "10.2.99.2"
    topology.host_b.run(["ip", "address", "add", f"{outside}/16", "dev", "lan"])
    assert ping(topology.host_a, outside, count=1, timeout=0.5) == 0, "traffic outside the selectors went through"


@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
# RFC 7296 R109, R111
def test_a_packet_asks_for_what_the_peer_narrows_away(ends, topology, daemon):
    """A has one child for two networks, B has one for each."""
    settings = pair(topology, inner=4)
    settings[0].child().update(local_ts=f"{A.lan4},{SECOND_LAN_A4}", remote_ts=f"{B.lan4},{SECOND_LAN_B4}",
                               start_action="trap")
    second = settings[1].child() | {"local_ts": SECOND_LAN_B4, "remote_ts": SECOND_LAN_A4}
    settings[1].connections["site"]["children"]["second"] = second
    a, _ = start(daemon, ends, settings)
    for target in topology.b.host4, SECOND_B4:
        wait_until("its SA", lambda: ping(topology.host_a, target, count=1, timeout=0.3))
    assert len(a.installed()) == 2


@pytest.mark.parametrize("topology", [{"nat": True}], indirect=True, ids=["nat"])
@each_end
# RFC 7296 R121, R170, R171
def test_behind_a_nat(ends, topology, daemon, folder, needs_capture):
    """B lives behind a masquerading router and initiates."""
    wire = Capture(topology, folder / "wire.pcap")
    settings = pair(topology)
    a, b = start(daemon, ends, settings)
    b.up()
    a.wait_installed()
    b.wait_installed()
    exercise(topology)
    packets = esp_packets(wire.stop())
    assert packets and all(packet.udp for packet in packets)
    assert b.sas()["site"][0].get("nat-local") == "yes"
    assert a.sas()["site"][0].get("nat-remote") == "yes"


@pytest.mark.parametrize("topology", [{"nat": True}], indirect=True, ids=["nat"])
@each_end
# RFC 7296 R174
def test_nat_gives_out_a_new_port(ends, topology, daemon):
    """The NAT box forgets its mappings: traffic from behind it re-opens the path and A follows."""
    settings = pair(topology, inner=4)
    if ends != ENDS[2]:
        # charon's ESP in user space does not tell it that packets come from elsewhere; an IKE message does.
        settings[1].connections["site"]["dpd_delay"] = "1s"
    a, b = start(daemon, ends, settings)
    b.up()
    a.wait_installed()
    b.wait_installed()
    assert_ping(topology.host_b, topology.a.host4)
    before = a.sas()["site"][0]["remote-port"]
    topology.forget_nat_mappings()
    wait_until("the tunnel works again", lambda: ping(topology.host_b, topology.a.host4, count=1, timeout=0.5))
    # charon replaces its child SA for the new port, and loses packets while it does so.
    wait_until("A reaches B", lambda: ping(topology.host_a, topology.b.host4, count=3, timeout=0.5) == 3)
    wait_until("A saw the new port", lambda: a.sas()["site"][0]["remote-port"] != before, timeout=5)


@pytest.mark.esplanade_only
def test_two_workers(topology, daemon):
    """Flows spread over two workers, each in order."""
    settings = pair(topology)
    for one in settings:
        one.gateway["workers"] = 2
    establish(daemon, esplanade_pair, settings)
    flows = [Flow(topology.host_a, topology.host_b, topology.b.host4, port=40100 + n, rate=300) for n in range(4)]
    exercise(topology)
    assert_whole(topology, *(flow.stop() for flow in flows))


@pytest.mark.esplanade_only
@pytest.mark.parametrize("inner", [4, 6], ids=["inner-v4", "inner-v6"])
def test_a_route_of_the_senders(inner, topology, daemon):
    """Super-segments with a source route or a routing header: their checksums are those of the last destination."""
    establish(daemon, esplanade_pair, pair(topology, inner=inner))
    for space in (topology.host_a, topology.host_b, topology.gw_a, topology.gw_b):
        space.run(["sh", "-c", "for f in /proc/sys/net/ipv6/conf/*/seg6_enabled "
                               "/proc/sys/net/ipv4/conf/*/accept_source_route; do echo 1 > $f; done"])
    via = topology.b.host(inner)
    last = via.rpartition(":" if inner == 6 else ".")[0] + (":77" if inner == 6 else ".77")
    topology.host_b.run(["ip", "address", "add", f"{last}/{64 if inner == 6 else 24}", "dev", "lan",
                         *(["nodad"] if inner == 6 else [])])
    transfer(topology.host_a, topology.host_b, last, size=1_000_000, via=via)
    errors = topology.host_b.run(["sh", "-c", "grep '^Tcp:' /proc/net/snmp"]).stdout.split("\n")
    names, values = errors[0].split(), errors[1].split()
    assert dict(zip(names, values))["InCsumErrors"] == "0"


@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
def test_packets_overtake_the_response(ends, topology, daemon):
    """The responder sends as soon as it has the child SA. Its first response is lost, and the next one comes late."""
    settings = pair(topology, inner=4)
    a, b = start(daemon, ends, settings, retransmit_timeout=0.3)
    is_ike_auth = ["udp sport 500 @th,208,8 35", "udp sport 4500 @th,64,32 0 @th,240,8 35"]
    rules = [f"ip saddr {topology.b.wan4} {one} limit rate 1/hour burst 1 packets drop\n" for one in is_ike_auth]
    topology.wan.run(["nft", "-f", "-"], stdin=(
        "table inet lossy {\nchain forward {\ntype filter hook forward priority 0;\n"
        f"{''.join(rules)}}}\n}}\n"))
    topology.start("host_b", ["ping", "-i", "0.02", topology.a.host4])
    a.up()
    wait_until("a packet has waited", lambda: a.counter("io.early-packets") > 0)
    assert a.counter("drops.unknown-spi") == 0
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
def test_started_by_traffic(ends, topology, daemon):
    """start_action = trap: the first packet brings the tunnel up."""
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "trap"
    a, b = start(daemon, ends, settings)
    assert not a.sas()
    wait_until("ping through the trap", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1))
    b.wait_installed()
    assert_ping(topology.host_b, topology.a.host4)
