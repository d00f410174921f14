"""Auditable events (RFC 4303 §4) reach the log, and a flood of them does not fill it."""

import re

from ends import esplanade_pair, establish
from harness.process import wait_until
from harness.settings import pair
from harness.traffic import assert_ping, inject
from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP

FIELD = re.compile(r'(\w+)="?([^" ]+)')


def audits(end, kind):
    lines = [dict(FIELD.findall(line)) for line in end.logs().splitlines() if " audit: " in line]
    return [fields for fields in lines if fields["kind"] == kind]


def test_a_flood_is_counted_and_not_written_out(topology, daemon):
    a, _ = establish(daemon, esplanade_pair, pair(topology, inner=4))
    stranger = IP(src=topology.b_seen_by_a.wan4, dst=topology.a.wan4)
    inject(topology.wan, [bytes(stranger / ESP(spi=0xDEAD0000 + n, seq=n + 1, data=bytes(32))) for n in range(500)])
    wait_until("the flood", lambda: a.counter("drops.unknown-spi") == 500)

    def told():
        return sum(("spi" in one) + int(one["suppressed"]) for one in audits(a, "no-sa"))

    # A bucket fills again, and then what was suppressed is told.
    wait_until("all are told", lambda: told() == 500)
    events = audits(a, "no-sa")
    assert len(events) < 30
    assert events[0]["source"] == topology.b_seen_by_a.wan4
    assert (events[0]["spi"], events[0]["sequence"]) == ("dead0000", "1")
    assert_ping(topology.host_a, topology.b.host4)
