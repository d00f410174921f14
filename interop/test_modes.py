"""Transport mode and AH, held against scapy; what strongSwan says to transport mode."""

import pytest
from ends import esplanade_pair, establish, start, with_peer
from harness.capture import Capture
from harness.oracle import EspSa, esp_packets, read_keys
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import Listener, assert_ping, inject, ping, transfer
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

PORT = 40200
# Child, protocol, mode, whether ESP is put into UDP.
KINDS = {"esp-transport": ("esp", "transport", False), "esp-transport-udp": ("esp", "transport", True),
         "ah-transport": ("ah", "transport", False), "ah-tunnel": ("ah", "tunnel", False)}


def settings_for(topology, kind: str, outer: int):
    protocol, mode, encap = KINDS[kind]
    both = pair(topology, outer=outer, inner=outer, encap=encap)
    for one in both:
        child = one.child()
        child["mode"] = mode
        if mode == "transport":
            child["local_ts"] = child["remote_ts"] = "dynamic"
        if protocol == "ah":
            del child["esp_proposals"]
            child["ah_proposals"] = "sha256-esn" if outer == 6 else "sha256"
    return both


def ends_of(topology, kind: str, outer: int):
    """Where the protected traffic begins and ends: namespaces and addresses."""
    a, b = topology.a, topology.b
    if KINDS[kind][1] == "transport":
        return topology.gw_a, topology.gw_b, a.wan(outer), b.wan(outer)
    return topology.host_a, topology.host_b, a.host(outer), b.host(outer)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outer", [4, 6], ids=["v4", "v6"])
def test_scapy_agrees(kind, outer, topology, daemon, folder, needs_capture):
    """Nothing of it is in the clear; scapy opens all that we seal, and we open what scapy seals, once."""
    protocol, mode, encap = KINDS[kind]
    daemons = establish(daemon, esplanade_pair, settings_for(topology, kind, outer))
    for one in daemons:
        child = one.installed()[0]
        assert (child["mode"], child["protocol"]) == (mode.upper(), protocol.upper())
    from_space, to_space, source, target = ends_of(topology, kind, outer)
    wait_until("the first ping", lambda: ping(from_space, target, count=1, timeout=1), timeout=10)
    wire = Capture(topology, folder / "wire.pcap")
    assert_ping(from_space, target, count=5)
    assert_ping(to_space, source, count=5, size=1200)
    transfer(from_space, to_space, target, size=100_000)
    # The last acknowledgement may leave after the end of the transfer, and takes a sequence number.
    assert_ping(from_space, target)
    file = wire.stop()

    sas = {sa.spi: sa for sa in read_keys(daemons[0].key_lines())}
    esn = protocol == "ah" and outer == 6
    packets = esp_packets(file)
    assert {packet.is_ah for packet in packets} == {protocol == "ah"}
    assert {packet.udp is not None for packet in packets} == {encap}
    seen = set()
    for packet in packets:
        sa = sas[packet.spi]
        sa.transport = mode == "transport"
        inner = open_packet(sa, packet, esn)
        assert {inner.src, inner.dst} == {source, target}
        seen.add(inner.payload.name)
    assert {"ICMP", "TCP"} <= seen or {"ICMPv6 Echo Request", "TCP"} <= seen, seen
    clear = [frame for frame in wire_frames(file) if bytes(frame)[:1] and is_clear(frame, (source, target))]
    assert clear == []

    to_b = int(daemons[0].installed()[0]["spi-out"], 16)
    sa, first = sas[to_b], next(packet for packet in packets if packet.spi == to_b)
    sequence = max(packet.sequence for packet in packets if packet.spi == to_b) + 1
    listener = Listener(to_space, target, PORT)
    header = IP if outer == 4 else IPv6
    texts = [bytes([length % 251]) * length for length in (1, 2, 3, 4, 5, 300, 1000)]
    frames = []
    for number, text in enumerate(texts):
        inner = header(src=source, dst=target) / UDP(sport=9, dport=PORT) / Raw(text)
        if mode == "transport" and outer == 4:
            # The kernel would write one of its own, and AH covers it.
            inner.id = 100 + number
        frames.append(sealed(sa, inner, sequence + number, first.udp, esn))
    inject(topology.wan, [*frames, frames[0], frames[-1]])
    wait_until("both copies are counted", lambda: daemons[1].counter("drops.replayed") == 2)
    assert listener.stop(len(texts)) == texts
    inner = header(src=source, dst=target) / UDP(sport=9, dport=PORT) / Raw(b"forged")
    forged = sealed(sa, inner, sequence + 50, first.udp, esn, forge=True)
    before = daemons[1].counter("drops.authentication-failed")
    inject(topology.wan, [forged])
    wait_until("the forged packet is counted", lambda: daemons[1].counter("drops.authentication-failed") == before + 1, timeout=10)


