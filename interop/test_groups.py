"""Attribute certificates of strongSwan's `pki` prove the groups that a peer is in. Debian's charon sends and takes
attribute certificates, and has no plugin that judges them."""

import shutil

import pytest
from ends import ENDS, esplanade_pair, establish, ids, start
from harness.pki import EXPIRED, attributes
from harness.process import wait_until
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping
from test_choice import roadwarriors
from test_errors import assert_refused, assert_told, good_tunnel, pair_and_second

pytestmark = pytest.mark.skipif(not shutil.which("pki"), reason="pki is not installed (tools/deps.sh)")
# The responder judges.
to_esplanade = pytest.mark.parametrize("ends", [ends for ends in ENDS if ends[1] == "esplanade"], ids=ids)
# The initiator judges.
from_esplanade = pytest.mark.parametrize("ends", [ends for ends in ENDS if ends[0] == "esplanade"], ids=ids)


@pytest.fixture
def authority(authorities):
    return authorities("ecdsa", "Root of members")


@pytest.fixture
def identities(authority):
    return authority.identity(ID_A), authority.identity(ID_B)


@pytest.fixture
def issuer(authority):
    return authority.attribute_authority("attribute-authority")


def member(settings, file, *, of: int = 0):
    """The end `of` has this attribute certificate."""
    settings[of].attribute_certificates.append(file)
    return settings


def demand(settings, issuer, groups: str, *, by: int = 1):
    """The end `by` asks for one of the groups, and trusts the issuer."""
    settings[by].connections["site"]["remote"]["groups"] = groups
    settings[by].attribute_authorities.append(issuer.certificate)
    return settings


def groups(end) -> list[str]:
    (sa,) = end.sas()["site"]
    return sa["groups"]


@to_esplanade
def test_the_initiator_is_in_a_group(ends, topology, daemon, authority, identities, issuer):
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    member(settings, attributes(issuer, identities[0], "Research", "Development"))
    a, b = establish(daemon, ends, demand(settings, issuer, "Board, development"))
    assert_ping(topology.host_a, topology.b.host4)
    assert groups(b) == ["development"]
    assert "groups  development" in b.command("status").stdout
    wait_until("the log names the group", lambda: "groups=\"development\"" in b.logs())


@from_esplanade
def test_the_responder_is_in_a_group(ends, topology, daemon, authority, identities, issuer):
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    member(settings, attributes(issuer, identities[1], "Gateways"), of=1)
    a, _ = establish(daemon, ends, demand(settings, issuer, "Gateways", by=0))
    assert_ping(topology.host_a, topology.b.host4)
    assert groups(a) == ["Gateways"]


@to_esplanade
@pytest.mark.parametrize("group", ["Research", "Accounting"])
def test_connections_differ_by_their_groups(ends, group, topology, daemon, authority, identities, issuer):
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    member(settings, attributes(issuer, identities[0], group))
    settings[1].attribute_authorities.append(issuer.certificate)
    roadwarriors(settings[1], **{name.lower(): {"remote": {"groups": name}} for name in ("Research", "Accounting")})
    for name, connection in settings[1].connections.items():
        if name != group.lower():
            # Of two policies for the same traffic, the first would take it.
            connection["children"][f"{name}-net"]["remote_ts"] = "10.77.0.0/16"
    a, b = start(daemon, ends, settings)
    a.up()
    b.wait_installed(group.lower())
    assert_ping(topology.host_a, topology.b.host4)


def refused_initiator(ends, topology, daemon, authority, identities, issuer, files, *told: str):
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    for file in files:
        member(settings, file)
    a, b, flow = good_tunnel(topology, daemon, ends, demand(settings, issuer, "Research"))
    assert_refused(a, b, flow, says=["authentication"])
    assert_told(b, "it takes one of the groups Research", *told)


@to_esplanade
def test_another_group(ends, topology, daemon, authority, identities, issuer):
    files = [attributes(issuer, identities[0], "Accounting")]
    refused_initiator(ends, topology, daemon, authority, identities, issuer, files, "those proved are Accounting")


@to_esplanade
def test_an_expired_attribute_certificate(ends, topology, daemon, authority, identities, issuer):
    # Who has it does not send it. The gateway that asks for the group has it too.
    file = attributes(issuer, identities[0], "Research", validity=EXPIRED)
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    for of in (0, 1):
        member(settings, file, of=of)
    a, b, flow = good_tunnel(topology, daemon, ends, demand(settings, issuer, "Research"))
    assert_refused(a, b, flow, says=["authentication"])
    assert_told(b, "it expired at 2024-02-01T00:00:00Z")


@to_esplanade
def test_no_attribute_certificate(ends, topology, daemon, authority, identities, issuer):
    refused_initiator(ends, topology, daemon, authority, identities, issuer, [], "no attribute certificate")


@to_esplanade
def test_an_unknown_issuer(ends, topology, daemon, authority, identities, issuer):
    """The authority of the certificates has certified it, and the administrator has not named it."""
    other = authority.attribute_authority("other-authority")
    files = [attributes(other, identities[0], "Research")]
    refused_initiator(ends, topology, daemon, authority, identities, issuer, files, "is called", "CN=other-authority")


@to_esplanade
def test_the_attribute_certificate_of_another(ends, topology, daemon, authority, identities, issuer):
    """It is for the peer's own name, but not for its certificate."""
    namesake = authority.identity(ID_A, "subjectKeyIdentifier=hash\n")
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    member(settings, attributes(issuer, namesake, "Research"), of=1)
    a, b, flow = good_tunnel(topology, daemon, ends, demand(settings, issuer, "Research"))
    assert_refused(a, b, flow, says=["authentication"])
    assert_told(b, "no attribute certificate")


def test_an_initiator_refuses_a_responder_of_another_group(topology, daemon, authority, identities, issuer):
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    member(settings, attributes(issuer, identities[1], "Accounting"), of=1)
    ends = ("esplanade", "charon")
    a, b, flow = good_tunnel(topology, daemon, ends, demand(settings, issuer, "Research", by=0))
    assert_refused(a, b, flow, says=["those proved are Accounting"])


@pytest.mark.parametrize("ends", ENDS[:2], ids=ids)
def test_charon_gets_our_attribute_certificate(ends, topology, daemon, authority, identities, issuer):
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    ours = ends.index("esplanade")
    for groups in (["Research"], ["Accounting", "Sales"]):
        member(settings, attributes(issuer, identities[ours], *groups), of=ours)
    # Those of others and expired ones stay here.
    member(settings, attributes(issuer, identities[1 - ours], "Research"), of=ours)
    member(settings, attributes(issuer, identities[ours], "Board", validity=EXPIRED), of=ours)
    both = establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
    line = f'received attribute certificate issued by "O=Interop, CN={issuer.name}"'
    assert both[1 - ours].logs().count(line) == 2


def test_a_reload_reads_new_attribute_certificates(topology, daemon, authority, identities, issuer):
    """The administrator of B adds the attribute certificate of A."""
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    a, b = start(daemon, esplanade_pair, demand(settings, issuer, "Research"))
    assert a.up(check=False).returncode != 0
    b.write(member(settings, attributes(issuer, identities[0], "Research"), of=1)[1])
    assert "attribute certificates have changed" in b.command("reload").stdout
    a.up()
    b.wait_installed()
    assert groups(b) == ["Research"]
    # Another authority has proved nothing.
    other = authority.attribute_authority("other-authority")
    settings[1].attribute_authorities[:] = [other.certificate]
    b.write(settings[1])
    assert "changed: site" in b.command("reload").stdout
    wait_until("the IKE SA has ended", lambda: not b.installed())
