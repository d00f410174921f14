"""CRLs and answers of OCSP responders that are fetched while a peer waits."""

import hashlib
from pathlib import Path

import pytest
from ends import esplanade_pair, establish, every_end, ids, start
from harness.process import run, wait_until
from harness.settings import ID_A, ID_B, pair
from harness.traffic import Flow, assert_ping
from harness.web import HOST, Server, crl_server, publish
from test_confinement import pid_of
from test_errors import assert_refused, assert_told, good_tunnel, pair_and_second

CRL_PORT, OCSP_PORT = 8080, 8081
NAMES_CRL = f"crlDistributionPoints=URI:http://{HOST}:{CRL_PORT}/ca.crl\n"
NAMES_OCSP = f"authorityInfoAccess=OCSP;URI:http://{HOST}:{OCSP_PORT}/\n"
# A server that takes connections, and never answers.
SILENT = ("import socket, time\ns = socket.create_server((%r, %d))\nwhile True: s.accept()[0].detach()\n" % (HOST, CRL_PORT))


@pytest.fixture
def authority(authorities):
    return authorities("ecdsa", "Fetched CA")


def with_policy(settings, policy):
    for one in settings:
        one.connections["site"]["remote"]["revocation"] = policy
    return settings


def of(authority, *extensions):
    """Certificates of both ends which name these places."""
    return tuple(authority.identity(name, "".join(extensions)) for name in (ID_A, ID_B))


@pytest.fixture
def web(topology, folder):
    return crl_server(topology, folder / "web", CRL_PORT)


@every_end
def test_a_crl_is_fetched_once(ends, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_CRL)
    publish(folder / "web", authority.crl())
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    for one, kind in zip(settings, ends):
        if kind == "esplanade":
            one.connections["site"]["remote"]["revocation"] = "strict"
    a, b = establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
    ours = [one for one in (a, b) if one.kind == "esplanade"]
    for one in ours:
        listed = one.status()["crls"]["0"]
        assert listed["issuer"] == "O=Interop, CN=Fetched-CA"
    # Both daemons may be ours, and each asks once.
    assert web.requests("GET /ca.crl") == len(ours)
    a.down()
    a.up()
    assert web.requests("GET /ca.crl") == len(ours), "the CRL is current"


@every_end
def test_a_fetched_crl_refuses(ends, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_CRL)
    revoked = identities[1 if ends[0] == "esplanade" else 0]
    publish(folder / "web", authority.crl(revoked))
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    assert_refused(a, b, flow, says=["was revoked at"])
    if ends[0] == "charon":
        assert_told(b, "was revoked at", f"CN={ID_A}")


@pytest.mark.parametrize("revoked", [False, True], ids=["good", "revoked"])
@every_end
def test_a_responder_is_asked(ends, revoked, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_OCSP, NAMES_CRL)
    lists = ([], list(identities)) if revoked else (list(identities), [])
    Server(topology, authority.responder(*lists, OCSP_PORT), OCSP_PORT, folder / "ocsp.log")
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    for one, kind in zip(settings, ends):
        if kind == "esplanade":
            one.connections["site"]["remote"]["revocation"] = "strict"
    a, b, flow = good_tunnel(topology, daemon, ends, settings)
    if revoked:
        assert_refused(a, b, flow, says=["was revoked at", "authentication"])
    else:
        a.up()
        a.wait_installed()
        assert flow.stop().lost == 0
    assert web.requests("GET") == 0, "no CRL is needed"


def test_places_of_the_configuration_are_asked(topology, daemon, folder, authority, web):
    """The certificates name none. The responder does not run, so that the CRL decides."""
    publish(folder / "web", authority.crl())
    settings = with_policy(pair(topology, inner=4, identities=of(authority), authority=authority.certificate), "strict")
    for one in settings:
        one.status_sources["ca"] = {"cacert": str(authority.certificate), "crl_uris": f"{web.uri}/ca.crl",
                                    "ocsp_uris": f"http://{HOST}:{OCSP_PORT}"}
    a, b = establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4)
    assert web.requests("GET /ca.crl") == 2
    wait_until("the failure is in the log", lambda: "the status of a certificate was not to be had" in a.logs())


