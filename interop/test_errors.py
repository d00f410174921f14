"""What cannot work ends in a clear error, and the tunnel beside it does not notice."""

import pytest
from ends import ENDS, every_end, ids, start
from harness.namespaces import SECOND_B4
from harness.process import wait_until
from harness.settings import ID_A, ID_B, add_second, pair
from harness.traffic import Flow, assert_ping, send


def pair_and_second(topology, **options):
    """A connection for the test to spoil, and a sound one."""
    settings = pair(topology, inner=4, **options)
    add_second(*settings)
    for one in settings:
        one.connections["site"]["keyingtries"] = 1
    return settings


def good_tunnel(topology, daemon, ends, settings, **options):
    """Starts both daemons; the sound connection is up and carries a flow."""
    a, b = start(daemon, ends, settings, **options)
    a.up("second-net")
    a.wait_installed("second")
    return a, b, Flow(topology.host_a, topology.host_b, SECOND_B4)


def assert_told(b, *words: str):
    """A responder that is ours logs one warning with the peer's address and all of these."""
    if b.kind == "esplanade":
        def lines():
            return [line for line in b.logs().splitlines() if "WARN" in line and "refused a peer" in line]

        # A thread writes the log, so that the line can come after the refusal.
        told = wait_until("the refusal is in the log", lines)
        assert len(told) == 1 and "remote=172.16.1.2:" in told[0], told
        assert all(word in told[0] for word in words), told


def assert_refused(a, b, flow, *, says, child: str = "net", connection: str = "site"):
    """`up` fails and says why; nothing of the connection is left; the other tunnel lost nothing."""
    failed = a.up(child, check=False)
    assert failed.returncode != 0
    if a.kind == "esplanade":
        text = failed.stderr + failed.stdout
        assert failed.returncode == 1, text
        assert any(word.lower() in text.lower() for word in says), f"`up` said: {text}"
    assert not a.installed(connection)
    wait_until("no child at B", lambda: not b.installed(connection))
    # Nothing may happen to the other tunnel after the refusal.
    flow.go_on(total=51)
    report = flow.stop()
    assert (report.lost, report.duplicates, report.corrupt) == (0, 0, 0), report
    assert len(a.installed("second")) == 1 and len(b.installed("second")) == 1


@every_end
# RFC 7296 R150
def test_wrong_psk(ends, topology, daemon):
    settings = pair_and_second(topology)
    settings[0].secrets["ike-1"]["secret"] = "not the one"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["authentication"])
    if b.kind == "esplanade":
        assert b.counter("ike.refused.authentication-failed") == 1
    assert_told(b, "reason=\"authentication-failed\"", ID_A, ID_B)


@every_end
def test_certificate_of_another_authority(ends, topology, daemon, authorities):
    good, rogue = authorities("ecdsa"), authorities("ecdsa", "Rogue CA")
    identities = rogue.identity(ID_A), good.identity(ID_B)
    settings = pair_and_second(topology, identities=identities, authority=good.certificate)
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["authentication"])
    assert_told(b, "reason=\"authentication-failed\"", ID_A)


@every_end
def test_certificate_of_the_responder_is_of_another_authority(ends, topology, daemon, authorities):
    good, rogue = authorities("ecdsa"), authorities("ecdsa", "Rogue CA")
    identities = good.identity(ID_A), rogue.identity(ID_B)
    settings = pair_and_second(topology, identities=identities, authority=good.certificate)
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["certificate", "authentication", "issuer"])


@every_end
def test_certificate_with_another_name(ends, topology, daemon, authorities):
    """A valid certificate, but the identity that is claimed is not in it."""
    authority = authorities("ecdsa")
    identities = authority.identity("somebody-else.esplanade.test"), authority.identity(ID_B)
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    # Its own name is what is sent: the responder expects another.
    settings[0].connections["site"]["local"]["id"] = "somebody-else.esplanade.test"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["authentication"])


@every_end
# RFC 7296 R216
def test_no_common_ike_proposal(ends, topology, daemon):
    settings = pair_and_second(topology)
    settings[0].connections["site"]["proposals"] = "aes256-sha512-modp4096"
    # Before the identities are known, any connection of these addresses may match: all must differ.
    settings[1].connections["site"]["proposals"] = "aes128gcm16-prfsha256-ecp384"
    settings[1].connections["second"]["proposals"] = "aes128gcm16-prfsha256-x25519"
    settings[0].connections["second"]["proposals"] = "aes128gcm16-prfsha256-x25519"
    a, b = start(daemon, ends, settings)
    a.up("second-net")
    flow = Flow(topology.host_a, topology.host_b, SECOND_B4)
    assert_refused(a, b, flow, says=["proposal"])
    assert_told(b, "reason=\"no-proposal-chosen\"", "AES_CBC-256/AUTH_HMAC_SHA2_512_256", "site: AES_GCM_16-128")


