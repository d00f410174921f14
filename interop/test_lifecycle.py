"""What happens to tunnels that are up: rekeying under load, dead peers, deletes."""

import time

import pytest
from ends import ENDS, each_end, esplanade_pair, establish, every_end, ids, start
from harness.capture import Informational
from harness.namespaces import SECOND_A4, SECOND_B4
from harness.process import wait_until
from harness.settings import add_second, pair
from harness.traffic import Flow, assert_ping, ping


def both_ways(topology, **options):
    a, b = topology.host_a, topology.host_b
    return [Flow(a, b, topology.b.host4, **options), Flow(b, a, topology.a.host4, **options)]


def assert_undisturbed(flows):
    # Nothing may be lost while the last exchange has its effects.
    for flow in flows:
        flow.go_on(total=101)
    for report in [flow.stop() for flow in flows]:
        assert (report.lost, report.duplicates, report.corrupt) == (0, 0, 0), report


def spis(end):
    return {child["spi-in"] for child in end.children()}


def one_new_child(end, old):
    """Only one child SA is left, and it is none of the old ones."""
    children = end.children()
    return len(children) == 1 and children[0]["state"] == "INSTALLED" and children[0]["spi-in"] not in old


@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
# RFC 4301 R12
def test_a_second_gateway_to_the_same_networks(ends, topology, daemon):
    """Nobody answers at the address of the first."""
    settings = pair(topology, inner=4)
    site = settings[0].connections.pop("site")
    site["children"]["net"]["start_action"] = "start"
    settings[0].connections = {"first": site | {"remote_addrs": "172.16.2.99"}, "site": site}
    a, _ = start(daemon, ends, settings)
    a.wait_installed("site")
    assert_ping(topology.host_a, topology.b.host4)
    packet = f"icmp {topology.a.host4} -> {topology.b.host4}"
    assert "protect: site/net says so" in a.command("explain", packet).stdout


def carries(end):
    """Its child SAs have carried packets both ways."""
    return all(int(child["packets-in"]) and int(child["packets-out"]) for child in end.children())


@pytest.mark.parametrize("by", ["initiator", "responder"])
@pytest.mark.parametrize("pfs", [False, True], ids=["no-pfs", "pfs"])
@each_end
# RFC 7296 R20
def test_rekey_child_under_load(ends, by, pfs, topology, daemon):
    settings = pair(topology, esp="aes128gcm16-x25519" if pfs else "aes128gcm16", inner=4)
    a, b = establish(daemon, ends, settings)
    flows = both_ways(topology)
    rekeying = a if by == "initiator" else b
    for _ in range(3):
        old = spis(a), spis(b)
        rekeying.rekey_child()
        wait_until("the new child SA at A", lambda: one_new_child(a, old[0]))
        wait_until("the new child SA at B", lambda: one_new_child(b, old[1]))
        for end in (a, b):
            wait_until(f"packets on the new child SA of {end.name}", lambda: carries(end))
    assert_undisturbed(flows)


@pytest.mark.parametrize("by", ["initiator", "responder"])
@each_end
# RFC 7296 R16, R24, R97, R142, R204, R212
def test_rekey_ike_under_load(ends, by, topology, daemon):
    a, b = establish(daemon, ends, pair(topology, inner=4))
    flows = both_ways(topology)
    rekeying = a if by == "initiator" else b
    for _ in range(2):
        old = a.sas()["site"][0]["initiator-spi"]
        children = spis(a)
        rekeying.rekey_ike()
        for end in (a, b):
            wait_until(f"the new IKE SA at {end.name}", lambda: len(end.sas().get("site", [])) == 1
                       and end.sas()["site"][0]["state"] == "ESTABLISHED"
                       and end.sas()["site"][0]["initiator-spi"] != old)
        assert spis(a) == children, "rekeying the IKE SA must not touch the child SA"
    # The child now lives under the new IKE SA and can be rekeyed there.
    old = spis(a)
    rekeying.rekey_child()
    wait_until("the new child SA", lambda: one_new_child(a, old))
    assert_undisturbed(flows)


