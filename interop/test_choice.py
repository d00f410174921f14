"""Which connection a gateway with several roadwarriors gives a peer: as strongSwan does with the same configuration."""

import copy

import pytest
from ends import ENDS, esplanade_pair, establish, every_end, ids, start
from harness.pki import Identity
from harness.process import wait_until
from harness.settings import ID_A, ID_B, PSK, Settings, pair
from harness.traffic import assert_ping
from test_errors import assert_told


def roadwarriors(settings: Settings, **changes) -> None:
    """The gateway's connection `site` becomes several for anybody, in this order. Each has a child of its own name."""
    site = settings.connections.pop("site")
    for name, change in changes.items():
        connection = settings.connections[name] = copy.deepcopy(site)
        connection["remote_addrs"] = "%any"
        connection["remote"]["id"] = "%any"
        for section, values in change.items():
            if isinstance(values, dict):
                connection[section] = connection[section] | values
            else:
                connection[section] = values
        connection["children"] = {f"{name}-net": connection["children"]["net"]}


def expect(daemon, topology, ends, settings, chosen: str):
    a, b = start(daemon, ends, settings)
    a.up()
    b.wait_installed(chosen)
    assert_ping(topology.host_a, topology.b.host4)
    return a, b


def certified(topology, authority) -> tuple[Settings, Settings]:
    identities = authority.identity(ID_A), authority.identity(ID_B)
    return pair(topology, inner=4, identities=identities, authority=authority.certificate)


def in_order(order: str, **changes) -> dict:
    names = list(changes)
    return {name: changes[name] for name in (names if order == "first" else reversed(names))}


both_orders = pytest.mark.parametrize("order", ["first", "last"])


@every_end
@both_orders
@pytest.mark.parametrize("peer", ["psk", "pubkey"])
def test_psk_and_certificates_side_by_side(ends, order, peer, topology, daemon, authorities):
    """Each peer authenticates in both directions as its own connection says."""
    by_certificate = certified(topology, authorities("ecdsa"))
    by_psk = pair(topology, inner=4)
    settings_a = (by_psk if peer == "psk" else by_certificate)[0]
    settings_b = by_certificate[1]
    settings_b.secrets |= {"ike-1": {"secret": PSK}}
    psk = {"local": {"auth": "psk"}, "remote": {"auth": "psk"}}
    roadwarriors(settings_b, **in_order(order, psk=psk, pubkey={}))
    del settings_b.connections["psk"]["local"]["certs"], settings_b.connections["psk"]["remote"]["cacerts"]
    expect(daemon, topology, ends, (settings_a, settings_b), peer)


@every_end
@both_orders
def test_two_authorities_in_two_connections(ends, order, topology, daemon, authorities):
    ours, other = authorities("ecdsa"), authorities("ecdsa", "Other CA")
    settings = certified(topology, ours)
    settings[1].authorities.append(other.certificate)
    roadwarriors(settings[1], **in_order(order, other={"remote": {"cacerts": str(other.certificate)}}, ours={}))
    expect(daemon, topology, ends, settings, "ours")


@every_end
@both_orders
@pytest.mark.parametrize("addresses", ["172.16.1.2", "172.16.1.0/24"])
def test_anybody_beside_an_address(ends, order, addresses, topology, daemon):
    settings = pair(topology, inner=4)
    roadwarriors(settings[1], **in_order(order, anybody={}, named={"remote_addrs": addresses}))
    for connection in settings[1].connections.values():
        connection["remote"]["id"] = ID_A
    expect(daemon, topology, ends, settings, "named")


@every_end
@both_orders
def test_a_pattern_beside_an_identity(ends, order, topology, daemon):
    settings = pair(topology, inner=4)
    pattern = {"remote": {"id": "*.esplanade.test"}}
    roadwarriors(settings[1], **in_order(order, pattern=pattern, named={"remote": {"id": ID_A}}))
    expect(daemon, topology, ends, settings, "named")


@every_end
@both_orders
def test_the_identity_that_the_peer_asks_for(ends, order, topology, daemon):
    settings = pair(topology, inner=4)
    settings[1].secrets["ike-1"] = {"secret": PSK}
    other = {"local": {"id": "other.esplanade.test"}}
    roadwarriors(settings[1], **in_order(order, other=other, asked={"local": {"id": ID_B}}))
    expect(daemon, topology, ends, settings, "asked")


@every_end
def test_none_of_several_accepts(ends, topology, daemon, authorities):
    """The peer hears AUTHENTICATION_FAILED, and the log says why for each connection."""
    ours, other, third = (authorities("ecdsa", name) for name in ("Interop CA", "Other CA", "Third CA"))
    settings = certified(topology, ours)
    rogue: Identity = third.identity(ID_A)
    site = settings[0].connections["site"]
    site["local"]["certs"] = str(rogue.certificate)
    site["keyingtries"] = 1
    settings[0].certificates[0], settings[0].keys[0] = rogue.certificate, rogue.key
    settings[1].authorities.append(other.certificate)
    roadwarriors(settings[1], other={"remote": {"cacerts": str(other.certificate)}}, ours={})
    a, b = start(daemon, ends, settings)
    assert a.up(check=False).returncode != 0
    assert_told(b, ID_A, "other: no trusted authority", "ours: no trusted authority")


