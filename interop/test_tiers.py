"""Gateways on different tiers of the CPU engine: what one seals the other opens."""

import pytest
from ends import esplanade_pair, establish
from harness.process import HarnessError
from harness.settings import pair
from harness.traffic import exercise

pytestmark = pytest.mark.esplanade_only

TIERS = [("avx512", "portable"), ("portable", "aesni"), ("aesni", "avx512")]
SUITES = ["aes256gcm16-esn", "aes128gcm16iiv", "chacha20poly1305", "aes128-sha256", "3des-md5"]


@pytest.mark.parametrize("esp", SUITES)
@pytest.mark.parametrize("tiers", TIERS, ids="-".join)
def test_tiers_open_each_others_packets(tiers, esp, topology, daemon):
    settings = pair(topology, esp=esp)
    for one, tier in zip(settings, tiers):
        one.gateway["cpu_tier"] = tier
        one.connections["site"]["legacy"] = "yes"
    try:
        gateways = establish(daemon, esplanade_pair, settings)
    except HarnessError as error:
        if "this machine has no" in str(error):
            pytest.skip(str(error))
        raise
    exercise(topology)
    for gateway, tier in zip(gateways, tiers):
        states = {"cpu": "in service"}
        assert gateway.status()["engine"] == {"name": "cpu", "tier": tier, "disabled": [], "states": states}
        assert f"tier={tier}" in gateway.logs()
        assert gateway.counter("drops.authentication-failed") == 0
