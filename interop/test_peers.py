"""Which connection a peer gets, and that no peer gets what is another's."""

import copy
import time

import pytest
from ends import ENDS, establish, ids, start
from harness.settings import ID_A, ID_B, PSK, Settings, pair
from harness.traffic import Flow, assert_ping, transfer

# The responder decides.
with_peers = pytest.mark.parametrize("ends", [("charon", "esplanade"), ("esplanade", "esplanade")], ids=ids)
OWNER, THIEF = "a.rw.esplanade.test", "b.rw.esplanade.test"


def two_peers_of_one_connection(topology):
    """A has two connections, each with an identity of its own, that ask for the same traffic. B takes anybody."""
    settings_a, settings_b = pair(topology, inner=4)
    at_b = settings_b.connections["site"]
    at_b["remote_addrs"] = "%any"
    at_b["remote"]["id"] = "*.rw.esplanade.test"
    settings_b.secrets.clear()
    thief = settings_a.connections["thief"] = copy.deepcopy(settings_a.connections["site"])
    thief["children"] = {"thief-net": thief["children"]["net"]}
    settings_a.secrets.clear()
    for connection, name in (("site", OWNER), ("thief", THIEF)):
        settings_a.connections[connection]["local"]["id"] = name
        settings_a.connections[connection]["keyingtries"] = 1
        for settings in (settings_a, settings_b):
            settings.secrets[f"ike-{connection}"] = {"id": name, "secret": f"the secret of {name}"}
    return settings_a, settings_b


def assert_thief_is_refused(a, b, topology, *, has_it):
    assert a.up("thief-net", check=False).returncode != 0
    assert not a.installed("thief")
    assert b.counter("ike.refused.traffic-held") > 0
    told = [line for line in b.logs().splitlines() if "traffic-held" in line]
    for word in ("WARN", OWNER, THIEF, has_it):
        assert word in told[0], told


@with_peers
def test_a_peer_does_not_get_the_traffic_of_another(ends, topology, daemon):
    a, b = start(daemon, ends, two_peers_of_one_connection(topology))
    a.up()
    b.wait_installed()
    flow = Flow(topology.host_b, topology.host_a, topology.a.host4)
    assert_thief_is_refused(a, b, topology, has_it="with child SA")
    # Nothing may happen for the second after which an SA beside the first would take its traffic.
    time.sleep(1.2)
    report = flow.stop()
    assert report.sent > 50
    assert (report.lost, report.duplicates, report.corrupt) == (0, 0, 0), report


@with_peers
def test_selectors_bound_to_an_identity_are_for_no_other(ends, topology, daemon):
    settings = two_peers_of_one_connection(topology)
    settings[1].connections["site"]["peers"] = {"owner": {"id": OWNER, "remote_ts": topology.a.lan4}}
    a, b = start(daemon, ends, settings)
    assert_thief_is_refused(a, b, topology, has_it="by configuration")
    a.up()
    b.wait_installed()
    assert_ping(topology.host_b, topology.a.host4)


@with_peers
def test_anybody_in_front_does_not_choose_the_suite_of_a_peer_that_is_named(ends, topology, daemon):
    strong, weak = "aes256gcm16-prfsha256-x25519", "aes128gcm16-prfsha256-x25519"
    settings_a, settings_b = pair(topology, inner=4, ike=f"{strong},{weak}")
    site = settings_b.connections.pop("site")
    anybody = copy.deepcopy(site)
    site["proposals"], anybody["proposals"] = strong, weak
    anybody["remote_addrs"] = "%any"
    anybody["remote"]["id"] = "*.rw.esplanade.test"
    anybody["children"] = {"anybody-net": anybody["children"]["net"]}
    settings_b.connections |= {"anybody": anybody, "site": site}
    _, b = establish(daemon, ends, (settings_a, settings_b))
    assert b.sas()["site"][0]["encr-keysize"] == "256"


@pytest.mark.parametrize("ends", ENDS, ids=ids)
def test_hub_and_spoke(ends, topology, daemon):
    """Two spokes reach each other through the hub, which takes a packet out of one tunnel and puts it into the other."""
    hub_id, hub_settings = "hub.esplanade.test", Settings()
    spokes = pair(topology, inner=4)
    for spoke, hub_address, name, child in zip(spokes, ("172.16.1.1", "172.16.2.1"), (ID_A, ID_B), ("to-a", "to-b")):
        spoke.connections["site"]["remote_addrs"] = hub_address
        spoke.connections["site"]["remote"]["id"] = hub_id
        spoke.secrets = {"ike-1": {"id-a": name, "id-b": hub_id, "secret": PSK}}
        at_hub = copy.deepcopy(spoke.connections["site"])
        at_hub |= {"local_addrs": hub_address, "remote_addrs": spoke.connections["site"]["local_addrs"]}
        at_hub["local"], at_hub["remote"] = {"auth": "psk", "id": hub_id}, {"auth": "psk", "id": name}
        net = at_hub["children"].pop("net")
        net["local_ts"], net["remote_ts"] = net["remote_ts"], net["local_ts"]
        at_hub["children"][child] = net
        hub_settings.connections[child] = at_hub
        hub_settings.secrets[f"ike-{child}"] = spoke.secrets["ike-1"]
    hub = daemon("esplanade", "hub")
    hub.start(hub_settings)
    a, b = start(daemon, ends, spokes)
    a.up()
    b.up()
    hub.wait_installed("to-a")
    hub.wait_installed("to-b")
    assert_ping(topology.host_a, topology.b.host4, count=5)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=300_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=300_000)
    told = topology.host_a.run(["nstat", "-asz", "IcmpInRedirects"]).stdout
    assert [line.split()[1] for line in told.splitlines() if "IcmpInRedirects" in line] == ["0"], told
    hub.down("to-b")
    b.wait_gone()
    assert a.installed(), "the other tunnel is up"
