"""Every algorithm of ESP against scapy, as children of one IKE SA; every one that strongSwan has against strongSwan; the
rest, and AH, among ourselves."""

import pytest
from ends import WITH_PEER, esplanade_pair, establish, ids, start
from harness.capture import Capture
from harness.oracle import esp_packets, read_keys
from harness.process import HarnessError, wait_until
from harness.settings import IKE_DEFAULT, pair
from harness.traffic import Listener, assert_ping, inject, send, transfer
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

FIRST_PORT = 41000
LENGTHS = (1, 2, 15, 16, 17, 300, 1200)
# Proposals; every other one goes with extended sequence numbers.
SUITES = ["aes128gcm12", "aes256gcm8", "aes128ccm16", "aes192ccm12", "aes256ccm8", "chacha20poly1305", "aes128ctr-sha256",
          "aes256ctr-sha1", "null-sha256", "aes128gmac", "aes192-sha384", "aes256-aescmac", "aes192gcm16"]

# Proposal, then what list-sas must call it: cipher, integrity.
WITH_STRONGSWAN = [
    ("aes128gcm8", "AES_GCM_8", None),
    ("aes256gcm12", "AES_GCM_12", None),
    ("aes128ccm16", "AES_CCM_16", None),
    ("aes192ccm12", "AES_CCM_12", None),
    ("aes256ccm8", "AES_CCM_8", None),
    ("chacha20poly1305", "CHACHA20_POLY1305", None),
    ("aes128ctr-sha256", "AES_CTR", "HMAC_SHA2_256_128"),
    ("aes256ctr-sha1", "AES_CTR", "HMAC_SHA1_96"),
    ("aes192-sha384", "AES_CBC", "HMAC_SHA2_384_192"),
    ("aes256-sha512", "AES_CBC", "HMAC_SHA2_512_256"),
    ("aes128-aesxcbc", "AES_CBC", "AES_XCBC_96"),
    ("aes128-aescmac", "AES_CBC", "AES_CMAC_96"),
    ("null-sha256", "NULL", "HMAC_SHA2_256_128"),
    ("3des-sha1", "3DES_CBC", "HMAC_SHA1_96"),
    ("3des-md5", "3DES_CBC", "HMAC_MD5_96"),
]

# strongSwan's user-space ESP has none of these, or no extended sequence numbers.
AMONG_OURSELVES = [
    ("aes128gcm16iiv-esn", "AES_GCM_16_IIV", None),
    ("aes256ccm8iiv", "AES_CCM_8_IIV", None),
    ("chacha20poly1305iiv-esn", "CHACHA20_POLY1305_IIV", None),
    ("aes256gmac-esn", "NULL_AES_GMAC", None),
    ("aes128gmac", "NULL_AES_GMAC", None),
    ("aes128ccm16-esn", "AES_CCM_16", None),
    ("aes256ctr-aescmac-esn", "AES_CTR", "AES_CMAC_96"),
    ("null-aesxcbc-esn", "NULL", "AES_XCBC_96"),
    ("des-md5-esn", "DES_CBC", "HMAC_MD5_96"),
]

AH = ["sha256-esn", "sha384", "sha512-esn", "sha1", "aesxcbc-esn", "aescmac", "aes128gmac-esn", "aes256gmac", "md5"]

IKE_SUITES = [
    "chacha20poly1305-prfsha256-x25519",
    "aes128gcm8-prfsha256-x25519",
    "aes256ccm16-prfsha384-ecp256",
    "aes128ccm8-prfsha256-x25519",
    "aes128ctr-sha256-x25519",
    "aes128-aesxcbc-prfsha256-x25519",
    "aes256-aescmac-prfsha512-x25519",
    "aes128-sha1-prfsha256-x25519",
]

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
    for index in range(len(SUITES)):
        send(topology.host_a, topology.b.host4, FIRST_PORT + index, [bytes(length) for length in LENGTHS])
    wait_until("all have come", lambda: all(len(one.received()) == len(LENGTHS) for one in listeners))
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
        expected = [bytes(length) for length in LENGTHS] + texts
        got = listener.stop(len(expected))
        assert got == expected, f"{SUITES[index]}: {len(got)} datagrams"


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
    once = [str(sequence).encode() for sequence in (top, *late)]
    wait_until("all others are counted",
               lambda: (b.counter("drops.replayed"), b.counter("drops.before-window")) == (len(late) + 1, len(before)))
    assert listener.stop(len(once)) == once


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


def carry(topology, daemon, ends, *, ike=IKE_DEFAULT, esp="aes128gcm16", ah=None):
    settings = pair(topology, ike=ike, esp=esp, inner=4)
    for kind, one in zip(ends, settings):
        if ah:
            del one.child()["esp_proposals"]
            one.child()["ah_proposals"] = ah
        if kind == "esplanade" and any(weak in (ah or esp) for weak in ("des", "md5")):
            one.connections["site"]["legacy"] = "yes"
    daemons = establish(daemon, ends, settings)
    assert_ping(topology.host_a, topology.b.host4, count=5)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=100_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=100_000)
    return daemons


def assert_suite(end, cipher, integrity):
    child = end.installed()[0]
    assert (child["encr-alg"], child.get("integ-alg")) == (cipher, integrity)


def names_of(end):
    """What list-sas says of algorithms."""
    keys = ("encr-alg", "encr-keysize", "integ-alg", "integ-keysize", "prf-alg", "dh-group", "esn")
    (ike,) = end.sas()["site"]
    return [{key: sa[key] for key in keys if key in sa} for sa in (ike, end.installed()[0])]


@pytest.mark.one_direction
@pytest.mark.parametrize("esp, cipher, integrity", WITH_STRONGSWAN, ids=[esp for esp, _, _ in WITH_STRONGSWAN])
@pytest.mark.parametrize("ends", WITH_PEER, ids=ids)
# RFC 7296 R139
def test_esp_with_strongswan(ends, esp, cipher, integrity, topology, daemon):
    a, b = carry(topology, daemon, ends, esp=esp)
    assert_suite(a, cipher, integrity)
    # Programs that know charon know us.
    assert names_of(a) == names_of(b)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("esp, cipher, integrity", AMONG_OURSELVES, ids=[esp for esp, _, _ in AMONG_OURSELVES])
def test_esp_among_ourselves(esp, cipher, integrity, topology, daemon):
    for end in carry(topology, daemon, esplanade_pair, esp=esp):
        assert_suite(end, cipher, integrity)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("ah", AH)
def test_ah_among_ourselves(ah, topology, daemon):
    for end in carry(topology, daemon, esplanade_pair, ah=ah):
        assert end.installed()[0]["protocol"] == "AH"


@pytest.mark.one_direction
@pytest.mark.parametrize("ike", IKE_SUITES)
@pytest.mark.parametrize("ends", WITH_PEER, ids=ids)
def test_ike_with_strongswan(ends, ike, topology, daemon):
    a, b = carry(topology, daemon, ends, ike=ike)
    assert names_of(a) == names_of(b)
