"""esp_sections: mixed traffic through all sections, every protected packet opened with other people's crypto, each SA's
in its order; what must be dropped is dropped and counted, and nothing gets stuck."""

import random
from collections import deque

import pytest
import sections_model as sections
from sections_model import BYPASS, DES, DISCARD, MAIN, PASS, PRIORITY, PROTECT, SAD_TABLE, Sa, packet

PORTS = 2
SHAPE = {
    "Ports": PORTS, "Policies": 2, "Sads": 2, "Encaps": 2, "Aes": 2, "AesPriority": 1, "Des": 1, "TripleDes": 1, "Hmacs": 2, "HmacPriority": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def simulation():
    return sections.Simulation(SHAPE)


@pytest.fixture(scope="module")
def lossless():
    """Without queues at the exits: what a port does not take waits, in front of others too."""
    return sections.Simulation(SHAPE | {"ExitQueue": 0})


class Traffic:
    """Makes the script and knows what must come of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        key = self.random.randbytes
        self.sas = [
            Sa(3, 0x1001, key(16), key(20), MAIN),
            Sa(7, 0x1002, key(32), key(20), MAIN, "192.0.2.9", "203.0.113.77"),
            Sa(900, 0x1003, key(24), key(20), DES),
            Sa(12, 0x1004, b"", key(20), PASS),
            Sa(13, 0x1005, key(16), key(20), PRIORITY, auth=PRIORITY),
            Sa(14, 0x1006, key(16), key(20), 4),  # a cipher that there is no unit of
            Sa(15, 0x1007, key(16), key(20), MAIN, last_used=0xFFFFFFFD),  # two packets are left
        ]
        self.configure()

    def configure(self):
        policy, writes = sections.Policy(), []
        for n, sa in enumerate(self.sas):
            writes += sa.writes()
            writes += policy.entry(sections.selectors(self.frame(n, 40)), PROTECT, sa.row)
        count = len(self.sas)
        writes += policy.entry(sections.selectors(self.frame(count, 40)), BYPASS)
        writes += policy.entry(sections.selectors(self.frame(count + 1, 40)), DISCARD)
        writes += policy.entry(sections.selectors(self.frame(count + 2, 40)), PROTECT, 99)  # no such SA
        self.script = getattr(self, "script", []) + sections.config(writes)
        self.bypassed = [deque() for _ in range(PORTS)]
        self.inner = {sa.spi: deque() for sa in self.sas}
        self.sequence = {sa.spi: sa.last_used for sa in self.sas}
        self.offered = 0
        self.drops = {"frame": 0, "policy": 0, "sa": 0, "unit": 0, "exit": 0}

    def frame(self, flow, length, **other):
        return packet(length, source=f"10.1.0.{flow + 1}", protocol=(17, 6)[flow & 1], ports=(100 + flow, 53), **other)

    def offer(self, flow, length=None):
        """A packet of a flow; each flow keeps to one port."""
        length = length or self.random.choice((20, 24, 28, 40, 64, 64, 100, 240, self.random.randint(24, 700)))
        tos, df = self.random.randrange(256), self.random.choice((0, 0x4000))
        frame = self.frame(flow, length, tos=tos, flags=df, body=self.random.randbytes(length), ttl=self.random.randint(2, 255))
        port, count = flow % PORTS, len(self.sas)
        if length < 24:  # without ports it is of no flow
            self.drops["policy"] += 1
        elif flow < count:
            sa = self.sas[flow]
            if sa.cipher == 4:
                self.drops["unit"] += 1
            elif self.sequence[sa.spi] + len(self.inner[sa.spi]) == 0xFFFFFFFF:
                self.drops["sa"] += 1
            else:
                self.inner[sa.spi].append(sections.forwarded(frame))
        elif flow == count:
            self.bypassed[port].append(frame)
        else:
            self.drops["sa" if flow == count + 2 else "policy"] += 1
        self.script.extend(sections.beats(port, frame))
        self.offered += 1

    def offer_bad(self, kind):
        """What is no packet that may go on; it must not get in the way of others."""
        frame = bytearray(self.frame(0, 64))
        self.offered += 1
        if kind in ("keep", "long", "hole"):
            beats = list(sections.beats(0, bytes(frame)))
            if kind == "keep":
                beats[1] = sections.raw_beat(0, bytes(9), 0x1FF, False)
            elif kind == "hole":
                beats[-1] = sections.raw_beat(0, bytes(16), 0xF0FF, True)
            else:
                beats = list(sections.beats(0, bytes(2100)))
            self.drops["frame"] += 1
            self.script.extend(beats)
            return
        if kind == "checksum":
            frame[14] ^= 1
        elif kind == "length":
            frame = frame[:-1]
        elif kind == "version":
            frame[0] = 0x65
        elif kind == "options":
            frame[0] = 0x46
        elif kind == "ttl":
            frame = bytearray(self.frame(0, 64, ttl=1))
        elif kind == "short":
            frame = frame[:9]
        elif kind == "stranger":
            frame = bytearray(self.frame(77, 64))
        self.drops["policy"] += 1
        self.script.extend(sections.beats(0, bytes(frame)))

    def go(self, cycles):
        self.script.append(f"g {self.offered} {cycles}")

    def check(self, printed):
        """Checks what came out; returns the protected frames."""
        assert not [line for line in printed if line[0] not in "iod"]
        frames = []
        for _, port, _, _, data in (line for line in printed if line[0] == "o"):
            frame, port = bytes.fromhex(data), int(port)
            if frame[9] != 50:
                assert frame == self.bypassed[port].popleft()
                continue
            sa = next(sa for sa in self.sas if sa.spi == int.from_bytes(frame[20:24], "big"))
            assert self.sas.index(sa) % PORTS == port
            sequence, inner = sa.open(frame)
            assert sequence == self.sequence[sa.spi] + 1, "order"
            self.sequence[sa.spi] = sequence
            assert inner == self.inner[sa.spi].popleft()
            frames.append(frame)
        assert not any(self.bypassed) and not any(self.inner.values())
        counted = [list(map(int, line[1:])) for line in printed if line[0] == "d"][-1]
        assert counted == list(self.drops.values())
        return frames


def test_every_length(simulation):
    traffic = Traffic(1)
    for length in [*range(24, 24 + 34), 1499, 1500, 2048]:
        for flow in range(5):
            traffic.offer(flow, length)
    traffic.go(30000)
    traffic.check(simulation.run(traffic.script))


@pytest.mark.parametrize("seed, idle, back_pressure, sad_percent", ((1, 0, 0, 50), (2, 30, 30, 73), (3, 70, 0, 140), (4, 0, 93, 50)))
def test_mixed_traffic(lossless, seed, idle, back_pressure, sad_percent):
    traffic = Traffic(seed)
    kinds = ("checksum", "length", "version", "options", "ttl", "short", "stranger", "keep", "hole", "long")
    for k in range(600):
        traffic.offer(traffic.random.randrange(len(traffic.sas) + 3))
        if k % 10 == 0:
            traffic.offer_bad(kinds[k // 10 % len(kinds)])
    traffic.go(400000)
    traffic.check(lossless.run(traffic.script, idle, back_pressure, seed, sad_percent))
    assert traffic.drops["sa"] > 2 and traffic.sequence[0x1007] == 0xFFFFFFFF


def test_a_port_that_stands_still_stops_no_other(simulation):
    """Port 1 takes nothing for a while: port 0 gets all of its packets, port 1 later what its queue held, in order."""
    traffic = Traffic(9)
    frames = {0: [], 1: []}
    traffic.script.append("p 1 100")
    for _ in range(120):
        for flow in range(PORTS):
            traffic.offer(flow, 500)
            frames[flow].append(traffic.inner[traffic.sas[flow].spi][-1])
    traffic.script += ["r 60000", "p 1 0"]
    traffic.go(5000)
    printed = simulation.run(traffic.script)
    assert not [line for line in printed if line[0] not in "iod"]
    (counted,) = (list(map(int, line[1:])) for line in printed if line[0] == "d")
    got = {0: [], 1: []}
    for _, port, _, _, data in (line for line in printed if line[0] == "o"):
        sa = traffic.sas[int(port)]
        sequence, inner = sa.open(bytes.fromhex(data))
        assert inner == frames[int(port)][sequence - 1]
        got[int(port)].append(sequence)
    assert got[0] == list(range(1, 121))
    assert got[1] == sorted(set(got[1])) and len(got[1]) >= 10
    assert counted == [0, 0, 0, 0, 120 - len(got[1])]


def end_of_packet_behind_bulk(simulation, unit):
    """The cycle in which a short packet has left that came beside two long ones that have both AES units."""
    traffic = Traffic(7)
    traffic.sas[4].cipher = traffic.sas[4].auth = unit
    traffic.script = []
    traffic.configure()
    for _ in range(2):
        traffic.offer(1, 1500)
        traffic.offer(len(traffic.sas) + 1, 1500)  # discarded: the short one is to come when the long ones are at the units
    traffic.offer(4, 64)
    traffic.go(30000)
    printed = simulation.run(traffic.script)
    traffic.check(printed)
    spi = f"{traffic.sas[4].spi:08x}"
    (end,) = [int(line[3]) for line in printed if line[0] == "o" and line[4][40:48] == spi]
    return end - min(int(line[2]) for line in printed if line[0] == "i")


def test_priority_has_units_of_its_own(simulation):
    bulk, priority = (end_of_packet_behind_bulk(simulation, unit) for unit in (MAIN, PRIORITY))
    assert priority < bulk / 2


def test_reset_in_mid_frame(lossless):
    traffic = Traffic(6)
    for round_ in range(4):
        for _ in range(30):
            traffic.offer(traffic.random.randrange(6))
        traffic.script.append(f"x {90 + 67 * round_}")
        traffic.configure()
    for _ in range(30):
        traffic.offer(traffic.random.randrange(6))
    traffic.go(20000)
    traffic.check(after_last_reset(lossless.run(traffic.script, 10, 10), traffic))


def after_last_reset(printed, traffic):
    """Lines of the last round: those from its first packet that went in."""
    starts = [n for n, line in enumerate(printed) if line[0] == "i"]
    return printed[starts[-traffic.offered] :]


def test_an_sa_goes_with_packets_under_way(simulation):
    """Software that gives a row to another SA before it takes the policy out: that one protects nothing of the former's."""
    key = random.Random(8).randbytes
    before = Sa(3, 0x1001, key(16), key(20), generation=5)
    after = Sa(3, 0x2001, key(16), key(20), generation=6, destination="203.0.113.5")
    old, new = ([packet(400, source=f"10.1.0.{n}", body=key(400)) for _ in range(40)] for n in (1, 2))
    policy = sections.Policy()
    script = sections.config([*before.writes(), *policy.entry(sections.selectors(old[0]), PROTECT, 3, 5)])
    script += [line for frame in old for line in sections.beats(0, frame)] + ["r 500"]
    script += sections.config([(SAD_TABLE << 16 | 3 << 6 | 1, 0), *after.writes(), *policy.entry(sections.selectors(new[0]), PROTECT, 3, 6)])
    script += [line for frame in new for line in sections.beats(0, frame)] + [f"g {len(old) + len(new)} 30000"]
    printed = simulation.run(script)
    assert not [line for line in printed if line[0] not in "iod"]
    expected = {before.spi: (before, old), after.spi: (after, new)}
    for line in (line for line in printed if line[0] == "o"):
        frame = bytes.fromhex(line[4])
        sa, frames = expected[int.from_bytes(frame[20:24], "big")]
        sequence, inner = sa.open(frame)
        sa.last_used += 1
        assert sequence == sa.last_used and inner == sections.forwarded(frames.pop(0))
    counted = list(map(int, [line for line in printed if line[0] == "d"][-1][1:]))
    assert 0 < before.last_used < 40 and after.last_used == 40
    assert counted == [0, 0, len(old), 0, 0]


def test_scapy_opens_them(simulation):
    from scapy.layers.inet import IP
    from scapy.layers.ipsec import ESP, SecurityAssociation

    traffic, inner = Traffic(5), {}
    for flow, name in ((0, "AES-CBC"), (1, "AES-CBC"), (3, "NULL")):
        for length in (24, 64, 333):
            traffic.offer(flow, length)
        sa = traffic.sas[flow]
        inner[sa.spi] = (name, sa, list(traffic.inner[sa.spi]))
    traffic.go(5000)
    for frame in traffic.check(simulation.run(traffic.script)):
        name, sa, packets = inner[int.from_bytes(frame[20:24], "big")]
        keys = {} if name == "NULL" else {"crypt_key": sa.key}
        opener = SecurityAssociation(
            ESP, sa.spi, crypt_algo=name, **keys, auth_algo="HMAC-SHA1-96", auth_key=sa.auth_key,
            tunnel_header=IP(src=sa.source, dst=sa.destination),
        )  # fmt: skip
        assert bytes(opener.decrypt(IP(frame))) == packets.pop(0)
    assert not any(packets for _, _, packets in inner.values())