def open_packet(sa: EspSa, packet, esn: bool):
    if packet.is_ah:
        return sa.open_frame(packet.frame, esn=esn)
    return sa.open(packet.esp, esn=esn)


def sealed(sa: EspSa, inner, sequence: int, udp, esn: bool, *, forge: bool = False) -> bytes:
    """The packet on the wire. A forged one has another last byte, which is of the payload or of the ICV."""
    def changed(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ forge])
    if udp is None:
        return changed(sa.seal_frame(inner, sequence, esn=esn))
    return bytes(sa.wrap(changed(sa.seal(inner, sequence, esn=esn)), udp=udp))


def wire_frames(file):
    from scapy.utils import PcapReader
    with PcapReader(str(file)) as reader:
        return [frame.payload for frame in reader]


def is_clear(packet, addresses) -> bool:
    """TCP or echoes between the protected ends as they are."""
    if not isinstance(packet, (IP, IPv6)) or {packet.src, packet.dst} != set(addresses):
        return False
    protocol = packet.proto if isinstance(packet, IP) else packet.nh
    echo = protocol == 1 or (protocol == 58 and bytes(packet.payload)[:1] in (b"\x80", b"\x81"))
    return protocol == 6 or echo


@pytest.mark.esplanade_only
# RFC 4301 R6, R69
def test_a_trap_asks_for_transport_mode(topology, daemon, folder):
    """The host's own first packet brings the SA up; an idle one goes again and the next packet brings another."""
    settings = settings_for(topology, "esp-transport", 4)
    child = settings[0].child()
    child["start_action"], child["inactivity"] = "trap", "2s"
    a, b = start(daemon, esplanade_pair, settings)
    for _ in range(2):
        wait_until("a ping", lambda: ping(topology.gw_a, topology.b.wan4, count=1, timeout=1), timeout=15)
        assert a.wait_installed()["mode"] == "TRANSPORT"
        wait_until("the idle child is gone", lambda: not a.installed() and not b.installed(), timeout=30)


@with_peer
# RFC 7296 R11
def test_strongswan_agrees_to_transport_mode(ends, topology, daemon):
    """As far as IKE goes: kernel-libipsec then has no such mode, and the child is taken back without harm."""
    # Without `encap` we take the NAT that kernel-libipsec feigns for a real one, which transport mode does not pass.
    settings = settings_for(topology, "esp-transport-udp", 4)
    daemons = start(daemon, ends, settings)
    charon = daemons[ends.index("charon")]
    assert daemons[0].up(check=False).returncode != 0
    direction = "response" if ends[0] == "charon" else "request"
    wait_until("charon refuses the mode", lambda: "unsupported mode" in charon.logs(), timeout=15)
    negotiated = [line for line in charon.logs().splitlines() if f"IKE_AUTH {direction} 1 [" in line]
    assert negotiated and all("N(USE_TRANSP)" in line for line in negotiated), negotiated
    # strongSwan 6 takes AUTH out of a response that refuses the child: without AUTH the initiator has no IKE SA.
    refused = "IKE_AUTH response 1 [ N(NO_PROP) ]" in charon.logs()
    for one in daemons:
        wait_until(f"no child at {one.name}", lambda: not one.children(), timeout=15)
        assert len(one.sas().get("site", [])) == (0 if refused and one is not charon else 1)
