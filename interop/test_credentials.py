"""Which certificates and keys are asked for, sent and accepted: as the same configuration says to strongSwan."""

import pytest
from ends import esplanade_pair, establish, every_end, start
from harness.ml_dsa import chain
from harness.pki import Identity, make_key
from harness.process import run
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping


def certified(topology, authority):
    identities = authority.identity(ID_A), authority.identity(ID_B)
    return pair(topology, inner=4, identities=identities, authority=authority.certificate)


def know_each_other(settings) -> None:
    """Each end has the certificate of the other."""
    a, b = (each.connections["site"] for each in settings)
    a["remote"]["certs"], b["remote"]["certs"] = b["local"]["certs"], a["local"]["certs"]


@every_end
@pytest.mark.parametrize("send_cert, send_certreq, known, fits", [
    ("ifasked", "yes", False, True),
    ("ifasked", "no", False, False),
    ("ifasked", "no", True, True),
    ("always", "no", False, True),
    ("never", "yes", False, False),
    ("never", "yes", True, True),
    ("never", "no", True, True),
])
def test_sending_certificates(ends, send_cert, send_certreq, known, fits, topology, daemon, authorities):
    settings = certified(topology, authorities("ecdsa"))
    for each in settings:
        each.connections["site"] |= {"send_cert": send_cert, "send_certreq": send_certreq, "keyingtries": 1}
    if known:
        know_each_other(settings)
    if fits:
        establish(daemon, ends, settings)
        assert_ping(topology.host_a, topology.b.host4)
    else:
        a, b = start(daemon, ends, settings)
        assert a.up(check=False).returncode != 0
        assert not b.installed()


@every_end
@pytest.mark.parametrize("trusted", ["ecdsa", "rsa"])
@pytest.mark.parametrize("order", ["first", "last"])
def test_a_choice_among_certificates(ends, trusted, order, topology, daemon, authorities):
    """A has certificates of two authorities, and B trusts one of these."""
    of = {kind: authorities(kind, f"{kind} CA") for kind in ("ecdsa", "rsa")}
    settings_a, settings_b = certified(topology, of[trusted])
    own = [authority.identity(ID_A) for authority in of.values()]
    if order == "last":
        own.reverse()
    settings_a.connections["site"]["local"]["certs"] = ",".join(str(one.certificate) for one in own)
    # B may have a certificate of either.
    del settings_a.connections["site"]["remote"]["cacerts"]
    settings_a.certificates = [one.certificate for one in own]
    settings_a.keys = [one.key for one in own]
    settings_a.authorities = [authority.certificate for authority in of.values()]
    establish(daemon, ends, (settings_a, settings_b))
    assert_ping(topology.host_a, topology.b.host4)


@every_end
def test_authorities_between_come_from_the_folder(ends, topology, daemon, tmp_path, authorities):
    """A's file has its own certificate alone, and B knows the root alone."""
    root = authorities("ecdsa")
    between = type(root)(tmp_path / "between", "ecdsa", "Between CA", root)
    settings_a, settings_b = certified(topology, between)
    leaf = tmp_path / "leaf.pem"
    run(["openssl", "x509", "-in", between.identity(ID_A).certificate, "-out", leaf])
    settings_a.connections["site"]["local"]["certs"] = str(leaf)
    settings_a.certificates = [leaf]
    for each, known in ((settings_a, [root.certificate, between.certificate]), (settings_b, [root.certificate])):
        del each.connections["site"]["remote"]["cacerts"]
        each.authorities = known
    # B's own chain is in its file here, and strongSwan reads the first certificate of a file only.
    settings_b.connections["site"]["local"] = {"auth": "pubkey", "id": ID_B,
                                               "certs": str(root.identity(ID_B).certificate)}
    settings_b.certificates = [root.identity(ID_B).certificate]
    settings_b.keys = [root.identity(ID_B).key]
    establish(daemon, ends, (settings_a, settings_b))


class RawKeys:
    """A key for each end, and a third one."""

    def __init__(self, folder, kind: str):
        self.private, self.public = {}, {}
        for name in "abc":
            key, public = folder / f"{name}.key", folder / f"{name}.pub"
            make_key(kind, key)
            run(["openssl", "pkey", "-in", key, "-pubout", "-out", public])
            self.private[name], self.public[name] = key, public

    def settings(self, topology, *, accepted: str = "a", named: bool = True):
        """B accepts these keys."""
        both = pair(topology, inner=4)
        for each, own, others in zip(both, "ab", ("b", accepted)):
            site = each.connections["site"]
            site["keyingtries"] = 1
            site["local"] |= {"auth": "pubkey", "pubkeys": str(self.public[own])}
            site["remote"] |= {"auth": "pubkey", "pubkeys": ",".join(str(self.public[name]) for name in others)}
            if not named:
                del site["local"]["id"], site["remote"]["id"]
            each.secrets.clear()
            each.keys = [self.private[own]]
            each.public_keys = [self.public[name] for name in (own, *others)]
        return both


@every_end
@pytest.mark.parametrize("kind", ["ecdsa", "rsa", "ed25519"])
def test_raw_public_keys(ends, kind, topology, daemon, tmp_path):
    establish(daemon, ends, RawKeys(tmp_path, kind).settings(topology))
    assert_ping(topology.host_a, topology.b.host4)


@every_end
def test_one_of_several_raw_public_keys(ends, topology, daemon, tmp_path):
    establish(daemon, ends, RawKeys(tmp_path, "ecdsa").settings(topology, accepted="ca"))


@every_end
def test_raw_public_keys_without_names(ends, topology, daemon, tmp_path):
    """Both ends are called by their keys."""
    establish(daemon, ends, RawKeys(tmp_path, "ecdsa").settings(topology, named=False))


@every_end
def test_a_raw_public_key_of_somebody_else(ends, topology, daemon, tmp_path):
    a, b = start(daemon, ends, RawKeys(tmp_path, "ecdsa").settings(topology, accepted="c"))
    assert a.up(check=False).returncode != 0
    assert not b.installed()


@every_end
@pytest.mark.parametrize("send_cert", ["ifasked", "never"])
def test_self_signed_certificates(ends, send_cert, topology, daemon, tmp_path):
    """Each end knows the certificate of the other, and there is no authority."""
    identities = []
    for name in (ID_A, ID_B):
        key, certificate = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        make_key("ecdsa", key)
        run(["openssl", "req", "-x509", "-new", "-key", key, "-subj", f"/CN={name}", "-days", "2",
             "-addext", f"subjectAltName=DNS:{name}", "-out", certificate])
        identities.append(Identity(name, certificate, key))
    settings = pair(topology, inner=4, identities=tuple(identities))
    know_each_other(settings)
    for each in settings:
        each.connections["site"]["send_cert"] = send_cert
        each.authorities = []
        each.certificates = [one.certificate for one in identities]
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("topology", [{"mtu": 1280}], indirect=True, ids=["mtu-1280"])
def test_ml_dsa(topology, daemon, tmp_path):
    authority, identities = chain(tmp_path, (ID_A, ID_B))
    settings = pair(topology, inner=4, identities=identities, authority=authority)
    for each in settings:
        each.connections["site"]["remote"]["auth"] = "mldsa65-identity-mldsa87-identity-ike:pubkey-identity"
    establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4)