@each_end
# RFC 7296 R99, R104, R105, R106
def test_rekey_by_time_at_both_ends(ends, topology, daemon):
    """Both ends' timers are due at the same moment, again and again: simultaneous rekeys."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"] |= {"rekey_time": "4s", "over_time": "20s", "rand_time": "0s"}
        one.child().update(rekey_time="3s", life_time="20s", rand_time="0s")
    a, b = establish(daemon, ends, settings)
    first = spis(a)
    flows = both_ways(topology)
    seen = set(first)
    ike = set()

    def often_enough() -> bool:
        seen.update(spis(a))
        ike.update(sa["initiator-spi"] for sa in a.sas().get("site", []))
        return len(seen) >= 4 and len(ike) >= 3

    wait_until("three rekeys of the child SA and two of the IKE SA", often_enough, timeout=40, step=0.2)
    assert_undisturbed(flows)
    # Left-overs of simultaneous rekeys must have been deleted again.
    assert len(a.installed()) <= 2 and len(b.installed()) <= 2


@each_end
def test_rekey_by_packets(ends, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child().update(rekey_packets=500, life_packets=100000, rand_packets=0)
    a, b = establish(daemon, ends, settings)
    first = spis(a)
    flows = both_ways(topology)
    wait_until("a rekey after 500 packets", lambda: not first & {c["spi-in"] for c in a.installed()}, timeout=15)
    assert_undisturbed(flows)
    wait_until("one child SA left", lambda: len(a.children()) == 1 and len(b.children()) == 1)


@pytest.mark.parametrize("dead", ["initiator", "responder"])
@every_end
# RFC 7296 R46
def test_dead_peer_is_noticed(ends, dead, topology, daemon):
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"]["dpd_delay"] = "1s"
        one.child()["dpd_action"] = "clear"
    a, b = establish(daemon, ends, settings, retransmit_timeout=0.3, retransmit_tries=2)
    killed, alive = (a, b) if dead == "initiator" else (b, a)
    killed.kill()
    alive.wait_gone(timeout=15)


@every_end
def test_dead_peer_comes_back(ends, topology, daemon):
    """dpd_action = restart: negotiated again as soon as the peer answers."""
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["dpd_delay"] = "1s"
    settings[0].connections["site"]["keyingtries"] = 0
    settings[0].child()["dpd_action"] = "restart"
    a, b = establish(daemon, ends, settings, retransmit_timeout=0.3, retransmit_tries=2)
    b.kill()
    wait_until("A gives the peer up", lambda: not a.installed(), timeout=15)
    b.start(settings[1])
    a.wait_installed(timeout=20)
    assert_ping(topology.host_a, topology.b.host4)


@every_end
# RFC 7296 R25
def test_liveness_check_is_answered(ends, topology, daemon):
    """An idle tunnel with a living peer stays."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.connections["site"]["dpd_delay"] = "1s"
    a, b = establish(daemon, ends, settings, retransmit_timeout=0.3, retransmit_tries=2)
    old = a.sas()["site"][0]["initiator-spi"]
    # Nothing may happen to the SA for several checks.
    Informational(topology).wait(3)
    assert [sa["initiator-spi"] for sa in a.sas()["site"]] == [old]
    assert [sa["initiator-spi"] for sa in b.sas()["site"]] == [old]
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.parametrize("by", ["initiator", "responder"])
@every_end
# RFC 7296 R27, R28
def test_delete_child(ends, by, topology, daemon):
    a, b = establish(daemon, ends, pair(topology, inner=4))
    (a if by == "initiator" else b).down_child()
    for end in (a, b):
        wait_until(f"the child SA gone at {end.name}", lambda: not end.children())
        assert [sa["state"] for sa in end.sas()["site"]] == ["ESTABLISHED"]
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    # The IKE SA is still good for a new child.
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.parametrize("by", ["initiator", "responder"])
@every_end
# RFC 7296 R31
def test_delete_ike(ends, by, topology, daemon):
    settings = pair(topology, inner=4)
    add_second(*settings)
    a, b = establish(daemon, ends, settings)
    a.up("second-net")
    b.wait_installed("second")
    flow = Flow(topology.host_a, topology.host_b, SECOND_B4)
    (a if by == "initiator" else b).down()
    a.wait_gone()
    b.wait_gone()
    assert ping(topology.host_a, topology.b.host4, count=1, timeout=0.5) == 0
    a.up()
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert_ping(topology.host_b, SECOND_A4)
    assert_undisturbed([flow])


@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
@pytest.mark.esplanade_only
# RFC 7296 R70
def test_shutdown_tells_the_peer(ends, topology, daemon):
    """SIGTERM deletes the SAs: the peer does not wait for its liveness check."""
    a, b = establish(daemon, ends, pair(topology, inner=4))
    assert a.stop() == 0
    b.wait_gone(timeout=5)


@every_end
def test_restarted_peer_replaces_its_old_sas(ends, topology, daemon):
    """INITIAL_CONTACT: the reborn initiator's old SAs go at once."""
    settings = pair(topology, inner=4)
    a, b = establish(daemon, ends, settings)
    old = b.sas()["site"][0]["initiator-spi"]
    a.kill()
    a.start(settings[0])
    a.up()
    wait_until("one new IKE SA at B", lambda: [sa["initiator-spi"] for sa in b.sas()["site"]] not in ([old], [])
               and len(b.sas()["site"]) == 1)
    assert_ping(topology.host_b, topology.a.host4)


