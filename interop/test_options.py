"""What the configuration says about SAs shows on the wire: DSCPs, TFC padding, flows of their own, ICMP types."""

import time

import pytest
from ends import esplanade_pair, establish, start
from harness.capture import Capture
from harness.oracle import esp_packets, read_keys
from harness.process import wait_until
from harness.settings import pair
from harness import traffic
from harness.traffic import Listener, assert_ping, ping
from scapy.layers.inet import UDP

PORT = 41100
EF = 46

def send(topology, port: int, lengths, *, tos: int = 0) -> None:
    traffic.send(topology.host_a, topology.b.host4, port, [bytes(length) for length in lengths], tos=tos)


@pytest.mark.esplanade_only
# RFC 4301 R4; RFC 4303 R21
def test_dscps_have_sas_of_their_own_and_padding_hides_lengths(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    for one in settings:
        children = one.connections["site"]["children"]
        children["voice"] = dict(children["net"], dscp="ef", tfc_padding="1000")
    a, b = start(daemon, esplanade_pair, settings)
    for child in ("net", "voice"):
        a.up(child)
    wait_until("both up", lambda: len(a.installed()) == len(b.installed()) == 2)
    names = {int(child["spi-out"], 16): child["name"] for child in a.installed()}

    listener = Listener(topology.host_b, topology.b.host4, PORT)
    wire = Capture(topology, folder / "wire.pcap")
    lengths = (1, 100, 500, 900)
    send(topology, PORT, lengths)
    send(topology, PORT, lengths, tos=EF << 2)
    assert sorted(map(len, listener.stop(2 * len(lengths)))) == sorted(2 * lengths), "padding is taken off"
    packets = esp_packets(wire.stop())

    sas = {sa.spi: sa for sa in read_keys(a.key_lines())}
    sizes: dict[str, list[int]] = {"net": [], "voice": []}
    for packet in packets:
        name = names[packet.spi]
        inner = sas[packet.spi].open(packet.esp)
        assert (inner.tos == EF << 2) == (name == "voice")
        assert inner[UDP].dport == PORT
        sizes[name].append(len(packet.esp))
    assert len(set(sizes["voice"])) == 1 and len(sizes["voice"]) == len(lengths), sizes
    assert len(set(sizes["net"])) == len(lengths), sizes


@pytest.mark.esplanade_only
# RFC 4301 R4
def test_one_packet_brings_up_the_sas_of_all_dscps(topology, daemon, folder):
    """The first SA carries all packets of the policy: none of the others would be missed."""
    settings = pair(topology, inner=4)
    children = settings[0].connections["site"]["children"]
    children["net"]["start_action"] = "trap"
    for one in settings:
        children = one.connections["site"]["children"]
        children["voice"] = dict(children["net"], dscp="ef")
    a, b = start(daemon, esplanade_pair, settings)
    send(topology, PORT, (1,), tos=EF << 2)
    wait_until("both up", lambda: {child["name"] for child in a.installed()} == {"net", "voice"})


@pytest.mark.esplanade_only
def test_flows_have_sas_of_their_own(topology, daemon, folder):
    settings = pair(topology, inner=4)
    child = settings[0].child()
    child.update(start_action="trap", pfp="protocol, remote_port",
                 local_ts=child["local_ts"] + "[udp]", remote_ts=child["remote_ts"] + "[udp]")
    a, b = start(daemon, esplanade_pair, settings)
    for port in (PORT, PORT + 1):
        listener = Listener(topology.host_b, topology.b.host4, port)
        for_port = f"[udp/{port}]", f"[17/{port}]"

        def up() -> bool:
            send(topology, port, [5])
            return any(child["remote-ts"][0].endswith(for_port) for child in a.installed())
        wait_until(f"an SA for port {port}", up, timeout=15)
        send(topology, port, [7])
        wait_until("another datagram", lambda: bytes(7) in listener.received())
        listener.stop()
    assert len(a.installed()) == len(b.installed()) == 2


@pytest.mark.esplanade_only
# RFC 4301 R17, R120; RFC 7296 R252
def test_icmp_types_are_selected(topology, daemon):
    """Echoes pass (types 0 to 8), what is not ICMP does not."""
    settings = pair(topology, inner=4)
    for one in settings:
        for key in ("local_ts", "remote_ts"):
            one.child()[key] += "[icmp/0-8]"
    establish(daemon, esplanade_pair, settings)
    wait_until("a ping", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1), timeout=10)
    listener = Listener(topology.host_b, topology.b.host4, PORT)
    send(topology, PORT, [5])
    # What is not dropped would come before this.
    assert_ping(topology.host_a, topology.b.host4)
    assert listener.stop() == []


def dummies(end) -> tuple[int, int]:
    """How many the end has sent and received."""
    return end.counter("outbound.dummies"), end.counter("drops.dummy")


@pytest.mark.esplanade_only
# RFC 4303 R16, R17, R18, R20
def test_silent_sas_send_dummies(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    settings[0].child().update(tfc_dummies="20", tfc_padding="1000")
    settings[1].child().update(tfc_padding="1000")
    a, b = establish(daemon, esplanade_pair, settings)
    # Never more than were due in the time that has gone by. A busy machine may have sent fewer.
    begun = time.monotonic()
    before = dummies(a)[0]
    wait_until("forty dummies", lambda: dummies(a)[0] - before >= 40)
    counted = dummies(a)[0] - before
    took = time.monotonic() - begun
    assert counted <= 20 * took + 2, f"{counted} in {took:.2f} s"

    # Packets take the place of dummies, and look like them.
    wire = Capture(topology, folder / "wire.pcap")
    listener = Listener(topology.host_b, topology.b.host4, PORT)
    send(topology, PORT, (1, 100, 500))
    assert sorted(map(len, listener.stop(3))) == [1, 100, 500]
    before = dummies(a)[0]
    wait_until("ten dummies", lambda: dummies(a)[0] - before >= 10)
    packets = [packet for packet in esp_packets(wire.stop()) if packet.source == topology.a.wan(4)]
    assert len(packets) > 10
    assert len({len(packet.esp) for packet in packets}) == 1
    numbers = [packet.sequence for packet in packets]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    sas = {sa.spi: sa for sa in read_keys(a.key_lines())}
    kinds = [bytes(sas[packet.spi].open(packet.esp))[:1] for packet in packets]
    assert sum(kind == b"\x45" for kind in kinds) == 3

    a.down()
    sent = dummies(a)[0]
    wait_until("all have come", lambda: dummies(b)[1] == sent)
    # Nothing may be sent for half a second, the time of ten dummies.
    time.sleep(0.5)
    assert dummies(a)[0] == sent, "they end with the SA"
    assert dummies(b)[0] == 0


def test_strongswan_discards_dummies_and_takes_padding_off(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4, encap=True)
    settings[0].child().update(tfc_dummies="50", tfc_padding="1000")
    a, b = establish(daemon, ("esplanade", "charon"), settings)
    wait_until("dummies", lambda: dummies(a)[0] > 20)
    wire = Capture(topology, folder / "wire.pcap")
    listener = Listener(topology.host_b, topology.b.host4, PORT)
    send(topology, PORT, (1, 100, 500))
    assert sorted(map(len, listener.stop(3))) == [1, 100, 500]
    before = dummies(a)[0]
    wait_until("ten dummies", lambda: dummies(a)[0] - before >= 10)
    packets = [packet for packet in esp_packets(wire.stop()) if packet.source == topology.a.wan(4)]
    assert len(packets) > 10 and len({len(packet.esp) for packet in packets}) == 1
    assert ping(topology.host_a, topology.b.host4) == 3