@every_end
def test_no_common_esp_proposal(ends, topology, daemon):
    settings = pair_and_second(topology)
    settings[0].child()["esp_proposals"] = "aes256-sha512"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["proposal"])
    assert_told(b, "reason=\"no-proposal-chosen\"", "AES_CBC-256", "net: AES_GCM_16-128", ID_A)


@every_end
# RFC 7296 R110
def test_unacceptable_selectors(ends, topology, daemon):
    settings = pair_and_second(topology)
    settings[0].child()["remote_ts"] = "10.77.0.0/16"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["selector", "ts_unacceptable"])


@every_end
def test_unknown_identity(ends, topology, daemon):
    settings = pair_and_second(topology)
    settings[0].connections["site"]["local"]["id"] = "stranger.esplanade.test"
    settings[0].secrets["ike-1"]["id-c"] = "stranger.esplanade.test"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["authentication"])


@every_end
def test_peer_is_silent(ends, topology, daemon):
    """Nobody answers at the address: given up after the retransmissions, with that reason."""
    settings = pair_and_second(topology)
    settings[0].connections["silent"] = dict(settings[0].connections["site"], remote_addrs="172.16.2.77",
                                             children={"silent-net": dict(settings[0].child(), remote_ts="10.77.0.0/16")})
    a, b, flow = good_tunnel(topology, daemon, ends, settings, retransmit_timeout=0.3, retransmit_tries=2)
    assert_refused(a, b, flow, says=["answer", "respon", "timed out"], child="silent-net", connection="silent")


@every_end
def test_peer_vanishes_in_mid_exchange(ends, topology, daemon):
    """IKE_SA_INIT is answered, IKE_AUTH is not."""
    settings = pair_and_second(topology)
    a, b = start(daemon, ends, settings, retransmit_timeout=0.3, retransmit_tries=2)
    # The exchange type, 35, is the 19th byte of an IKE message; without a NAT it stays on port 500.
    topology.wan.run(["nft", "-f", "-"], stdin=(
        "table inet block {\nchain forward {\ntype filter hook forward priority 0;\n"
        "udp dport 500 @th,208,8 35 drop\nudp dport 4500 drop\n}\n}\n"))
    failed = a.up(check=False)
    assert failed.returncode != 0
    if a.kind == "esplanade":
        text = failed.stderr + failed.stdout
        assert any(word in text.lower() for word in ("answer", "respon", "timed out")), text
    assert not a.installed() and not b.installed()
    # Once the path is good again, so is the tunnel.
    topology.wan.run(["nft", "flush", "ruleset"])
    a.up()
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_the_same_configuration_at_both_ends(topology, daemon):
    """Copied by mistake: each believes itself to be the other's peer."""
    settings = pair_and_second(topology)
    twin = settings[0].copy()
    twin.connections["site"]["local_addrs"] = topology.b.wan4
    twin.connections["site"]["remote_addrs"] = topology.a.wan4
    a, b = start(daemon, ENDS[2], (settings[0], twin))
    failed = a.up(check=False)
    assert failed.returncode == 1
    assert not a.installed() and not b.installed()
    # The literal copy, addresses and all: B does not even own them.
    b.load(settings[0])
    assert a.up(check=False).returncode == 1
    assert a.ready() and b.ready()


@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
@pytest.mark.esplanade_only
def test_hostile_datagrams_on_the_ike_ports(ends, topology, daemon):
    """Rubbish, truncated and oversized messages, an empty datagram: counted, and nothing else happens."""
    settings = pair_and_second(topology)
    a, b, flow = good_tunnel(topology, daemon, (ends[1], ends[0]), settings)
    header = bytes.fromhex("0102030405060708000000000000000021202208000000000000001c")
    hostile = [b"", b"\0", b"\0" * 4, b"\xff", header[:27], header, header[:-4] + b"\xff\xff\xff\xff",
               header[:-4] + b"\0\0\0\0", header[:17] + b"\x30" + header[18:], b"\xa5" * 60000, bytes(1400),
               header + bytes(range(256)) * 4]
    for port in (500, 4500):
        send(topology.wan, topology.b.wan4, port, [marker + one for one in hostile for marker in (b"", bytes(4))])
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    report = flow.stop()
    assert (report.lost, report.duplicates, report.corrupt) == (0, 0, 0), report
    assert b.counter("ike.refused.malformed") > 0