@each_end
def test_both_ends_initiate_at_once(ends, topology, daemon):
    """One IKE SA is left, whoever was first."""
    settings = pair(topology, inner=4)
    for one in settings:
        one.child()["start_action"] = "start"
    a, b = start(daemon, ends, settings)

    def one_each():
        return all(len(end.sas().get("site", [])) == 1 and len(end.installed()) == 1 for end in (a, b))

    def all_up():
        sas = [sa for end in (a, b) for sa in end.sas().get("site", [])]
        return sas and all(sa["state"] == "ESTABLISHED" for sa in sas)

    wait_until("ping", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=0.5))
    # As the responder, charon sends on a new SA before its IKE_AUTH response leaves, so both attempts end first.
    wait_until("no attempt is under way", all_up)
    flows = both_ways(topology)
    # Nothing may be lost while one of the two SAs goes.
    for flow in flows:
        flow.go_on(100)
    wait_until("one IKE SA", one_each, timeout=20)
    assert_undisturbed(flows)
    assert_ping(topology.host_a, topology.b.host4)


# RFC 4301 R21; RFC 7296 R94
@pytest.mark.esplanade_only
def test_a_hard_limit_ends_an_sa(topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child().update(rekey_packets=0, life_packets=20, dpd_action="start")
    a, b = establish(daemon, esplanade_pair, settings)
    first = a.installed()[0]["spi-in"]
    ping(topology.host_a, topology.b.host4, count=40, timeout=1)
    wait_until("another SA", lambda: any(child["spi-in"] != first for child in a.installed()))
    wait_until("the first is gone", lambda: all(child["spi-in"] != first for child in a.installed()))
    assert "lifetime expired" in a.logs()


@pytest.mark.esplanade_only
@pytest.mark.parametrize("fixed", [False, True], ids=["any-address", "fixed-address"])
def test_the_network_comes_after_the_gateway(fixed, topology, daemon):
    """No address and no route at start, no traffic later: `start_action = start` brings the tunnel up all the same."""
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    if not fixed:
        del settings[0].connections["site"]["local_addrs"]
    gateway = topology.gw_a
    gateway.run(["ip", "-4", "addr", "flush", "dev", "wan"])
    gateway.run(["ip", "link", "set", "wan", "down"])
    a, b = start(daemon, ("esplanade", "esplanade"), settings)
    wait_until("the reason in the log", lambda: "no route to the peer" in a.logs())
    gateway.run(["ip", "addr", "add", topology.a.wan4 + "/24", "dev", "wan"])
    gateway.run(["ip", "link", "set", "wan", "up"])
    gateway.run(["ip", "route", "add", "default", "via", "172.16.1.1"])
    a.wait_installed(timeout=30)
    b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_down_ends_what_waits_and_holds_against_traffic(topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    a, b = (daemon("esplanade", side, retransmit_timeout=0.2, retransmit_tries=1) for side in "ab")
    a.start(settings[0])
    wait_until("the first attempt has failed", lambda: "next attempt in" in a.logs())
    a.down()
    b.start(settings[1])
    assert ping(topology.host_a, topology.b.host4, count=4, timeout=1) == 0
    # No attempt may be made for longer than the time to the next one.
    time.sleep(6)
    a.command("reload")
    assert not a.sas() and not b.sas()
    a.up()
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.esplanade_only
def test_down_does_not_wait_for_a_peer_that_is_asked_in_vain(topology, daemon):
    """A liveness check is under way, and nobody answers it for minutes."""
    settings = pair(topology, inner=4)
    settings[0].connections["site"]["dpd_delay"] = "1s"
    a, b = establish(daemon, ("esplanade", "esplanade"), settings, retransmit_timeout=60)
    b.kill()
    wait_until("the liveness check", lambda: a.sas()["site"][0].get("tasks-active") == ["IKE_DPD"], timeout=15)
    a.command("down", "site", timeout=12)
    assert not a.children()


@every_end
def test_a_restart_right_after_the_first_contact_is_noticed(ends, topology, daemon):
    """The peer comes back within seconds and initiates: nothing is left of what it has forgotten."""
    a, b = establish(daemon, ends, pair(topology, inner=4))
    old = a.sas()["site"][0]["initiator-spi"]
    b.kill()
    b.start(pair(topology, inner=4)[1])
    b.up()
    wait_until("one new IKE SA at A", lambda: [sa["initiator-spi"] for sa in a.sas()["site"]] not in ([old], [])
               and len(a.sas()["site"]) == 1)
    assert_ping(topology.host_a, topology.b.host4)
    b.down()
    a.wait_gone(timeout=5)


@pytest.mark.esplanade_only
def test_status_shows_what_is_down(topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    a, b = (daemon("esplanade", side, retransmit_timeout=0.2, retransmit_tries=1) for side in "ab")

    def child():
        return a.status()["connections"][0]["site"]["children"]["net"]

    a.start(settings[0])
    wait_until("it waits for its next attempt", lambda: child()["state"] == "WAITING")
    assert child()["last-error"] == "the peer does not answer"
    assert child()["next-attempt"] <= 10
    said = a.command("status").stdout
    assert "down      site/net, next attempt in " in said and ": the peer does not answer (" in said, said
    assert "net" in a.swanctl("--list-conns").stdout
    b.start(settings[1])
    a.wait_installed(timeout=30)
    assert child()["state"] == "UP" and "last-error" not in child()
    assert "down " not in a.command("status").stdout
    a.down()
    assert "down      site/net, closed by command" in a.command("status").stdout
