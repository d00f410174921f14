"""Both ends authenticate again, over a new IKE SA that takes the children over (RFC 7296 §2.8.3)."""

import pytest
from ends import ENDS, esplanade_pair, establish, ids
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import assert_ping
from test_lifecycle import assert_undisturbed, both_ways, carries
from test_updown import read, recorder

WE_INITIATE = [ends for ends in ENDS if ends[0] == "esplanade"]
MAKE_BEFORE_BREAK = "make_before_break = yes"


def make_before_break(kind):
    return {"extra": MAKE_BEFORE_BREAK} if kind == "charon" else {}


def ike_spi(end):
    return end.sas()["site"][0]["initiator-spi"]


def wait_reauthenticated(ends, old):
    for end in ends:
        def only_the_new():
            sas = end.sas().get("site", [])
            return len(sas) == 1 and sas[0]["state"] == "ESTABLISHED" and sas[0]["initiator-spi"] != old \
                and len(end.installed()) == 1
        wait_until(f"only the new IKE SA at {end.name}", only_the_new)
        wait_until(f"packets on the new child SA of {end.name}", lambda: carries(end))


def assert_nothing_lost(flows, ends, a):
    if ends[1] == "esplanade":
        assert_undisturbed(flows)
        return
    # As the responder, charon sends on the new child SA before its response leaves, and we cannot read that yet.
    for flow in flows:
        flow.go_on(total=101)
    reports = [flow.stop() for flow in flows]
    assert reports[0].lost == 0, reports
    assert reports[1].lost <= a.counter("drops.unknown-spi"), reports
    assert all(report.duplicates + report.corrupt == 0 for report in reports), reports


def with_scripts(settings, folder):
    recorded = []
    for one, name in zip(settings, "ab"):
        script, calls = recorder(folder, name)
        one.child()["updown"] = script
        recorded.append(calls)
    return recorded


@pytest.mark.parametrize("ends", WE_INITIATE, ids=ids)
# RFC 7296 R263
def test_reauthentication_under_load(ends, topology, daemon, folder):
    settings = pair(topology, inner=4)
    calls = with_scripts(settings, folder)
    a, b = establish(daemon, ends, settings)
    flows = both_ways(topology)
    for _ in range(3):
        old = ike_spi(a)
        a.reauthenticate()
        wait_reauthenticated((a, b), old)
    assert_nothing_lost(flows, ends, a)
    # The child goes on, so Esplanade's script hears nothing.
    ours = calls[:1] if "charon" in ends else calls
    for one in ours:
        assert [call["PLUTO_VERB"] for call in read(one)] == ["up-client"]
    a.down()
    for one in ours:
        wait_until("the end is told", lambda: [call["PLUTO_VERB"] for call in read(one)] == ["up-client", "down-client"])


@pytest.mark.parametrize("ends", WE_INITIATE, ids=ids)
# RFC 7296 R263
def test_reauthentication_by_time(ends, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].connections["site"] |= {"reauth_time": "3s", "over_time": "20s", "rand_time": "0s"}
    a, b = establish(daemon, ends, settings)
    flows = both_ways(topology)
    seen = {ike_spi(a)}
    assert int(a.sas()["site"][0]["reauth-time"]) <= 3
    wait_until("two reauthentications", lambda: (seen.add(ike_spi(a)), len(seen) >= 3)[1], timeout=20)
    assert_nothing_lost(flows, ends, a)


@pytest.mark.esplanade_only
# RFC 7296 R263
def test_both_ends_reauthenticate_by_time(topology, daemon):
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"] |= {"reauth_time": "3s", "over_time": "20s", "rand_time": "0s"}
    a, b = establish(daemon, esplanade_pair, settings)
    flows = both_ways(topology)
    seen = {ike_spi(a)}
    wait_until("two reauthentications", lambda: (seen.add(ike_spi(a)), len(seen) >= 3)[1], timeout=20)
    assert_undisturbed(flows)


@pytest.mark.parametrize("unique", ["no", "keep", "replace"])
@pytest.mark.parametrize("ends", ENDS, ids=ids)
# RFC 7296 R263
def test_no_setting_of_unique_stands_in_the_way(ends, unique, topology, daemon):
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"]["unique"] = unique
    a, b = (daemon(kind, end, **make_before_break(kind)) for kind, end in zip(ends, "ab"))
    b.start(settings[1])
    a.start(settings[0])
    a.up()
    a.wait_installed()
    b.wait_installed()
    flows = both_ways(topology)
    old = ike_spi(a)
    a.reauthenticate()
    wait_reauthenticated((a, b), old)
    if ends[0] != "charon":
        assert_nothing_lost(flows, ends, a)
        return
    # charon can drop what comes on the old child SA while it deletes that one.
    for flow in flows:
        flow.go_on(total=101)
    reports = [flow.stop() for flow in flows]
    assert all(report.lost <= 3 and report.corrupt == 0 for report in reports), reports


# RFC 7296 R263
def test_the_peer_breaks_before_it_makes(topology, daemon, folder):
    """The default of charon before 6.0: it deletes the old IKE SA first."""
    settings = pair(topology, inner=4)
    _, calls = with_scripts(settings, folder)
    a, b = daemon("charon", "a", extra="make_before_break = no"), daemon("esplanade", "b")
    b.start(settings[1])
    a.start(settings[0])
    a.up()
    a.wait_installed()
    b.wait_installed()
    # Scripts hear what is up. They do not hear of a break while they are still being told of the first SA.
    wait_until("the script has heard of the first SA", lambda: "updown script called" in b.logs())
    flows = both_ways(topology)
    old = ike_spi(a)
    a.reauthenticate()
    wait_reauthenticated((a, b), old)
    for report in [flow.stop() for flow in flows]:
        assert report.corrupt == 0 and report.received, report
    assert_ping(topology.host_a, topology.b.host4)
    wait_until("the scripts hear of the break", lambda: [call["PLUTO_VERB"] for call in read(calls)]
               == ["up-client", "down-client", "up-client"])


@pytest.mark.esplanade_only
# RFC 7296 R263
def test_commands_wait_for_fresh_sas_and_tell_a_refusal(topology, daemon):
    """A secret that was changed at one end only is found by the command, not by the next `reauth_time`."""
    settings = pair(topology, inner=4)
    a, b = establish(daemon, esplanade_pair, settings)
    old = ike_spi(a)
    assert sorted(a.command("rekey").stdout.splitlines()) == ["site/net: rekeyed", "site: rekeyed"]
    assert ike_spi(a) != old
    assert a.command("rekey", "net", "--no-wait").stdout == "site/net: rekeying\n"
    changed = settings[1].copy()
    changed.secrets["ike-1"]["secret"] = "another secret than before"
    b.load(changed)
    refused = a.command("rekey", "site", "--reauth", check=False)
    assert refused.returncode == 1 and "AUTHENTICATION_FAILED" in refused.stderr, refused
    assert "AUTHENTICATION_FAILED" in a.sas()["site"][0]["reauth-error"]
    assert "reauth  failed: the peer refuses" in a.command("status").stdout
    b.load(settings[1])
    assert a.command("rekey", "site", "--reauth").stdout == "site: reauthenticated\n"
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_a_wait_for_a_silent_peer_does_not_blame_the_gateway(topology, daemon):
    a = daemon("esplanade", "a")
    a.start(pair(topology, inner=4)[0])
    late = a.command("up", "net", "--timeout", "1", check=False)
    assert late.returncode == 1, late
    assert f"the peer at {topology.b.wan(4)}:500 has not answered" in late.stderr, late.stderr
    assert "gateway did not answer" not in late.stderr, late.stderr
