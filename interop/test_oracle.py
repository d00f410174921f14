"""scapy opens on the wire what we seal and seals what we open; what is forged or replayed is dropped."""

import copy
from dataclasses import dataclass
from functools import cached_property

import pytest
from ends import esplanade_pair, establish, start
from harness.capture import Capture, dissect
from harness.oracle import EspPacket, EspSa, esp_packets, read_keys
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import Flow, Listener, assert_ping, inject, ping
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation, _ESPPlain
from scapy.packet import Raw

PORT = 40200
SUITES = ["aes128gcm16", "aes256gcm16", "aes128-sha256", "aes256-sha256"]


@dataclass
class Live:
    """A tunnel that has carried some traffic, and what the wire showed of it."""
    a: object
    b: object
    topology: object
    packets: list[EspPacket]
    sas: dict[int, EspSa]
    esn: bool
    inner: int

    def open(self, packet: EspPacket):
        return self.sas[packet.spi].open(packet.esp, esn=self.esn)

    def to_b(self) -> list[EspPacket]:
        return [packet for packet in self.packets if packet.source == self.sa.source]

    @cached_property
    def sa(self) -> EspSa:
        """From A to B."""
        spi = int(self.a.installed()[0]["spi-out"], 16)
        return self.sas[spi]

    def datagram(self, text: bytes, *, source: str | None = None):
        a, b = self.topology.a, self.topology.b
        header = IP if self.inner == 4 else IPv6
        return header(src=source or a.host(self.inner), dst=b.host(self.inner)) / UDP(sport=9, dport=PORT) / Raw(text)

    def seal(self, text: bytes, sequence: int, **options) -> bytes:
        return self.sa.seal(self.datagram(text, **options), sequence, esn=self.esn)

    def send(self, *esp: bytes) -> None:
        """Injected by the router, as if A had sent them."""
        udp = self.to_b()[0].udp
        inject(self.topology.wan, [bytes(self.sa.wrap(one, udp=udp)) for one in esp])

    @property
    def next_sequence(self) -> int:
        return max(packet.sequence for packet in self.to_b()) + 1


@pytest.fixture
def live(topology, daemon, folder, needs_capture):
    def make(*, suite: str = "aes128gcm16", esn: bool = False, outer: int = 4, inner: int = 4, encap: bool = True):
        settings = pair(topology, outer=outer, inner=inner, encap=encap, esp=suite + ("-esn" if esn else "-noesn"))
        for one in settings:
            one.child()["replay_window"] = 64
        a, b = establish(daemon, esplanade_pair, settings)
        wire = Capture(topology, folder / "wire.pcap")
        flows = [Flow(topology.host_a, topology.host_b, topology.b.host(inner), size=size, port=40300 + size, rate=60)
                 for size in (61, 256, 1200)]
        assert_ping(topology.host_b, topology.a.host(inner), count=20, interval=0.02)
        assert_ping(topology.host_b, topology.a.host(inner), count=5, size=1300, interval=0.02)
        for flow in flows:
            report = flow.stop()
            assert (report.lost, report.corrupt) == (0, 0)
        packets = esp_packets(wire.stop())
        assert packets and {packet.udp is not None for packet in packets} == {encap}
        return Live(a, b, topology, packets, {sa.spi: sa for sa in read_keys(a.key_lines())}, esn, inner)
    return make


CASES = [(suite, esn, outer, (outer == 4) != esn) for suite in SUITES for esn in (False, True) for outer in (4, 6)]


@pytest.mark.esplanade_only
@pytest.mark.parametrize("suite, esn, outer, encap", CASES, ids=[
    f"{suite}-{'esn' if esn else 'noesn'}-outer-v{outer}-{'udp' if encap else 'raw'}"
    for suite, esn, outer, encap in CASES])
def test_scapy_opens_and_seals(suite, esn, outer, encap, live):
    tunnel = live(suite=suite, esn=esn, outer=outer, inner=4 if encap else 6, encap=encap)

    for spi in {packet.spi for packet in tunnel.packets}:
        sequences = [packet.sequence for packet in tunnel.packets if packet.spi == spi]
        assert sequences == sorted(set(sequences)), "sequence numbers must only grow"
        # An IV that comes twice under one key is the end of GCM; CBC's must not be guessable.
        iv_bytes = 8 if "gcm" in suite else 16
        ivs = {packet.esp[8:8 + iv_bytes] for packet in tunnel.packets if packet.spi == spi}
        assert len(ivs) == len(sequences)
    for packet in tunnel.packets:
        inner = tunnel.open(packet)
        assert inner.version == tunnel.inner
        assert {inner.src, inner.dst} == {tunnel.topology.a.host(tunnel.inner), tunnel.topology.b.host(tunnel.inner)}

    listener = Listener(tunnel.topology.host_b, tunnel.topology.b.host(tunnel.inner), PORT)
    texts = [bytes([length % 251]) * length for length in (1, 2, 3, 13, 14, 15, 16, 17, 300, 1200)]
    first = tunnel.next_sequence
    tunnel.send(*(tunnel.seal(text, first + number) for number, text in enumerate(texts)))
    assert listener.stop(len(texts)) == texts


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1:] if place >= 0 else changed(data, place + len(data))