@every_end
@pytest.mark.parametrize("own, demanded, fits", [
    ("ike:rsa/pss-sha384", "ike:rsa/pss-sha384", True),
    ("ike:rsa/pss-sha384", "ike:rsa/pss-sha512", False),
    ("ike:rsa-sha512", "ike:rsa-sha512", True),
    ("pubkey", "rsa-2048", True),
    ("pubkey", "rsa-3072", False),
    ("pubkey", "ecdsa-256", False),
])
def test_signatures_and_keys(ends, own, demanded, fits, topology, daemon, authorities):
    """A signs with the scheme that it is told, and B accepts what it demands."""
    settings_a, settings_b = certified(topology, authorities("rsa"))
    settings_a.connections["site"]["local"]["auth"] = own
    settings_a.connections["site"]["keyingtries"] = 1
    settings_b.connections["site"]["remote"]["auth"] = demanded
    a, b = start(daemon, ends, (settings_a, settings_b))
    if fits:
        a.up()
        b.wait_installed()
    else:
        assert a.up(check=False).returncode != 0
        assert not b.installed()


@pytest.mark.esplanade_only
@pytest.mark.parametrize("ends", [("esplanade", "charon"), ("esplanade", "esplanade")], ids=ids)
def test_a_monitor_asks(ends, topology, daemon):
    """Only children that are wanted count."""
    settings_a, settings_b = pair(topology, inner=4)
    a, _ = start(daemon, ends, (settings_a, settings_b))
    assert a.command("status", "--check").returncode == 0
    settings_a.child()["start_action"] = "start"
    settings_a.connections["site"]["proposals"] = "aes256gcm16-prfsha384-ecp384"
    a.load(settings_a)
    down = a.command("status", "--check", check=False)
    assert down.returncode == 1 and "site/net" in down.stderr
    settings_a.connections["site"]["proposals"] = settings_b.connections["site"]["proposals"]
    a.load(settings_a)
    a.wait_installed()
    assert a.command("status", "--check").returncode == 0


# Who begins the IKE SA without a child: A's value, B's value, and whether IKE_AUTH is then without one.
CHILDLESS = [
    ("prefer", "allow", True), ("force", "allow", True), ("prefer", "never", False),
    ("allow", "prefer", False), ("prefer", "force", True), ("force", "force", True),
    ("force", "never", None), ("allow", "force", None),
]


# charon 5.9.8 does not know `prefer`.
KNOWN = [(ends, *case) for ends in ENDS for case in CHILDLESS if ("charon", "prefer") not in zip(ends, case)]


@pytest.mark.parametrize("ends, own, peers, childless", KNOWN)
def test_childless(ends, own, peers, childless, topology, daemon):
    """The child comes up by CREATE_CHILD_SA, or by IKE_AUTH; or the two values do not go together."""
    settings = pair(topology, inner=4)
    for one, value in zip(settings, (own, peers)):
        one.connections["site"]["childless"] = value
    settings[0].connections["site"]["keyingtries"] = 1
    a, b = start(daemon, ends, settings)
    if childless is None:
        assert a.up(check=False).returncode != 0
        for one in (a, b):
            states = lambda: [sa["state"] for sas in one.sas().values() for sa in sas]
            wait_until(f"no IKE SA at {one.name}", lambda: "ESTABLISHED" not in states())
        return
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    for one in (a, b):
        if one.kind == "charon":
            assert ("CREATE_CHILD_SA request" in one.logs()) == childless


@pytest.mark.parametrize("certificates", [False, True], ids=["psk", "certificates"])
@every_end
def test_full_transcript(ends, certificates, topology, daemon, authorities):
    """Both ends announce it, if both know it."""
    options = {}
    if certificates:
        issuer = authorities("ecdsa")
        options = {"identities": (issuer.identity(ID_A), issuer.identity(ID_B)), "authority": issuer.certificate}
    a, b = establish(daemon, ends, pair(topology, inner=4, **options))
    assert_ping(topology.host_a, topology.b.host4)
    for one in (a, b):
        if one.kind == "esplanade":
            used = one.sas()["site"][0].get("full-transcript", "no")
            assert used == ("yes" if ends == esplanade_pair else "no")


@every_end
def test_full_transcript_is_required(ends, topology, daemon):
    settings = pair(topology, inner=4)
    for one, kind in zip(settings, ends):
        if kind == "esplanade":
            one.connections["site"]["full_transcript_auth"] = "require"
    settings[0].connections["site"]["keyingtries"] = 1
    if ends == esplanade_pair:
        establish(daemon, ends, settings)
        return
    a, b = start(daemon, ends, settings, retransmit_tries=1)
    assert a.up(check=False).returncode != 0
    ours = a if a.kind == "esplanade" else b
    wait_until("the reason is logged", lambda: "full_transcript_auth = require" in ours.logs())
