"""Authorities between a root and the peer's certificate, which both gateways have in x509ca/."""

import pytest
from ends import ENDS, establish, every_end, ids, start
from harness.pki import Authority, Identity
from harness.process import run
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping
from harness.web import HOST, crl_server, publish

CRL_PORT = 8080
NAMES_CRL = f"crlDistributionPoints=URI:http://{HOST}:{CRL_PORT}/ca.crl\n"


class Between(Authority):
    """An intermediate authority whose certificate has further extensions."""

    def __init__(self, folder, name, issuer, extensions=""):
        super().__init__(folder, "ecdsa", name, issuer)
        issuer.issue(self._key, name, self.certificate,
                     f"keyUsage=keyCertSign,cRLSign\nbasicConstraints=critical,CA:TRUE\n{extensions}", "ecdsa")


def of_folder(topology, root, chain):
    """A has a certificate of the last authority. Everybody has all authorities, and `cacerts` names none."""
    identities = chain[-1].identity(ID_A), root.identity(ID_B)
    settings = pair(topology, inner=4, identities=identities, authority=root.certificate)
    for each in settings:
        del each.connections["site"]["remote"]["cacerts"]
        each.connections["site"]["keyingtries"] = 1
        each.authorities = [root.certificate, *(one.certificate for one in chain)]
    return settings


def fetching(daemon, ends, settings):
    a, b = (daemon(kind, end, **({"fetches": True} if kind == "charon" else {})) for kind, end in zip(ends, "ab"))
    b.start(settings[1])
    a.start(settings[0])
    return a, b


def refuses(a, b):
    assert a.up(check=False, timeout=60).returncode != 0
    assert not b.installed()


@pytest.fixture
def root(tmp_path):
    return Authority(tmp_path / "root", "ecdsa", "Root")


@every_end
@pytest.mark.parametrize("revoked", [False, True], ids=["good", "revoked"])
def test_an_authority_that_its_root_revokes(ends, revoked, topology, daemon, tmp_path, folder, root):
    """ikev2-multi-ca/revoked: the root's CRL is fetched from the place that the authority's certificate names."""
    web = crl_server(topology, folder / "web", CRL_PORT)
    between = Between(tmp_path / "between", "Between", root, NAMES_CRL)
    lists = [Identity("Between", between.certificate, between.certificate)] if revoked else []
    publish(folder / "web", root.crl(*lists))
    settings = of_folder(topology, root, [between])
    a, b = fetching(daemon, ends, settings)
    if revoked:
        refuses(a, b)
    else:
        a.up()
        a.wait_installed()
        b.wait_installed()
        assert_ping(topology.host_a, topology.b.host4)
    assert web.requests("GET /ca.crl") >= 1


# strongSwan applies `strict` to the peer's own certificate only.
@pytest.mark.parametrize("ends", [one for one in ENDS if one[1] == "esplanade"], ids=ids)
def test_strict_without_the_crl_of_the_root(ends, topology, daemon, tmp_path, root):
    """ikev2-multi-ca/skipped: the status of the authority is not to be had."""
    between = Between(tmp_path / "between", "Between", root)
    settings = of_folder(topology, root, [between])
    settings[1].connections["site"]["remote"]["revocation"] = "strict"
    settings[1].crls = [between.crl()]
    refuses(*start(daemon, ends, settings))


@every_end
def test_the_path_length_of_the_root(ends, topology, daemon, tmp_path, root):
    """ikev2-multi-ca/pathlen: two authorities below a root that allows one."""
    run(["openssl", "req", "-x509", "-new", "-key", root._key, "-subj", "/O=Interop/CN=Root", "-days", "2", "-addext",
         "basicConstraints=critical,CA:TRUE,pathlen:1", "-out", root.certificate])
    first = Between(tmp_path / "first", "First", root)
    second = Between(tmp_path / "second", "Second", first)
    refuses(*start(daemon, ends, of_folder(topology, root, [first, second])))


@every_end
def test_authorities_that_certify_each_other(ends, topology, daemon, tmp_path, root):
    """ikev2-multi-ca/loop: B has no root for A's certificate."""
    pair_of = [Authority(tmp_path / name, "ecdsa", name) for name in ("One", "Two")]
    for own, other in (pair_of, pair_of[::-1]):
        request, extensions = own.folder / "own.csr", own.folder / "own.ext"
        extensions.write_text("basicConstraints=critical,CA:TRUE\n")
        run(["openssl", "req", "-new", "-key", own._key, "-subj", f"/O=Interop/CN={own.name}", "-out", request])
        run(["openssl", "x509", "-req", "-in", request, "-CA", own.folder.parent / other.name / f"{other.name}.pem",
             "-CAkey", other._key, "-days", "2", "-extfile", extensions, "-out", own.folder / "crossed.pem"])
    identities = pair_of[0].identity(ID_A), root.identity(ID_B)
    settings = pair(topology, inner=4, identities=identities, authority=root.certificate)
    for each in settings:
        del each.connections["site"]["remote"]["cacerts"]
        each.connections["site"]["keyingtries"] = 1
    for one in pair_of:
        (one.folder / "crossed.pem").rename(one.folder / f"crossed-{one.name}.pem")
    settings[1].authorities = [one.folder / f"crossed-{one.name}.pem" for one in pair_of]
    refuses(*start(daemon, ends, settings))


@every_end
def test_a_named_authority_is_part_of_the_path(ends, topology, daemon, tmp_path, root):
    """`cacerts` has the intermediate one, and the root lies beside it."""
    between = Between(tmp_path / "between", "Between", root)
    settings = of_folder(topology, root, [between])
    settings[1].connections["site"]["remote"]["cacerts"] = str(between.certificate)
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
