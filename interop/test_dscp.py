"""The DSCP of IKE messages on the wire (`dscp` of a connection)."""

import pytest
from ends import establish, every_end
from harness.capture import Capture
from harness.settings import pair
from harness.traffic import assert_ping
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.utils import rdpcap

CS6, EF = "110000", "101110"


def ike_messages(file):
    """Source, port and TOS of each IKE message."""
    for packet in rdpcap(str(file)):
        header = packet.getlayer(IP) or packet.getlayer(IPv6)
        udp = packet.getlayer(UDP)
        # ESP on port 4500 has an SPI where IKE messages have the non-ESP marker.
        if udp and (udp.sport == 500 or bytes(udp.payload)[:4] == bytes(4)):
            yield header.src, udp.sport, header.tos if header.version == 4 else header.tc


@pytest.mark.parametrize("version", [4, 6])
@every_end
def test_ike_messages_have_the_dscp_of_their_connection(ends, version, topology, daemon, folder):
    settings = pair(topology, outer=version, inner=4, encap=True)
    settings[0].connections["site"]["dscp"] = CS6
    settings[1].connections["site"]["dscp"] = EF
    wire = Capture(topology, folder / "wire.pcap", "udp port 500 or udp port 4500")
    a, _ = establish(daemon, ends, settings)
    a.rekey_child()
    a.rekey_ike()
    assert_ping(topology.host_a, topology.b.host4)
    a.down()
    messages = list(ike_messages(wire.stop()))
    for site, dscp in ((topology.a, CS6), (topology.b, EF)):
        own = [(port, tos) for source, port, tos in messages if source == site.wan(version)]
        assert {port for port, _ in own} == {500, 4500}
        assert {tos for _, tos in own} == {int(dscp, 2) << 2}
