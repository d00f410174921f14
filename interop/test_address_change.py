"""The gateway's own address changes while traffic flows."""

import pytest
from ends import ENDS, establish, ids
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import Flow, ping

NEW = "172.16.1.77"
WE_MOVE = [ends for ends in ENDS if ends[0] == "esplanade"]


@pytest.mark.parametrize("ends", WE_MOVE, ids=ids)
def test_the_initiator_gets_another_address(ends, topology, daemon):
    settings = pair(topology, inner=4)
    del settings[0].connections["site"]["local_addrs"]
    settings[1].connections["site"]["remote_addrs"] = "%any"
    a, b = establish(daemon, ends, settings)
    flow = Flow(topology.host_a, topology.host_b, topology.b.host4)
    # As a DHCP client does it. The route comes after the address.
    topology.gw_a.run(["ip", "address", "del", f"{topology.a.wan4}/24", "dev", "wan"])
    topology.gw_a.run(["ip", "address", "add", f"{NEW}/24", "dev", "wan"])
    topology.gw_a.run(["ip", "route", "replace", "default", "via", "172.16.1.1"])
    wait_until("traffic goes on", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1), timeout=15)
    assert "does not answer" not in a.logs(), "it was not by giving the peer up"
    for end in (a, b):
        def moved():
            sas = end.sas().get("site", [])
            return len(sas) == 1 and NEW in (sas[0]["local-host"], sas[0]["remote-host"]) and len(end.installed()) == 1
        wait_until(f"one IKE SA, with the new address, at {end.name}", moved)
    assert "our address is gone" in a.logs()
    report = flow.stop()
    assert report.corrupt == 0 and report.received, report
