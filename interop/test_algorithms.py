"""Every algorithm of ESP against scapy, as children of one IKE SA; strongSwan for those that it shares with us."""

import sys

import pytest
from ends import esplanade_pair, establish, start, with_peer
from harness.capture import Capture
from harness.oracle import esp_packets, read_keys
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import Listener, assert_ping, inject, ping
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

FIRST_PORT = 41000
LENGTHS = (1, 2, 15, 16, 17, 300, 1200)
# Proposals; every other one goes with extended sequence numbers.
SUITES = ["aes128gcm12", "aes256gcm8", "aes128ccm16", "aes192ccm12", "aes256ccm8", "chacha20poly1305", "aes128ctr-sha256",
          "aes256ctr-sha1", "null-sha256", "aes128gmac", "aes192-sha384", "aes256-aescmac", "aes192gcm16"]

SHARED = ["chacha20poly1305", "aes256ccm16", "aes128ccm12", "aes128gcm12", "aes256gcm8", "aes256ctr-sha256"]

SEND = """
import socket, sys
address, first, ports, *lengths = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    for port in range(int(first), int(first) + int(ports)):
        for length in map(int, lengths):
            out.sendto(bytes(length), (address, port))
"""


def children_for(settings, suites, *, esn) -> None:
    """A child for each suite, told apart by the port at B."""
    for number, one in enumerate(settings):
        children = one.connections["site"]["children"]
        template = children.pop("net")
        for index, suite in enumerate(suites):
            port = f"[udp/{FIRST_PORT + index}]"
            child = dict(template, esp_proposals=suite + ("-esn" if esn(index) else "-noesn"))
            far, near = ("remote_ts", "local_ts") if number == 0 else ("local_ts", "remote_ts")
            child[far] = template[far] + port
            child[near] = template[near] + "[udp]"
            children[f"net{index}"] = child


@pytest.mark.esplanade_only
def test_every_suite_against_scapy(topology, daemon, folder, needs_capture):
    settings = pair(topology, inner=4)
    esn = [index % 2 == 1 for index in range(len(SUITES))]
    children_for(settings, SUITES, esn=esn.__getitem__)
    a, b = start(daemon, esplanade_pair, settings)
    for index in range(len(SUITES)):
        a.up(f"net{index}")
    wait_until("all children up at both ends", lambda: len(a.installed()) == len(b.installed()) == len(SUITES))

    listeners = [Listener(topology.host_b, topology.b.host4, FIRST_PORT + index) for index in range(len(SUITES))]
    wire = Capture(topology, folder / "wire.pcap")
    topology.host_a.run([sys.executable, "-c", SEND, topology.b.host4, FIRST_PORT, len(SUITES), *LENGTHS])
    packets = esp_packets(wire.stop())

    sas = {sa.spi: sa for sa in read_keys(a.key_lines())}
    by_child = {int(child["spi-out"], 16): int(child["name"].removeprefix("net")) for child in a.installed()}
    opened: dict[int, list] = {}
    for packet in packets:
        index = by_child[packet.spi]
        inner = sas[packet.spi].open(packet.esp, esn=esn[index])
        assert (inner[UDP].dport, bytes(inner[UDP].payload)) == (FIRST_PORT + index, bytes(len(inner[UDP].payload)))
        opened.setdefault(index, []).append(len(inner[UDP].payload))
    for index, suite in enumerate(SUITES):
        assert opened.get(index) == list(LENGTHS), f"{suite}: scapy opens {opened.get(index)}"

    texts = [bytes([length % 251]) * length for length in LENGTHS]
    for spi, index in by_child.items():
        sequences = [packet.sequence for packet in packets if packet.spi == spi]
        assert sequences == list(range(1, len(LENGTHS) + 1))
        first = len(LENGTHS) + 1
        header = IP(src=topology.a.host4, dst=topology.b.host4) / UDP(sport=9, dport=FIRST_PORT + index)
        sealed = [sas[spi].seal(header / Raw(text), first + number, esn=esn[index]) for number, text in enumerate(texts)]
        inject(topology.wan, [bytes(sas[spi].wrap(esp, udp=None)) for esp in sealed])
    for index, listener in enumerate(listeners):
        got = listener.stop()
        assert got == [bytes(length) for length in LENGTHS] + texts, f"{SUITES[index]}: {len(got)} datagrams"


