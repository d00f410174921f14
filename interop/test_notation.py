"""The same text in both configurations means the same to Esplanade and to strongSwan."""

import pytest
from ends import ENDS, establish, every_end, ids
from harness.settings import PSK, pair
from harness.traffic import assert_ping


@pytest.mark.parametrize("text", ["site:7", "keyid:0x0102", "keyid:#0102", "{2}:a.example.org"])
@every_end
def test_identities_have_one_notation(ends, text, topology, daemon):
    settings = pair(topology, inner=4)
    for one in settings:
        one.secrets["ike-1"] = {"secret": PSK}
    settings[0].connections["site"]["local"]["id"] = text
    settings[1].connections["site"]["remote"]["id"] = text
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)


@pytest.mark.parametrize("key", ["local_port", "remote_port"])
@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
# RFC 3948 §2.2
def test_one_port_for_nat_traversal_brings_the_other(ends, key, topology, daemon):
    settings = pair(topology, inner=4)
    settings[0].connections["site"][key] = 4500
    establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4)