# Each takes the tunnel and gives packets that must all be dropped, with the counter that must count them.
BAD = {
    "replayed": ("replayed", lambda t: [t.to_b()[-1].esp, t.to_b()[-1].esp, t.to_b()[-20].esp]),
    "left-of-the-window": ("before-window", lambda t: [t.to_b()[0].esp, t.to_b()[1].esp]),
    "forged-icv": ("authentication-failed", lambda t: [changed(t.seal(b"x", t.next_sequence + n), -1 - n)
                                                       for n in range(16)]),
    "forged-ciphertext": ("authentication-failed", lambda t: [changed(t.seal(b"x" * 64, t.next_sequence), place)
                                                              for place in (8, 20, 40)]),
    "forged-sequence": ("authentication-failed", lambda t: [_renumbered(t.seal(b"x", t.next_sequence), t.next_sequence + 1)]),
    "sequence-far-ahead": ("authentication-failed", lambda t: [_renumbered(t.to_b()[-1].esp, 0xFFFFFF00)]),
    "sequence-zero": ("replayed", lambda t: [t.seal(b"x", 0)]),
    "truncated": ("malformed-esp", lambda t: [t.to_b()[-1].esp[:length] for length in (8, 12, 17, 24, 31)]),
    "cut-short": ("authentication-failed", lambda t: [t.seal(b"x" * 200, t.next_sequence)[:-16]]),
    "unknown-spi": ("unknown-spi", lambda t: [b"\x7f\xff\xff\xf1" + t.to_b()[-1].esp[4:]]),
    "reflected": ("unknown-spi", lambda t: [p.esp for p in t.packets if p.source == t.sa.destination][:3]),
    "foreign-inner-source": ("selector-mismatch", lambda t: [t.seal(b"x", t.next_sequence, source="192.168.77.1")]),
    "old-key": ("authentication-failed", lambda t: [_with_other_key(t)]),
}
# The sequence number zero is never sent; which reason counts it is the receiver's choice.
ALSO = {"sequence-zero": ("before-window", "malformed-esp"), "truncated": ("authentication-failed", "unknown-spi")}


def _renumbered(esp: bytes, sequence: int) -> bytes:
    return esp[:4] + sequence.to_bytes(4, "big") + esp[8:]


def _with_other_key(tunnel) -> bytes:
    other = copy.copy(tunnel.sa)
    other.cipher_key, other.integrity_key = bytes(len(other.cipher_key)), bytes(len(other.integrity_key))
    return other.seal(tunnel.datagram(b"x"), tunnel.next_sequence + 5, esn=tunnel.esn)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("suite, encap", [("aes128gcm16", True), ("aes128-sha256", False)], ids=["gcm-udp", "cbc-raw"])
def test_bad_packets_are_dropped_and_counted(suite, encap, live):
    """One tunnel meets every kind of bad packet; none gets through, each is counted, the tunnel goes on."""
    tunnel = live(suite=suite, encap=encap)
    for name, (reason, make) in BAD.items():
        packets = make(tunnel)
        reasons = (reason, *ALSO.get(name, ()))
        before = sum(tunnel.b.counter(f"drops.{each}") for each in reasons)
        listener = Listener(tunnel.topology.host_b, tunnel.topology.b.host(4), PORT)
        tunnel.send(*packets)

        def counted() -> int:
            return sum(tunnel.b.counter(f"drops.{each}") for each in reasons) - before

        wait_until(f"{name}: {len(packets)} sent and counted as {reasons}", lambda: counted() >= len(packets))
        assert listener.stop() == [], f"{name}: got through"
        assert counted() == len(packets), f"{name}: {len(packets)} sent, counted as {reasons}: {counted()}"
    # None of it moved the window or the SA; the foreign packet was authentic and has used up a number of A's.
    ping(tunnel.topology.host_a, tunnel.topology.b.host4, count=1, timeout=0.2)
    assert_ping(tunnel.topology.host_a, tunnel.topology.b.host4, count=20, interval=0.02)
    assert len(tunnel.b.installed()) == 1


