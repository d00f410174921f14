"""Certificates that have been revoked, with CRLs beside the configuration."""

import pytest
from ends import every_end, esplanade_pair, establish, start
from harness.pki import Authority
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping
from test_errors import assert_refused, assert_told, good_tunnel, pair_and_second


@pytest.fixture
def authority(authorities):
    return authorities("ecdsa", "Revoking CA")


@pytest.fixture
def identities(authority):
    return authority.identity(ID_A), authority.identity(ID_B)


def with_policy(settings, policy):
    for one in settings:
        one.connections["site"]["remote"]["revocation"] = policy
    return settings


@every_end
def test_a_revoked_initiator(ends, topology, daemon, authority, identities):
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    settings[1].crls.append(authority.crl(identities[0]))
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["authentication"])
    assert_told(b, "was revoked at", f"CN={ID_A}", "keyCompromise")


@every_end
def test_a_revoked_responder(ends, topology, daemon, authority, identities):
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    settings[0].crls.append(authority.crl(identities[1]))
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["was revoked at"])


@every_end
@pytest.mark.parametrize("policy", ["strict", "ifuri", "relaxed"])
def test_a_good_certificate(ends, policy, topology, daemon, authority, identities):
    settings = with_policy(pair(topology, inner=4, identities=identities, authority=authority.certificate), policy)
    for one in settings:
        one.crls.append(authority.crl())
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)


@every_end
def test_strict_without_a_crl(ends, topology, daemon, authority, identities):
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    a, b, flow = good_tunnel(topology, daemon, ends, with_policy(settings, "strict"))
    assert_refused(a, b, flow, says=["authentication", "there is no CRL"])


def test_a_reload_reads_new_crls(topology, daemon, authority, identities):
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    settings[1].crls.append(authority.crl())
    a, b = establish(daemon, esplanade_pair, settings)
    assert [crl["entries"] for crl in b.status()["crls"].values()] == [0]
    settings[1].crls[:] = [authority.crl(identities[0])]
    b.write(settings[1])
    assert "CRLs have changed" in b.command("reload").stdout
    crl = b.status()["crls"]["0"]
    assert crl["issuer"] == "O=Interop, CN=Revoking-CA" and crl["entries"] == 1
    assert_ping(topology.host_a, topology.b.host4)
    a.down()
    assert a.up(check=False).returncode != 0
    assert_told(b, "was revoked at")


def test_a_file_is_replaced_by_what_its_issuer_has_signed(topology, daemon, folder, authority, identities):
    """A revocation stays when a reload finds an older CRL, a stranger's, or none."""
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    older, lists, newer = authority.crl(), authority.crl(identities[0]), authority.crl()
    stranger = Authority(folder / "stranger", authority.kind, authority.name).crl()
    settings[1].crls.append(lists)
    a, b = start(daemon, esplanade_pair, settings)
    assert a.up(check=False).returncode != 0
    assert_told(b, "was revoked at")
    for crls in ([older], [stranger], []):
        settings[1].crls[:] = crls
        b.load(settings[1])
        assert a.up(check=False).returncode != 0, crls
        assert not b.installed("site")
    settings[1].crls[:] = [newer]
    b.load(settings[1])
    a.up()
    a.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
