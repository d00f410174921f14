"""libreswan as a second peer for the IKE exchanges.

This kernel has no ESP for it, so no child SA survives at its end. What remains: IKE_SA_INIT and
IKE_AUTH both ways with PSK, and, where it responds (it then keeps the IKE SA), liveness, rekeying and
deleting of the IKE SA from either side.
"""

import pytest
from harness.capture import Informational
from harness.process import wait_until
from harness.settings import ID_A, ID_B, PSK, pair

SUITES = [
    ("aes256-sha256-modp2048", "aes256-sha2_256-modp2048", "aes256-sha256", "aes256-sha2_256"),
    ("aes128gcm16-prfsha256-x25519", "aes_gcm_c_128-sha2_256-dh31", "aes128gcm16", "aes_gcm_c_128-null"),
    ("aes256gcm16-prfsha384-ecp384", "aes_gcm_c_256-sha2_384-dh20", "aes256gcm16", "aes_gcm_c_256-null"),
    ("aes128-sha512-modp3072", "aes128-sha2_512-modp3072", "aes128-sha256", "aes128-sha2_256"),
    ("aes256-sha384-ecp256", "aes256-sha2_384-dh19", "aes256-sha256", "aes256-sha2_256"),
]
each_suite = pytest.mark.parametrize("suite", SUITES, ids=[suite[0] for suite in SUITES])


def settle(topology, daemon, pluto, suite=SUITES[0], outer=4, secret=PSK):
    ike, pluto_ike, esp, pluto_esp = suite
    settings = pair(topology, inner=4, outer=outer, ike=ike, esp=esp)[0]
    settings.connections["site"]["dpd_delay"] = "1s"
    a = daemon("esplanade", "a")
    pluto.start({"site": {
        "authby": "secret", "ikev2": "insist", "left": topology.b.wan(outer), "leftid": f"@{ID_B}",
        "leftsubnet": topology.b.lan4, "right": topology.a.wan(outer), "rightid": f"@{ID_A}",
        "rightsubnet": topology.a.lan4, "ike": pluto_ike, "esp": pluto_esp, "auto": "ignore",
        "hostaddrfamily": f"ipv{outer}", "rekey": "no"}}, f'@{ID_B} @{ID_A} : PSK "{secret}"\n')
    a.start(settings)
    return a


def ike_sa(a):
    return a.sas()["site"][0]


@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
@each_suite
def test_we_initiate(suite, outer, topology, daemon, pluto):
    """Both ends authenticate; libreswan then refuses the child SA that its kernel cannot have."""
    a = settle(topology, daemon, pluto, suite, outer)
    refused = a.up(check=False)
    assert ike_sa(a)["state"] == "ESTABLISHED"
    assert "responder established IKE SA; authenticated peer" in pluto.logs()
    assert (refused.returncode == 0) == bool(a.children())


@each_suite
def test_libreswan_initiates(suite, topology, daemon, pluto):
    """Both ends authenticate and the child SA is agreed; libreswan then drops all of it without a word."""
    settle(topology, daemon, pluto, suite)
    pluto.up()
    wait_until("libreswan trusts us", lambda: "initiator established IKE SA; authenticated peer" in pluto.logs())
    # Our answer also held what it asked for: it got as far as its kernel.
    wait_until("libreswan takes the child SA", lambda: any(
        line in pluto.logs() for line in ("netlink response for Add SA", "IPsec SA established")))


def established(topology, daemon, pluto):
    a = settle(topology, daemon, pluto)
    a.up(check=False)
    assert ike_sa(a)["state"] == "ESTABLISHED"
    return a


def test_liveness(topology, daemon, pluto):
    """Our empty INFORMATIONAL requests are answered, so the SA stays."""
    a = established(topology, daemon, pluto)
    spi = ike_sa(a)["initiator-spi"]
    # Nothing may happen to the SA for three checks.
    Informational(topology).wait(3)
    assert ike_sa(a)["initiator-spi"] == spi


def test_we_rekey_the_ike_sa(topology, daemon, pluto):
    a = established(topology, daemon, pluto)
    old = ike_sa(a)["initiator-spi"]
    a.rekey_ike()
    wait_until("a new IKE SA", lambda: len(a.sas()["site"]) == 1 and ike_sa(a)["initiator-spi"] != old)
    assert ike_sa(a)["state"] == "ESTABLISHED"


def test_libreswan_rekeys_the_ike_sa(topology, daemon, pluto):
    a = established(topology, daemon, pluto)
    old = ike_sa(a)["initiator-spi"]
    pluto.whack("--rekey-ike", "--asynchronous", "--name", "site")
    wait_until("a new IKE SA", lambda: len(a.sas()["site"]) == 1 and ike_sa(a)["initiator-spi"] != old)
    assert ike_sa(a)["state"] == "ESTABLISHED"


def test_we_delete(topology, daemon, pluto):
    a = established(topology, daemon, pluto)
    a.down()
    a.wait_gone()
    wait_until("libreswan deletes it too", lambda: "deleting" in pluto.logs())


def test_libreswan_deletes(topology, daemon, pluto):
    a = established(topology, daemon, pluto)
    pluto.down()
    a.wait_gone()


def test_wrong_psk(topology, daemon, pluto):
    a = settle(topology, daemon, pluto, secret="not the one")
    refused = a.up(check=False)
    assert refused.returncode != 0
    if a.kind == "esplanade":
        assert "authentication" in (refused.stdout + refused.stderr).lower()
    assert not a.installed()