@pytest.mark.esplanade_only
@pytest.mark.parametrize("window", [4096, 65536])
def test_large_replay_windows(window, topology, daemon, folder, needs_capture):
    """What is within the window comes through once, however late; what is left of it does not."""
    settings = pair(topology, inner=4, esp="aes128gcm16-noesn")
    for one in settings:
        one.child()["replay_window"] = window
    a, b = establish(daemon, esplanade_pair, settings)
    sas = {sa.spi: sa for sa in read_keys(a.key_lines())}
    sa = sas[int(a.installed()[0]["spi-out"], 16)]
    port = FIRST_PORT

    def sealed(sequence: int) -> bytes:
        datagram = IP(src=topology.a.host4, dst=topology.b.host4) / UDP(sport=9, dport=port) / Raw(str(sequence).encode())
        return bytes(sa.wrap(sa.seal(datagram, sequence), udp=None))

    top = 200_000
    late = [top - 1, top - 100, top - window // 2, top - window + 1, 1 + top - window + 64]
    before = [top - window - 64, top - 2 * window, 1]
    listener = Listener(topology.host_b, topology.b.host4, port)
    inject(topology.wan, [sealed(sequence) for sequence in (top, *late, *late, top, *before)])
    assert listener.stop() == [str(sequence).encode() for sequence in (top, *late)]
    assert b.drops("replayed") == len(late) + 1
    assert b.drops("before-window") == len(before)


def test_legacy_algorithms_need_consent(topology, daemon, folder):
    """DES, 3DES and MD5 only with `legacy = yes`; with it they work."""
    settings = pair(topology, inner=4, esp="3des-md5")
    daemon_a = daemon("esplanade", "a")
    if daemon_a.kind != "esplanade":
        pytest.skip("needs Esplanade (--peers-only)")
    with pytest.raises(HarnessError):
        daemon_a.start(settings[0])
    assert "legacy" in daemon_a.logs()
    for one in settings:
        one.connections["site"]["legacy"] = "yes"
    daemon_b = daemon("esplanade", "b")
    daemon_b.start(settings[1])
    daemon_a.start(settings[0])
    daemon_a.up()
    daemon_b.wait_installed()
    assert_ping(topology.host_a, topology.b.host4, count=5)


@with_peer
def test_strongswan_shares_suites(ends, topology, daemon):
    """What kernel-libipsec has beside GCM-16 and CBC, one after the other, and IKE with ChaCha20-Poly1305."""
    settings = pair(topology, inner=4, ike="chacha20poly1305-prfsha256-x25519")
    for one, far in zip(settings, ("remote_ts", "local_ts")):
        children = one.connections["site"]["children"]
        template = children.pop("net")
        for index, suite in enumerate(SHARED):
            # charon chooses a child by its selectors alone, so that they must differ.
            children[f"net{index}"] = dict(template, esp_proposals=suite) | {far: f"10.2.0.0/{16 + index}"}
    a, b = start(daemon, ends, settings)
    for index, suite in enumerate(SHARED):
        a.up(f"net{index}")
        assert len(a.installed()) == 1, suite
        b.wait_installed()
        wait_until(f"{suite} carries traffic", lambda: ping(topology.host_a, topology.b.host4, count=1, timeout=1), timeout=10)
        assert_ping(topology.host_a, topology.b.host4, count=5, size=1000)
        assert_ping(topology.host_b, topology.a.host4, count=5)
        a.down_child(f"net{index}")
        wait_until(f"{suite} is gone", lambda: not a.installed() and not b.installed())
