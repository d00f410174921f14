"""tshark decrypts what was captured, IKE and ESP, with the keys that the gateway exported."""

import pytest
from ends import ENDS, ids
from harness.capture import Capture, dissect, true
from harness.esplanade import binary
from harness.process import run
from harness.settings import pair
from harness.traffic import assert_ping, transfer

SUITES = [("aes128gcm16-prfsha256-x25519", "aes128gcm16"), ("aes256-sha256-ecp256", "aes256-sha256"),
          ("aes256gcm16-prfsha384-ecp384", "aes256gcm16"), ("aes128-sha256-modp2048", "aes128-sha256")]


@pytest.mark.parametrize("outer", [4, 6], ids=["outer-v4", "outer-v6"])
@pytest.mark.parametrize("ike, esp", SUITES, ids=[esp for _, esp in SUITES])
@pytest.mark.parametrize("ends", [ENDS[0], ENDS[2]], ids=ids)
def test_exported_keys_decrypt_everything(ends, ike, esp, outer, topology, daemon, folder, needs_capture, request):
    # Without ESN: tshark before 4.4 leaves the high half of the sequence number out of the ICV.
    options = {"dump_keys": True} if request.config.getoption("--peers-only") else {}
    a = daemon(ends[0], "a", **options)
    b = daemon(ends[1], "b")
    settings = pair(topology, outer=outer, ike=ike, esp=esp)
    b.start(settings[1])
    a.start(settings[0])
    wire = Capture(topology, folder / "wire.pcap", "udp or esp")
    a.up()
    a.wait_installed()
    assert_ping(topology.host_a, topology.b.host4)
    assert_ping(topology.host_b, topology.a.host6)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=100_000)
    a.rekey_child()
    assert_ping(topology.host_a, topology.b.host4)
    keys = a.key_lines()
    a.down()
    packets = dissect(wire.stop(), keys)

    assert not [packet for packet in packets if packet.malformed]
    esp_seen = [packet for packet in packets if packet.esp]
    assert len(esp_seen) > 50
    wrong = [packet for packet in esp_seen if packet.icv_good is not True]
    assert not wrong, f"{len(wrong)} of {len(esp_seen)} ESP packets without a good ICV: {wrong[:3]}"
    assert {"icmp", "icmpv6", "tcp"} <= {name for packet in esp_seen for name in packet.protocols}
    protected = [packet for packet in packets if packet.exchange in (35, 36, 37)]
    assert {packet.exchange for packet in protected} == {35, 36, 37}
    assert all(packet.decrypted for packet in protected), "IKE messages that tshark could not decrypt"
    if request.config.getoption("--peers-only"):
        return
    assert a.keys.stat().st_mode & 0o077 == 0, "the key file is for its owner alone"
    # Whatever comes first, both ends derived the same keys.
    if b.kind == "esplanade":
        assert set(keys) == set(b.key_lines())


@pytest.mark.esplanade_only
def test_the_demos_capture(folder, needs_capture):
    """As its summary says: tshark with the demo's configuration folder reads the demo's capture."""
    output = folder / "demo"
    run([binary(), "demo", "--duration", "1", "--plain", "--output", output], timeout=120)
    fields = ["esp.icv_good", "esp.icv_bad", "_ws.malformed", "isakmp.exchangetype", "isakmp.enc.decrypted"]
    wanted = [argument for field in fields for argument in ("-e", field)]
    read = run(["tshark", "-r", output / "wire.pcap", "-T", "fields", "-E", "separator=|", *wanted], timeout=120,
               env={"WIRESHARK_CONFIG_DIR": str(output / "wireshark")})
    rows = [line.split("|") for line in read.stdout.splitlines()]
    esp = [row for row in rows if row[0] or row[1]]
    assert len(esp) > 1000
    assert not [row for row in esp if not true(row[0]) or true(row[1])], "bad ICVs"
    assert not [row for row in rows if row[2]], "malformed packets"
    protected = [row for row in rows if row[3] and row[3] != "34"]
    assert len(protected) >= 10
    assert all(row[4] for row in protected), "IKE messages that tshark could not decrypt"


def test_a_wrong_key_is_noticed(topology, daemon, folder, needs_capture):
    """The check above can fail: with keys of the wrong value no ICV is good."""
    a = daemon("charon", "a", dump_keys=True)
    b = daemon("charon", "b")
    settings = pair(topology, inner=4)
    b.start(settings[1])
    a.start(settings[0])
    wire = Capture(topology, folder / "wire.pcap", "udp or esp")
    a.up()
    assert_ping(topology.host_a, topology.b.host4)
    keys = [line for line in a.key_lines() if line.startswith("esp_sa")]
    changed = [line.replace('"0x', '"0x', 1).replace(line.split('"')[11][2:6], "dead", 1) for line in keys]
    packets = [packet for packet in dissect(wire.stop(), changed) if packet.esp]
    assert len(packets) == 6
    assert not [packet for packet in packets if packet.icv_good]