@pytest.mark.parametrize("policy", ["strict", "ifuri", "relaxed"])
def test_nobody_answers(policy, topology, daemon, folder, authority):
    """The second tunnel's traffic does not wait."""
    Server(topology, ["python3", "-c", SILENT], CRL_PORT, folder / "silent.log")
    identities = of(authority, NAMES_CRL)
    settings = with_policy(pair_and_second(topology, identities=identities, authority=authority.certificate), policy)
    for one in settings:
        one.gateway = {"retransmit_timeout": "4s", "retransmit_tries": 5}
    a, b, flow = good_tunnel(topology, daemon, esplanade_pair, settings)
    if policy == "relaxed":
        # Each end waits for the server for ten seconds.
        a.up(timeout=30)
        a.wait_installed()
        assert flow.stop().lost == 0
        return
    failed = a.up(check=False, timeout=30)
    assert failed.returncode == 1
    assert_told(b, "there is no CRL")
    assert flow.stop().lost == 0


def test_nothing_is_fetched_if_the_configuration_says_so(topology, daemon, folder, authority, web):
    publish(folder / "web", authority.crl())
    identities = of(authority, NAMES_CRL)
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    for one in settings:
        one.gateway["fetch_revocation"] = "no"
    establish(daemon, esplanade_pair, settings)
    assert web.requests("GET") == 0


def test_the_fetcher_has_no_rights(topology, daemon, authority):
    settings = pair(topology, inner=4, identities=of(authority), authority=authority.certificate)
    a, _ = start(daemon, esplanade_pair, settings)
    gateway = str(pid_of(a))

    def fetcher():
        """What the kernel says about the fetcher of A."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[1:2] == [b"fetcher"] and status["PPid"] == gateway:
                return status
        return None

    wait_until("the fetcher has no capabilities", lambda: fetcher() and int(fetcher()["CapPrm"], 16) == 0)
    assert fetcher()["NoNewPrivs"] == "1"


@pytest.mark.parametrize("revoked", [False, True], ids=["good", "revoked"])
def test_a_responder_is_asked_for_the_peer(revoked, topology, daemon, folder, authority):
    """RFC 4806: A asks its own responder, and sends the answer to B, which fetches nothing."""
    identities = of(authority, NAMES_OCSP)
    lists = ([], [identities[0]]) if revoked else ([identities[0]], [])
    responder = Server(topology, authority.responder(*lists, OCSP_PORT), OCSP_PORT, folder / "ocsp.log")
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    settings[1].connections["site"]["remote"]["revocation"] = "strict"
    settings[1].connections["site"].update(ocsp="request", send_certreq="yes")
    settings[1].gateway["fetch_revocation"] = "no"
    # B initiates, so that A waits for its answer.
    a, b, flow = good_tunnel(topology, daemon, esplanade_pair, settings)
    came = b.up(check=False)
    if revoked:
        assert came.returncode == 1 and "was revoked at" in came.stderr + came.stdout
        assert not b.installed("site")
    else:
        assert came.returncode == 0, came
        b.wait_installed()
    wait_until("the answer is in the log of A", lambda: "an OCSP responder has answered" in a.logs())
    assert "OCSP" not in b.logs()
    assert flow.stop().lost == 0
    assert responder.process.returncode is None


@pytest.mark.parametrize("ends", [("esplanade", "charon"), ("charon", "esplanade")], ids=ids)
@pytest.mark.parametrize("looks_up", ["yes", "no"])
def test_charon_looks_our_certificate_up(ends, looks_up, topology, daemon, folder, authority, web):
    """Hash and URL, where charon says that it takes them."""
    ours, theirs = ends.index("esplanade"), ends.index("charon")
    identities = of(authority)
    run(["openssl", "x509", "-in", identities[ours].certificate, "-outform", "der", "-out", folder / "own.der"])
    own = (folder / "own.der").read_bytes()
    name = hashlib.sha1(own).hexdigest()
    (folder / "web" / name).write_bytes(own)
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    settings[ours].status_sources["ca"] = {"cacert": str(authority.certificate), "cert_uri_base": f"{web.uri}/"}
    made = [None, None]
    made[ours] = daemon("esplanade", "ab"[ours])
    made[theirs] = daemon("charon", "ab"[theirs], extra=f"hash_and_url = {looks_up}", fetches=True)
    a, b = made
    b.start(settings[1])
    a.start(settings[0])
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert web.requests(f"GET /{name}") == (looks_up == "yes")
