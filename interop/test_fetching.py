"""CRLs and answers of OCSP responders that are fetched while a peer waits."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import pytest
from ends import esplanade_pair, establish, every_end, ids, start
from harness.pki import Authority
from harness.process import run, wait_until
from harness.settings import ID_A, ID_B, pair
from harness.traffic import assert_ping
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


def assert_judged(topology, daemon, ends, settings, revoked) -> None:
    """A second tunnel comes up if its peers are good, and is refused if they are revoked. Ours takes no unknown status."""
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


@pytest.mark.parametrize("revoked", [False, True], ids=["good", "revoked"])
@every_end
def test_a_responder_is_asked(ends, revoked, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_OCSP, NAMES_CRL)
    lists = ([], list(identities)) if revoked else (list(identities), [])
    Server(topology, authority.responder(*lists, OCSP_PORT), OCSP_PORT, folder / "ocsp.log")
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    assert_judged(topology, daemon, ends, settings, revoked)
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
    listed = [line.strip() for line in a.swanctl("--list-authorities").stdout.splitlines()]
    assert listed[0] == "ca:" and listed[1].startswith("cacert: ")
    assert listed[2:] == [f"crl_uris:  {web.uri}/ca.crl", f"ocsp_uris: http://{HOST}:{OCSP_PORT}"]
    assert [*a.session().get_authorities()["authorities"]] == [b"ca"]


def test_a_crl_comes_past_the_tunnel_that_waits_for_it(topology, daemon, folder, authority, web):
    """All traffic of A's network is to go into the tunnel. The gateway's own question does not wait for that."""
    publish(folder / "web", authority.crl())
    identities = of(authority, NAMES_CRL)
    settings = with_policy(pair(topology, inner=4, identities=identities, authority=authority.certificate), "ifuri")
    settings[0].child().update(local_ts=topology.a.lan4, remote_ts="0.0.0.0/0")
    settings[1].child().update(local_ts="0.0.0.0/0", remote_ts=topology.a.lan4)
    establish(daemon, esplanade_pair, settings)
    assert_ping(topology.host_a, topology.b.host4)
    assert web.requests("GET /ca.crl") == 2


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


def processes(gateway):
    """The keeper and the fetcher of a gateway, with what the kernel says about them."""
    found, parents = {}, {str(pid_of(gateway))}
    for command in ("fetch-keeper", "fetcher"):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[1:2] == [command.encode()] and status["PPid"] in parents:
                found[command], parents = status, {status["Pid"]}
                break
    return found


def test_the_fetcher_has_no_rights(topology, daemon, authority):
    settings = pair(topology, inner=4, identities=of(authority), authority=authority.certificate)
    a, _ = start(daemon, esplanade_pair, settings)

    def caps():
        return [int(status["CapPrm"], 16) for status in processes(a).values()]

    wait_until("neither process has capabilities", lambda: caps() == [0, 0])
    assert {status["NoNewPrivs"] for status in processes(a).values()} == {"1"}


@pytest.mark.parametrize("killed", ["fetch-keeper", "fetcher"])
def test_a_fetcher_that_ends_is_started_again(killed, topology, daemon, folder, authority, web):
    publish(folder / "web", authority.crl())
    identities = of(authority, NAMES_CRL)
    settings = with_policy(pair(topology, inner=4, identities=identities, authority=authority.certificate), "strict")
    a, b = start(daemon, esplanade_pair, settings)
    for end in (a, b):
        wait_until("the fetcher runs", lambda end=end: len(processes(end)) == 2)
        before = processes(end)
        os.kill(int(before[killed]["Pid"]), signal.SIGKILL)
        if killed == "fetcher":
            wait_until("there is another", lambda end=end, before=before: processes(end).get(
                killed, before[killed])["Pid"] != before[killed]["Pid"])
    a.up()
    assert_ping(topology.host_a, topology.b.host4)
    assert web.requests("GET /ca.crl") == 2


def test_a_flush_asks_again(topology, daemon, folder, authority, web):
    """What is good is forgotten. A revocation stays until the issuer has a newer word."""
    identities = of(authority, NAMES_CRL)
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    settings[0].gateway["fetch_revocation"] = "no"
    stranger = Authority(folder / "stranger", authority.kind, authority.name).crl()
    publish(folder / "web", authority.crl())
    a, b = establish(daemon, esplanade_pair, settings)
    publish(folder / "web", authority.crl(identities[0]))
    a.down()
    a.up()
    a.down()
    assert web.requests("GET /ca.crl") == 1, "the first one is current"
    b.swanctl("--flush-certs", "--type", "ocsp_response")
    a.up()
    a.down()
    b.swanctl("--flush-certs", "--type", "x509_crl")
    assert a.up(check=False).returncode != 0
    assert_told(b, "was revoked at")
    publish(folder / "web", stranger)
    b.swanctl("--flush-certs")
    wait_until("the place is asked again", lambda: web.requests("GET /ca.crl") == 3)
    assert a.up(check=False).returncode != 0
    publish(folder / "web", authority.crl())
    b.swanctl("--flush-certs")
    wait_until("the peer is good again", lambda: a.up(check=False).returncode == 0, timeout=30)


@every_end
@pytest.mark.parametrize("revoked", [False, True], ids=["good", "revoked"])
def test_a_delta_is_fetched(ends, revoked, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_CRL)
    publish(folder / "web", authority.crl(extensions=f"freshestCRL = URI:{web.uri}/delta.crl\n"))
    base = authority.crls
    delta = authority.crl(*(identities if revoked else ()), extensions=f"2.5.29.27 = critical,ASN1:INTEGER:{base}\n")
    shutil.copy(delta, folder / "web" / "delta.crl")
    settings = pair_and_second(topology, identities=identities, authority=authority.certificate)
    assert_judged(topology, daemon, ends, settings, revoked)
    assert web.requests("GET /delta.crl") > 0


@pytest.mark.parametrize("policy", ["strict", "relaxed"])
def test_a_delta_is_not_to_be_had(policy, topology, daemon, folder, authority, web):
    identities = of(authority, NAMES_CRL)
    publish(folder / "web", authority.crl(extensions=f"freshestCRL = URI:{web.uri}/delta.crl\n"))
    settings = with_policy(pair(topology, inner=4, identities=identities, authority=authority.certificate), policy)
    a, b = start(daemon, esplanade_pair, settings)
    assert (a.up(check=False).returncode == 0) == (policy == "relaxed")
    if policy == "strict":
        assert_told(b, "is to be completed by a delta CRL")


@pytest.mark.parametrize("host", ["127.0.0.1", "own"])
def test_no_certificate_leads_to_the_gateway(host, topology, daemon, authority):
    address = topology.b.wan4 if host == "own" else host
    identities = of(authority, f"crlDistributionPoints=URI:http://{address}:9/ca.crl\n")
    settings = pair(topology, inner=4, identities=identities, authority=authority.certificate)
    settings[0].gateway["fetch_revocation"] = "no"
    a, b = establish(daemon, esplanade_pair, settings)
    refused = f"it leads to {address}, which is special or an address of this gateway"
    wait_until("the log says so", lambda: refused in b.logs())
    b.stop()
    settings[1].gateway["fetch_allow"] = f"192.0.2.0/24, {address}"
    b.start(settings[1])
    a.up()
    wait_until("nobody listens there", lambda: "refused (os error 111)" in b.logs())
    assert b.logs().count(refused) == 1


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
