"""OpenIKED as a third peer for the IKE exchanges. Each end has the proposals that it has by default.

What stands in for OpenIKED's kernel takes its SAs, so that they stay up and can be rekeyed and deleted. No ESP passes.
Instead, the keys that OpenIKED gives to its kernel are compared with ours.
"""

import csv

import pytest
from harness.capture import Informational
from harness.process import wait_until
from harness.settings import ID_A, ID_B, PSK, pair

# The exported keys are ours alone.
pytestmark = pytest.mark.esplanade_only
WIDE = "from 10.0.0.0/8 to 10.0.0.0/8"
each_initiator = pytest.mark.parametrize("initiator", ["we", "openiked"])


def settle(topology, daemon, iked, initiator, *, outer=4, secret=PSK, pfs=False, protocol="esp", mode="tunnel", flow="",
           options="", first="", **certificates):
    """Both daemons, started. OpenIKED initiates two seconds after its start, if it does."""
    settings = pair(topology, inner=4, outer=outer, **certificates)[0]
    site, child = settings.connections["site"], settings.child()
    del site["proposals"], child["esp_proposals"]
    site["dpd_delay"] = "1s"
    child["mode"] = mode
    if pfs:
        child["esp_proposals"] = "aes256-sha512-x25519"
    if protocol == "ah":
        child["ah_proposals"] = "default"
    if mode == "transport":
        child["local_ts"], child["remote_ts"] = topology.a.wan(outer), topology.b.wan(outer)
    # OpenIKED leaves one request without an answer.
    a = daemon("esplanade", "a", retransmit_timeout=0.3)
    a.start(settings)
    # The order is that of its grammar.
    policy = [
        'ikev2 "site"', "active" if initiator == "openiked" else "passive", mode, protocol,
        flow or f'from {child["remote_ts"]} to {child["local_ts"]}',
        f"local {topology.b.wan(outer)} peer {topology.a.wan(outer)}",
        "childsa enc aes-256 auth hmac-sha2-512 group curve25519" if pfs else "",
        f"srcid {ID_B} dstid {ID_A}", options, "" if certificates else f'psk "{secret}"']
    iked.start(f"{first}\n{' '.join(policy)}\n")
    return a


def establish(topology, daemon, iked, initiator, **options):
    a = settle(topology, daemon, iked, initiator, **options)
    if initiator == "we":
        a.up()
    a.wait_installed()
    assert_same_sas(a, iked)
    return a


def child_spis(a):
    return {int(child[way], 16) for child in a.children() for way in ("spi-in", "spi-out")}


def inbound_spi(a):
    """Of OpenIKED."""
    return int(a.children()[0]["spi-out"], 16)


def ike_spis(a):
    return {sa["initiator-spi"] for sa in a.sas()["site"]}


def exported_keys(a):
    """By SPI: the key of the cipher, and behind it that of the integrity algorithm."""
    found = {}
    for line in a.key_lines():
        table, _, entry = line.partition(":")
        fields = next(csv.reader([entry]))
        if table == "esp_sa":
            found[int(fields[3], 16)] = bytes.fromhex(fields[5][2:] + fields[7][2:])
        elif table == "ipsec_sa":
            found[int(fields[2], 16)] = bytes.fromhex(fields[5][2:])
    return found


def assert_same_sas(a, iked):
    """Each end has one child SA, with the same keys."""
    wait_until("the SAs are the same", lambda: len(a.children()) == 1 and child_spis(a) == set(iked.kernel_sas()))
    ours = exported_keys(a)
    assert all(ours[spi] == key for spi, key in iked.kernel_sas().items())


@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
@each_initiator
def test_default_proposals(initiator, outer, topology, daemon, iked):
    """For ESP, OpenIKED on Linux has neither AES-GCM nor SHA-256."""
    child = establish(topology, daemon, iked, initiator, outer=outer).children()[0]
    assert (child["encr-alg"], child["integ-alg"]) == ("AES_CBC", "HMAC_SHA2_384_192")


@pytest.mark.parametrize("topology", [{"nat": True}], indirect=True)
def test_openiked_is_behind_a_nat(topology, daemon, iked):
    a = establish(topology, daemon, iked, "openiked")
    assert a.sas()["site"][0]["local-port"] == "4500"


@each_initiator
def test_ecdsa(initiator, topology, daemon, iked, authorities):
    establish(topology, daemon, iked, initiator, **certificates(iked, authorities("ecdsa")))


@each_initiator
def test_rsa_in_fragments(initiator, topology, daemon, iked, authorities):
    options = certificates(iked, authorities("rsa"))
    a = establish(topology, daemon, iked, initiator, first="set fragmentation", **options)
    assert a.counter("ike.fragments-sent") and a.counter("ike.messages-reassembled") == 1


