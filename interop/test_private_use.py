"""Ciphers with numbers for private use: Serpent and Twofish in CBC with strongSwan's numbers, MARS, RC6, Serpent and Twofish
in counter mode with our own."""

import pytest
from ends import WITH_PEER, esplanade_pair, establish, ids, start
from harness import charon
from harness.capture import Capture, dissect
from harness.process import HarnessError
from harness.settings import pair
from harness.traffic import assert_ping, transfer

# Proposal, then what list-sas must call the cipher.
CBC = [("serpent128-sha256", "SERPENT_CBC"), ("serpent192-sha256", "SERPENT_CBC"), ("serpent256-sha256", "SERPENT_CBC"),
       ("twofish128-sha256", "TWOFISH_CBC"), ("twofish256-sha256", "TWOFISH_CBC")]
# libgcrypt, from which strongSwan has these ciphers, has no Twofish with 192 bits.
NOT_STRONGSWANS = [("twofish192-sha256", "TWOFISH_CBC")]
CTR = [("mars128ctr-sha256-esn", "MARS_CTR"), ("mars256ctr-sha256", "MARS_CTR"), ("rc6_128ctr-sha256", "RC6_CTR"),
       ("rc6_256ctr-sha256-esn", "RC6_CTR"), ("serpent128ctr-sha256", "SERPENT_CTR"),
       ("serpent256ctr-sha256-esn", "SERPENT_CTR"), ("twofish128ctr-sha256-esn", "TWOFISH_CTR"),
       ("twofish256ctr-sha256", "TWOFISH_CTR")]


def consenting(topology, ends, **options):
    """Settings of both ends; an Esplanade has `private_use = yes`."""
    settings = pair(topology, inner=4, **options)
    for kind, one in zip(ends, settings):
        if kind == "esplanade":
            one.connections["site"]["private_use"] = "yes"
    return settings


def carry(topology):
    assert_ping(topology.host_a, topology.b.host4, count=5)
    transfer(topology.host_a, topology.host_b, topology.b.host4, size=200_000)
    transfer(topology.host_b, topology.host_a, topology.a.host4, size=200_000)


def cipher_of(end, esp):
    child = end.installed()[0]
    # An AEAD has none.
    assert child.get("integ-alg") == ("HMAC_SHA2_256_128" if "-sha256" in esp else None)
    return child["encr-alg"], int(child["encr-keysize"])


def bits(esp):
    return int(esp.partition("-")[0].removeprefix("rc6_").strip("abcdefghijklmnopqrstuvwxyz"))


@pytest.fixture
def needs_gcrypt(request):
    if reason := charon.missing_plugin("gcrypt", request.config.getoption("--newest")):
        pytest.skip(reason)


@pytest.mark.esplanade_only
@pytest.mark.parametrize("esp, cipher", CTR + NOT_STRONGSWANS, ids=[esp for esp, _ in CTR + NOT_STRONGSWANS])
def test_among_ourselves(esp, cipher, topology, daemon):
    settings = consenting(topology, esplanade_pair, esp=esp)
    ends = establish(daemon, esplanade_pair, settings)
    carry(topology)
    ends[0].rekey_child()
    carry(topology)
    for end in ends:
        assert cipher_of(end, esp) == (cipher, bits(esp))
        assert end.counter("drops.authentication-failed") == 0


@pytest.mark.one_direction
@pytest.mark.parametrize("esp, cipher", CBC, ids=[esp for esp, _ in CBC])
@pytest.mark.parametrize("ends", WITH_PEER, ids=ids)
def test_cbc_with_strongswan(ends, esp, cipher, topology, daemon, needs_gcrypt):
    daemons = establish(daemon, ends, consenting(topology, ends, esp=esp))
    carry(topology)
    for kind, end in zip(ends, daemons):
        if kind == end.kind == "esplanade":
            assert cipher_of(end, esp) == (cipher, bits(esp))
            assert end.counter("drops.authentication-failed") == 0


@pytest.mark.esplanade_only
def test_tshark_decrypts_twofish(topology, daemon, folder, needs_capture):
    a, _ = establish(daemon, esplanade_pair, consenting(topology, esplanade_pair, esp="twofish256-sha256"))
    wire = Capture(topology, folder / "wire.pcap", "udp or esp")
    carry(topology)
    packets = [packet for packet in dissect(wire.stop(), a.key_lines()) if packet.esp]
    assert len(packets) > 50
    assert all(packet.icv_good for packet in packets)
    assert {"icmp", "tcp"} <= {name for packet in packets for name in packet.protocols}


@pytest.mark.esplanade_only
def test_consent_is_needed_to_start(topology, daemon):
    end = daemon("esplanade", "a")
    with pytest.raises(HarnessError):
        end.start(pair(topology, inner=4, esp="serpent256ctr-sha256")[0])
    assert "private_use = yes" in end.logs()


@pytest.mark.esplanade_only
def test_an_offer_without_consent_is_refused(topology, daemon):
    """B, which does not consent, takes the other proposal, and nothing where there is no other."""
    offers, answers = consenting(topology, ("esplanade", "charon"), esp="serpent256-sha256"), pair(topology, inner=4)
    a, b = start(daemon, esplanade_pair, (offers[0], answers[1]))
    with pytest.raises(HarnessError):
        a.up()
    assert not b.installed()
    offers[0].child()["esp_proposals"] = "serpent256-sha256, aes128gcm16"
    a.load(offers[0])
    a.up()
    assert b.wait_installed()["encr-alg"] == "AES_GCM_16"
    carry(topology)
