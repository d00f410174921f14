"""IKE_AUTH with a long chain of certificates, over paths that drop IP fragments (RFC 7383)."""

import re

import pytest
from ends import ENDS, esplanade_pair, establish, every_end, ids, start
from harness.namespaces import Topology
from harness.pki import Authority
from harness.settings import ID_A, ID_B, pair
from harness.traffic import ping

PATH_MTU = 1280
# Wider than the smallest fragments over IPv4, and narrower than the others.
NARROW_MTU = 700
narrow_path = pytest.mark.parametrize("topology", [{"mtu": PATH_MTU}], indirect=True, ids=["mtu-1280"])
WITH_CHARON = pytest.mark.parametrize("ends", ENDS[:2], ids=ids)


@pytest.fixture(scope="session")
def issuer(tmp_path_factory):
    """The second of two intermediate authorities. Every key has 4096 bits."""
    folder = tmp_path_factory.mktemp("chain")
    root = Authority(folder, "rsa4096", "Root")
    return Authority(folder, "rsa4096", "Second", Authority(folder, "rsa4096", "First", root))


def drop_ip_fragments(topology):
    topology.wan.run(["nft", "-f", "-"], stdin=(
        "table inet narrow {\nchain forward {\ntype filter hook forward priority -500;\n"
        "meta nfproto ipv4 ip frag-off & 0x3fff != 0 counter drop\n"
        "meta nfproto ipv6 exthdr frag exists counter drop\n}\n}\n"))


def dropped(topology):
    rules = topology.wan.run(["nft", "list", "table", "inet", "narrow"]).stdout
    return sum(int(count) for count in re.findall(r"counter packets (\d+)", rules))


def settings_of(topology, issuer, **options):
    root = issuer.issuer.issuer.certificate
    identities = issuer.identity(ID_A), issuer.identity(ID_B)
    both = pair(topology, inner=4, identities=identities, authority=root, **options)
    for settings in both:
        # charon looks for its own intermediate authorities among all it knows.
        settings.authorities.extend(issuer.chain())
    return both


def assert_fragmented(end):
    if end.kind == "esplanade":
        for counter in ("fragments-sent", "fragments-received", "messages-reassembled"):
            assert end.counter(counter) > 0, counter
        assert end.sas()["site"][0]["fragmentation"] == "yes"
    else:
        assert "splitting IKE message" in end.logs()


# RFC 7383 R1, R5, R6, R9, R11, R18
@narrow_path
@pytest.mark.parametrize("ike", ["aes128gcm16-prfsha256-x25519", "aes256-sha384-ecp384"], ids=["aead", "cbc"])
@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
@every_end
def test_a_long_chain_passes_where_ip_fragments_do_not(ends, outer, ike, topology: Topology, daemon, issuer):
    drop_ip_fragments(topology)
    a, b = establish(daemon, ends, settings_of(topology, issuer, outer=outer, ike=ike))
    assert ping(topology.host_a, topology.b.host4) == 3
    assert_fragmented(a)
    assert_fragmented(b)
    assert dropped(topology) == 0


@narrow_path
@pytest.mark.parametrize("off", ["a", "b"])
@pytest.mark.esplanade_only
def test_without_fragmentation_it_does_not_pass(off, topology, daemon, issuer):
    drop_ip_fragments(topology)
    settings = settings_of(topology, issuer)
    settings["ab".index(off)].connections["site"]["fragmentation"] = "no"
    a, _ = start(daemon, esplanade_pair, settings, retransmit_tries=1)
    assert a.up(check=False).returncode != 0
    assert dropped(topology) > 0
    assert a.counter("fragments-sent") == 0


@narrow_path
@WITH_CHARON
def test_accept_takes_fragments_and_sends_none(ends, topology, daemon, issuer):
    """The path lets IP fragments pass."""
    settings = settings_of(topology, issuer)
    at = ends.index("esplanade")
    settings[at].connections["site"]["fragmentation"] = "accept"
    ours = establish(daemon, ends, settings)[at]
    assert ping(topology.host_a, topology.b.host4) == 3
    if ours.kind == "esplanade":
        assert ours.counter("fragments-sent") == 0
        assert ours.counter("messages-reassembled") == 1


# RFC 7383 R13, R15, R21
@narrow_path
@every_end
def test_fragments_get_smaller_on_a_still_narrower_path(ends, topology, daemon, issuer):
    """No ICMP error tells of it. charon does not make its fragments smaller, so it is told the length."""
    drop_ip_fragments(topology)
    for space, device in ((topology.wan, "to_b"), (topology.gw_b, "wan")):
        space.run(["ip", "link", "set", device, "mtu", NARROW_MTU])
    topology.wan.run(["nft", "-f", "-"], stdin=(
        "table inet silent { chain out { type filter hook output priority 0;\n"
        "icmp type destination-unreachable drop; }; }\n"))
    a, b = (daemon(kind, end, retransmit_tries=5, **({"extra": "fragment_size = 576"} if kind == "charon" else {}))
            for kind, end in zip(ends, "ab"))
    settings = settings_of(topology, issuer)
    b.start(settings[1])
    a.start(settings[0])
    a.up(timeout=40)
    a.wait_installed()
    b.wait_installed()
    assert_fragmented(a)
    assert_fragmented(b)