def certificates(iked, authority):
    identities = authority.identity(ID_A), authority.identity(ID_B)
    iked.trust(authority.certificate, identities[1])
    return {"identities": identities, "authority": authority.certificate}


def test_liveness(topology, daemon, iked):
    """OpenIKED answers. It asks by itself only after five minutes without a message."""
    a = establish(topology, daemon, iked, "we")
    before = ike_spis(a)
    # Nothing may happen to the SA for three checks.
    Informational(topology).wait(3)
    assert ike_spis(a) == before


@pytest.mark.parametrize("pfs", [False, True], ids=["no-pfs", "pfs"])
@each_initiator
def test_either_end_rekeys_the_child(initiator, pfs, topology, daemon, iked):
    a = establish(topology, daemon, iked, initiator, pfs=pfs)
    a.rekey_child()
    assert_same_sas(a, iked)
    old = child_spis(a)
    iked.expire(inbound_spi(a))
    wait_until("OpenIKED has rekeyed", lambda: old.isdisjoint(child_spis(a)))
    assert_same_sas(a, iked)


@each_initiator
def test_we_rekey_the_ike_sa(initiator, topology, daemon, iked):
    """Where OpenIKED had initiated, it does not answer our DELETE of the old IKE SA. We give that up after a while."""
    a = establish(topology, daemon, iked, initiator)
    child = child_spis(a)
    a.rekey_ike()
    assert child_spis(a) == child
    assert_good_for_requests(a, iked)


@each_initiator
def test_openiked_rekeys_the_ike_sa(initiator, topology, daemon, iked):
    """It does so before this time is over. The next time is not within this test."""
    a = establish(topology, daemon, iked, initiator, options="ikelifetime 5")
    old, child = ike_spis(a), child_spis(a)
    wait_until("OpenIKED has rekeyed", lambda: old.isdisjoint(ike_spis(a)))
    assert child_spis(a) == child
    assert_good_for_requests(a, iked)


def assert_good_for_requests(a, iked):
    """Of the new IKE SA."""
    a.rekey_child()
    assert_same_sas(a, iked)
    assert len(iked.ike_sas()) == 1


def test_we_delete(topology, daemon, iked):
    a = establish(topology, daemon, iked, "we")
    a.down_child()
    wait_until("OpenIKED has no child SA", lambda: not iked.kernel_sas())
    a.up()
    assert_same_sas(a, iked)
    a.down()
    wait_until("OpenIKED has no IKE SA", lambda: not iked.ike_sas())
    assert not iked.kernel_sas()


def test_openiked_deletes(topology, daemon, iked):
    a = establish(topology, daemon, iked, "we")
    iked.expire(inbound_spi(a), hard=True)
    wait_until("we have no child SA", lambda: not a.children())
    a.up()
    assert_same_sas(a, iked)
    iked.reset(ID_A)
    a.wait_gone()
    assert not iked.kernel_sas()


@each_initiator
def test_another_secret_is_refused(initiator, topology, daemon, iked):
    a = settle(topology, daemon, iked, initiator, secret="not the one")
    if initiator == "we":
        refused = a.up(check=False)
        assert refused.returncode == 1
        assert "authentication" in (refused.stdout + refused.stderr).lower()
    else:
        wait_until("OpenIKED is told", lambda: "AUTHENTICATION_FAILED" in iked.logs())
        assert a.counter("ike.refused.authentication-failed") == 1
    assert not a.installed() and not iked.kernel_sas()


def test_narrowed_selectors(topology, daemon, iked):
    a = settle(topology, daemon, iked, "openiked", flow=WIDE)
    child = a.wait_installed()
    assert (child["local-ts"], child["remote-ts"]) == ([topology.a.lan4], [topology.b.lan4])


def test_wide_selectors_are_refused(topology, daemon, iked):
    """OpenIKED does not narrow: it answers with those of its policy."""
    a = settle(topology, daemon, iked, "we", flow=WIDE)
    refused = a.up(check=False)
    assert refused.returncode == 1 and "its traffic selectors are wider than ours" in refused.stderr
    assert not a.children()


def test_transport_mode(topology, daemon, iked):
    a = establish(topology, daemon, iked, "we", mode="transport")
    assert a.children()[0]["mode"] == "TRANSPORT"


def test_ah(topology, daemon, iked):
    a = establish(topology, daemon, iked, "we", protocol="ah")
    assert a.children()[0]["protocol"] == "AH"


def test_ah_with_a_cipher_is_refused(topology, daemon, iked):
    """That is what OpenIKED offers: with it, AH comes up only where we initiate."""
    a = settle(topology, daemon, iked, "openiked", protocol="ah")
    wait_until("OpenIKED is told", lambda: "NO_PROPOSAL_CHOSEN" in iked.logs())
    assert a.counter("ike.refused.no-proposal-chosen") == 1
    assert not a.children() and not iked.kernel_sas()