@pytest.mark.esplanade_only
def test_bad_padding_and_next_header(live):
    """Authenticated but wrong inside: only the peer itself can send these."""
    tunnel = live(suite="aes128gcm16")
    sa = SecurityAssociation(ESP, spi=tunnel.sa.spi, crypt_algo="AES-GCM", crypt_key=tunnel.sa.cipher_key)
    sequence = tunnel.next_sequence

    def seal(data: bytes, padding: bytes, padlen: int, next_header: int, number: int) -> bytes:
        iv = number.to_bytes(8, "big")
        plain = _ESPPlain(spi=tunnel.sa.spi, seq=number, iv=iv, data=data, padding=padding, padlen=padlen, nh=next_header)
        return bytes(sa.crypt_algo.encrypt(sa, plain, sa.crypt_key, 16))

    inner = bytes(tunnel.datagram(b"x" * 12))
    cases = [("bad-padding", seal(inner, b"\x09\x08", 2, 4, sequence)),
             ("bad-padding", seal(b"", b"\x01\x02", 200, 4, sequence + 1)),
             ("bad-next-header", seal(inner, b"\x01\x02", 2, 89, sequence + 2)),
             ("dummy", seal(bytes(62), b"", 0, 59, sequence + 3)),
             ("malformed-inner", seal(inner[:12], b"\x01\x02", 2, 4, sequence + 4))]
    for reason, packet in cases:
        before = tunnel.b.counter(f"drops.{reason}")
        listener = Listener(tunnel.topology.host_b, tunnel.topology.b.host(4), PORT)
        tunnel.send(packet)
        wait_until(f"{reason} is counted", lambda: tunnel.b.counter(f"drops.{reason}") > before)
        assert listener.stop() == []
        assert tunnel.b.counter(f"drops.{reason}") == before + 1, reason
    # These five numbers are used up for A's own packets.
    ping(tunnel.topology.host_a, tunnel.topology.b.host4, count=5, timeout=0.2)
    assert_ping(tunnel.topology.host_a, tunnel.topology.b.host4, count=10)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("rp_filter", [1, 0])
# RFC 4301 R8, R40
def test_clear_packets_do_not_get_in(rp_filter, live):
    """Unprotected packets from outside that pretend to come from the other site (RFC 4301 section 5.2)."""
    tunnel = live()
    tunnel.topology.gw_b.sysctl(ipv4__conf__wan__rp_filter=rp_filter)
    tunnel.topology.wan.run(["ip", "route", "add", "10.2.0.0/16", "via", tunnel.topology.b.wan4])
    listener = Listener(tunnel.topology.host_b, tunnel.topology.b.host(4), PORT)
    inject(tunnel.topology.wan, [bytes(tunnel.datagram(b"in the clear"))])
    listener.flush(tunnel.topology.host_a)
    assert listener.stop() == []


@pytest.mark.esplanade_only
@pytest.mark.parametrize("how", ["down", "crash"])
# RFC 4301 R8, R119
def test_nothing_goes_out_in_the_clear(how, topology, daemon, folder, needs_capture):
    """Of a connection that should always be up nothing leaves unprotected while it is down."""
    settings = pair(topology, inner=4)
    settings[0].child()["start_action"] = "start"
    a, b = start(daemon, esplanade_pair, settings)
    a.wait_installed()
    # The capture lies behind the router, which must know the way.
    topology.wan.run(["ip", "route", "add", "10.2.0.0/16", "via", topology.b.wan4])
    wire = Capture(topology, folder / "after.pcap", "icmp and net 10.0.0.0/8")
    if how == "down":
        b.kill()
        a.down()
    else:
        a.kill()
    ping(topology.host_a, topology.b.host4, count=3, timeout=0.3)
    assert not [packet for packet in dissect(wire.stop()) if "icmp" in packet.protocols]


def test_scapy_and_strongswan_agree(topology, daemon, folder, needs_capture):
    """The oracle itself, held against strongSwan: opens, seals, and a second copy is dropped."""
    settings = pair(topology, inner=4, esp="aes256-sha256")
    a, b = establish(daemon, ("charon", "charon"), settings, dump_keys=True)
    wire = Capture(topology, folder / "wire.pcap")
    assert_ping(topology.host_a, topology.b.host4, count=10)
    tunnel = Live(a, b, topology, esp_packets(wire.stop()), {sa.spi: sa for sa in read_keys(a.key_lines())}, False, 4)
    for packet in tunnel.packets:
        assert tunnel.open(packet).haslayer("ICMP")
    listener = Listener(topology.host_b, topology.b.host4, PORT)
    sealed = tunnel.seal(b"from scapy", tunnel.next_sequence)
    tunnel.send(sealed, sealed, changed(tunnel.seal(b"forged", tunnel.next_sequence + 1), 30))
    # The copies are dropped: what comes after them shows that none of them will.
    listener.flush(topology.host_a)
    assert listener.stop() == [b"from scapy"]
