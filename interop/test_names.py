"""Host names in `local_addrs` and `remote_addrs`."""

import pytest
from ends import esplanade_pair, every_end, ids, start
from harness.names import Names
from harness.process import run, wait_until
from harness.settings import pair
from harness.traffic import assert_ping

NAME_A, NAME_B = "a.gateway.test", "b.gateway.test"
# Further addresses of the gateways.
MOVED_A, MOVED_B = "172.16.1.9", "172.16.2.9"

ours_initiates = pytest.mark.parametrize("ends", [("esplanade", "charon"), esplanade_pair], ids=ids)
ours_responds = pytest.mark.parametrize("ends", [("charon", "esplanade"), esplanade_pair], ids=ids)


@pytest.fixture
def names(topology, folder):
    for space, address in ((topology.gw_a, MOVED_A), (topology.gw_b, MOVED_B)):
        run(["ip", "-n", space.name, "address", "add", f"{address}/24", "dev", "wan"])
    return Names(topology, folder)


def named(topology, **options):
    """A knows B by its name."""
    settings = pair(topology, inner=4, **options)
    settings[0].connections["site"]["remote_addrs"] = NAME_B
    return settings


def listed_name(end, name=NAME_B):
    return listed(end)["names"][name]


def listed(end):
    return end.status()["connections"][0]["site"]


def last_error(end):
    return listed(end)["children"]["net"].get("last-error", "")


@pytest.mark.parametrize("outer", [4, 6])
@every_end
def test_both_ends_have_names(ends, outer, topology, daemon, names):
    names.set(a_gateway_test=topology.a.wan(outer), b_gateway_test=topology.b.wan(outer))
    settings = pair(topology, outer=outer, inner=4)
    settings[0].connections["site"].update(local_addrs=NAME_A, remote_addrs=NAME_B)
    settings[1].connections["site"].update(local_addrs=NAME_B, remote_addrs=NAME_A)
    a, b = start(daemon, ends, settings)
    a.up()
    a.wait_installed()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    for end, kind, name in ((a, ends[0], NAME_B), (b, ends[1], NAME_A)):
        if kind == "esplanade":
            site = topology.b if name == NAME_B else topology.a
            assert listed_name(end, name) == {"addresses": [site.wan(outer)]}
            assert listed(end)["remote-addrs"] == [name]
            shown = end.swanctl("--list-conns").stdout
            assert f"remote: {name}" in shown and "net: TUNNEL" in shown, shown


@ours_initiates
def test_a_name_appears_later(ends, topology, daemon, names):
    settings = named(topology)
    settings[0].child()["start_action"] = "start"
    a, b = start(daemon, ends, settings)
    wait_until("status says why", lambda: f"the name {NAME_B} has no address" in last_error(a))
    assert f"name      {NAME_B} has no address" in a.command("status").stdout
    assert not a.installed("site")
    names.set(b_gateway_test=topology.b.wan4)
    a.wait_installed(timeout=30)
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert f"name      {NAME_B}: {topology.b.wan4}" in a.command("status").stdout


def test_a_command_says_that_a_name_has_no_address(topology, daemon, names):
    a, _ = start(daemon, esplanade_pair, named(topology))
    came = a.up(check=False)
    assert came.returncode == 1 and f"the name {NAME_B} has no address" in came.stderr
    # Traffic asks in the same way, and gets through as soon as there is an address.
    names.set(b_gateway_test=topology.b.wan4)
    wait_until("the name is looked up again", lambda: a.up(check=False).returncode == 0)
    assert_ping(topology.host_a, topology.b.host4)


@ours_initiates
def test_the_peer_moves_while_it_is_away(ends, topology, daemon, names):
    names.set(b_gateway_test=topology.b.wan4)
    settings = named(topology)
    site = settings[0].connections["site"]
    site.update(dpd_delay="1s", dpd_timeout="10s")
    settings[0].child().update(start_action="start", dpd_action="start")
    a, b = start(daemon, ends, settings)
    a.wait_installed()
    b.kill()
    names.set(b_gateway_test=MOVED_B)
    settings[1].connections["site"]["local_addrs"] = MOVED_B
    # Nothing answers at the old address.
    run(["ip", "-n", topology.gw_b.name, "address", "del", f"{topology.b.wan4}/24", "dev", "wan"])
    run(["ip", "-n", topology.gw_b.name, "address", "replace", f"{MOVED_B}/24", "dev", "wan"])
    run(["ip", "-n", topology.gw_b.name, "route", "replace", "default", "via", "172.16.2.1"])
    b.start(settings[1])
    b.wait_installed(timeout=40)
    wait_until("A is up with the new address",
               lambda: a.installed() and a.sas()["site"][0]["remote-host"] == MOVED_B)
    assert_ping(topology.host_a, topology.b.host4)


@ours_responds
def test_a_peer_calls_from_a_new_address(ends, topology, daemon, names):
    names.set(a_gateway_test=topology.a.wan4)
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["local_addrs"] = MOVED_A
    settings[1].connections["site"]["remote_addrs"] = NAME_A
    a, b = start(daemon, ends, settings)
    wait_until("B knows the old address", lambda: listed_name(b, NAME_A) == {"addresses": [topology.a.wan4]})
    assert a.up(check=False).returncode != 0, "nobody knows the address"
    names.set(a_gateway_test=MOVED_A)
    # Names are looked up for strangers every ten seconds.
    wait_until("B finds the new address", lambda: a.up(check=False, timeout=6).returncode == 0, timeout=40)
    assert b.counter("names-unknown") > 0
    assert_ping(topology.host_a, topology.b.host4)


def test_a_live_tunnel_outlasts_another_address(topology, daemon, names):
    names.set(b_gateway_test=topology.b.wan4)
    settings = named(topology)
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    a.wait_installed()
    before = spis(a)
    names.set(b_gateway_test=MOVED_B)
    # A reload looks the names up that were not looked up a moment ago.
    wait_until("the name has its new address", lambda: reloaded(a)["addresses"] == [MOVED_B], timeout=20, step=1)
    assert spis(a) == before
    assert_ping(topology.host_a, topology.b.host4)
    a.down()
    # B does not answer there, because its connection is for another address of it.
    assert a.up(check=False, timeout=6).returncode != 0


def spis(end):
    return [(child["spi-in"], child["spi-out"]) for child in end.installed()]


def reloaded(end):
    end.command("reload")
    return listed_name(end)


def test_names_are_looked_up_by_dns(topology, daemon, names):
    """With all confinement, and with a list of several kinds."""
    names.serve(b_gateway_test=topology.b.wan4)
    settings = named(topology)
    settings[0].connections["site"]["remote_addrs"] = f"nobody.gateway.test, {NAME_B}, 172.16.9.0/24, %any6"
    a, b = start(daemon, esplanade_pair, settings)
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert names.questions() >= 4
    shown = listed(a)["names"]
    assert shown[NAME_B] == {"addresses": [topology.b.wan4]}
    assert "error" in shown["nobody.gateway.test"]


def test_a_gateway_without_names_takes_none_at_a_reload(topology, daemon, names):
    settings = pair(topology, inner=4)
    a, _ = start(daemon, esplanade_pair, settings)
    a.write(named(topology)[0])
    refused = a.command("reload", check=False)
    assert refused.returncode != 0
    assert "did not start with a host name" in refused.stderr and "restart the gateway" in refused.stderr
