"""The outer header of tunnel mode on the wire: DSCP map, ECN, hop limit; and the DSCP behind the tunnel."""

import socket

import pytest
from ends import esplanade_pair, establish, with_peer
from harness.capture import Capture
from harness.oracle import esp_packets
from harness.settings import pair
from harness.traffic import Listener, inject
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

PORT = 41200
EF, AF11, CS1 = 46, 10, 8
ECT_0, CE = 2, 3

def packets(topology, version: int, toses) -> list[bytes]:
    """A datagram for each TOS, which is also what is in it."""
    made = []
    for tos in toses:
        header = (IP(src=topology.a.host4, dst=topology.b.host4, tos=tos) if version == 4
                  else IPv6(src=topology.a.host6, dst=topology.b.host6, tc=tos))
        made.append(bytes(header / UDP(sport=PORT, dport=PORT) / bytes([tos] * 40)))
    return made


def outer_fields(frame: bytes) -> tuple[int, int]:
    """TOS and TTL."""
    if frame[0] >> 4 == 4:
        return frame[1], frame[8]
    return (frame[0] & 15) << 4 | frame[1] >> 4, frame[7]


def outer_headers(topology, folder, toses, *, version: int = 4) -> list[tuple[int, int]]:
    wire = Capture(topology, folder / "wire.pcap")
    host = topology.b.host4 if version == 4 else topology.b.host6
    listener = Listener(topology.host_b, host, PORT)
    inject(topology.host_a, packets(topology, version, toses))
    received = [payload[0] for payload in listener.stop(len(toses))]
    assert sorted(received) == sorted(toses), "all arrive"
    # Higher classes go first.
    return sorted(outer_fields(packet.frame) for packet in esp_packets(wire.stop()))


MAP = {"dscp_map": "ef:cs5, 10-14:af11, *:cs1", "copy_ecn": "no", "ttl": "7"}
INNER = [EF << 2 | ECT_0, AF11 << 2 | ECT_0, 12 << 2, 0, 63 << 2]
# The WAN has taken one hop.
OUTER = sorted([(40 << 2, 6), (AF11 << 2, 6), (AF11 << 2, 6), (CS1 << 2, 6), (CS1 << 2, 6)])


@with_peer
# RFC 4301 R36, R37
def test_the_outer_header_is_made_by_the_map(ends, topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4, encap=True)
    ours = settings[ends.index("esplanade")]
    ours.child().update(MAP)
    establish(daemon, ends, settings)
    if ends[0] == "esplanade":
        assert outer_headers(topology, folder, INNER) == OUTER
    else:
        # What the peer sends has its own header, and is taken.
        assert len(outer_headers(topology, folder, INNER)) == len(INNER)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("outer", [4, 6])
@pytest.mark.parametrize("proposal", ["udp", "esp", "ah"])
def test_it_is_so_in_every_encapsulation(outer, proposal, topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=6, outer=outer, encap=proposal == "udp")
    for one in settings:
        one.child().update(MAP)
        if proposal == "ah":
            del one.child()["esp_proposals"]
            one.child()["ah_proposals"] = "sha256"
    establish(daemon, esplanade_pair, settings)
    assert outer_headers(topology, folder, INNER, version=6) == OUTER


@pytest.mark.esplanade_only
# RFC 4301 R36
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("encap", [True, False], ids=["udp", "esp"])
def test_the_outer_dscp_replaces_the_inner_one(version, encap, topology, daemon, folder):
    settings = pair(topology, inner=version, encap=encap)
    settings[0].child()["dscp_map"] = "ef:cs5"
    settings[1].child()["copy_dscp"] = "in"
    establish(daemon, esplanade_pair, settings)
    host = topology.b.host4 if version == 4 else topology.b.host6
    sent = [EF << 2, EF << 2 | CE, AF11 << 2 | ECT_0, 0]
    family, level, option = ((socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS) if version == 6
                             else (socket.AF_INET, socket.IPPROTO_IP, socket.IP_RECVTOS))
    got = {}
    with topology.host_b.socket(family) as listener:
        listener.setsockopt(level, option, 1)
        listener.bind((host, PORT))
        listener.settimeout(10)
        inject(topology.host_a, packets(topology, version, sent))
        for _ in sent:
            payload, control, _, _ = listener.recvmsg(2000, 100)
            got[payload[0]] = next(data[0] for kind, _, data in control if kind == level)
    assert got == {tos: tos for tos in sent} | {EF << 2: 40 << 2, EF << 2 | CE: 40 << 2 | CE}
