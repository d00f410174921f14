"""esp_in: every tunnel vector of its algorithms comes out as it should, or is dropped for the right reason."""

import json
import random
import struct
from collections import Counter

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from lane import Lane
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop
from scapy.packet import Raw
from streams import until, wrong_keep

MALFORMED, TOO_LONG, NO_POLICY, POLICY, FRAGMENT, NO_SA, SHORT, REPLAY, ICV = 1, 2, 3, 4, 5, 6, 11, 12, 13
ECN_LOST, NOT_PROTECTED = 20, 21
# The names of the vectors, which are the Rust path's.
REASONS = {"malformed-esp": SHORT, "unknown-spi": NO_SA, "replayed": REPLAY, "before-window": REPLAY,
           "authentication-failed": ICV, "bad-padding": 14, "selector-mismatch": 15, "bad-next-header": 17, "dummy": 18,
           "malformed-inner": 19, "ecn-not-capable": ECN_LOST}
GCM = {"esp-aes-gcm-16-256": core.GCM256, "esp-aes-gcm-16-128": core.GCM128}
CTR = {"esp-aes-ctr-256-hmac-sha2-256-128": core.CTR256}
GROUP = 77
MAX_BYTES = 2048


async def settle(lane, count, cycles=6000):
    """Until so many frames were dropped or came out."""
    await until(lane.dut.clk_i, lambda: len(lane.frames) + sum(lane.drops.values()) >= count, cycles)
    for _ in range(10):
        await RisingEdge(lane.dut.clk_i)
    assert len(lane.frames) + sum(lane.drops.values()) == count


async def selectors(lane, pairs):
    for row, (local, remote) in enumerate(pairs):
        await lane.config("policy").policy(row, core.entry(local, remote, tunnelled=True), core.PROTECT, GROUP)


@cocotb.test()
async def every_vector(dut):
    await bench.start(dut)
    lane = Lane(dut, 0.05, 0.05)
    seen = Counter()
    for name, suite in (CTR if int(dut.HmacUnits.value) else GCM).items():
        vectors = json.loads((bench.VECTORS / "packets" / f"{name}.json").read_text())
        await selectors(lane, vectors["selectors"]["tunnel"])
        spi = int(vectors["spi"], 16)
        for case in vectors["cases"]:
            # Of transport mode's what is dropped before the core could know the mode.
            if case["mode"] != "tunnel" and (not case["drop"] or case["drop"] == "selector-mismatch"):
                continue
            lane.drops.clear()
            lane.sink.taken.clear()
            await lane.config("key").key(spi % 1024, suite, bytes.fromhex(case["key"]))
            await lane.config("sa").sa_in(spi % 1024, spi=spi, suite=suite, esn=case["esn"], group=GROUP,
                                          top=int(case["replay_top"], 16))
            lane.source.frame(bytes.fromhex(case["frame"]))
            await settle(lane, 1)
            if case["drop"]:
                assert lane.drops == {REASONS[case["drop"]]: 1}, f"{case['name']}: {case['drop']}, got {lane.drops}"
                seen[case["drop"]] += 1
            else:
                assert lane.frames == [(bytes.fromhex(case["delivered"]), 1 << 6 | (spi % 1024) << 7)], case["name"]
                seen["delivered"] += 1
    assert set(seen) == {"delivered", *REASONS}
    dut._log.info(f"vectors: {dict(seen)}")
    lane.stop()


V4, V6 = ("198.51.100.2", "192.0.2.1"), ("2001:db8:ffff::2", "2001:db8:ffff::1")


class Peer:
    """What the other end of an SA sends."""

    def __init__(self, spi, ends, suite=core.GCM256, esn=False, udp=False, top=0, group=GROUP, dscp=False):
        self.spi, self.ends, self.suite, self.esn, self.udp, self.top, self.group = spi, ends, suite, esn, udp, top, group
        self.dscp = dscp
        length = 32 if suite == core.GCM256 else 16
        self.key = random.Random(spi).randbytes(length + 4)
        self.cut = length

    async def install(self, lane):
        await lane.config("key").key(self.spi % 1024, self.suite, self.key)
        await lane.config("sa").sa_in(self.spi % 1024, spi=self.spi, suite=self.suite, esn=self.esn, group=self.group,
                                      top=self.top, dscp_from_outer=self.dscp)

    def seal(self, inner, sequence, iv=None, padding=0, tos=0):
        """`padding`: how many bytes more than needed, a multiple of 4."""
        length = -(len(inner) + 2) % 4 + padding
        body = inner + bytes(range(1, length + 1)) + bytes([length, 4 if inner[0] >> 4 == 4 else 41])
        header = struct.pack(">II", self.spi, sequence & 0xFFFFFFFF)
        iv = struct.pack(">Q", sequence if iv is None else iv)
        aad = struct.pack(">IQ", self.spi, sequence) if self.esn else header
        esp = header + iv + AESGCM(self.key[: self.cut]).encrypt(self.key[self.cut :] + iv, body, aad)
        return self.wrap(esp, tos=tos)

    def wrap(self, esp, extension=False, tos=0, **fields):
        upper = UDP(sport=1024, dport=4500) / Raw(esp) if self.udp else Raw(esp)
        protocol = 17 if self.udp else 50
        if ":" in self.ends[0]:
            whole = IPv6(src=self.ends[0], dst=self.ends[1], hlim=64, nh=protocol, tc=tos)
            if extension:
                whole.nh = 0
                whole /= IPv6ExtHdrHopByHop(nh=protocol)
            return bytes(whole / upper)
        return bytes(IP(src=self.ends[0], dst=self.ends[1], proto=protocol, tos=tos, **fields) / upper)

    @property
    def user(self):
        return 1 << 6 | (self.spi % 1024) << 7


def inner(source, length):
    """A packet that the selectors take."""
    if source.random() < 0.5:
        packet = IP(src="10.2.0.7", dst=f"10.1.0.{source.randrange(256)}", ttl=source.randrange(1, 256))
    else:
        packet = IPv6(src="2001:db8:2::7", dst="2001:db8:1::9", hlim=source.randrange(1, 256))
    packet /= UDP(sport=source.randrange(65536), dport=53)
    return bytes(packet / Raw(source.randbytes(max(0, length - len(packet)))))


SITES = (("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:1::/48", "2001:db8:2::/48"))


async def traffic(dut, idle, back_pressure, packets, seed):
    """Several SAs at a time, windows that move, replays, damage, and what is not ESP."""
    lane, source = Lane(dut, idle, back_pressure), random.Random(seed)
    peers = [Peer(0x401, V4), Peer(0x802, V4, core.GCM128, udp=True), Peer(0xC03, V6, esn=True, top=0xFFFFFFF0),
             Peer(0x1004, V6, udp=True, esn=True, top=(5 << 32) - 5)]
    await selectors(lane, SITES)
    policy = lane.config("policy")
    for row, (net, action) in enumerate((("192.0.2.8/29", core.BYPASS), ("192.0.2.16/29", core.TO_HOST),
                                         ("192.0.2.24/29", core.DISCARD), ("192.0.2.32/29", core.PROTECT)), 10):
        await policy.policy(row, core.entry(net, "0.0.0.0/0", tunnelled=False), action)
    next_, seen, opened, aside, drops = {}, {}, [], [], Counter()
    for peer in peers:
        await peer.install(lane)
        next_[peer], seen[peer] = peer.top + 1, {peer.top}
    for _ in range(packets):
        kind, peer = source.random(), source.choice(peers)
        packet = inner(source, source.choice((0, source.randrange(28, 200), source.randrange(1300, 1440))))
        if kind < 0.75:
            # The model of the window: numbers that came, the newest 64 of them.
            top = max(seen[peer])
            sequence = source.choice((top + 1, top + 1, top + 2, top + source.randrange(1, 130),
                                      max(1, top - source.randrange(64)), max(1, top - source.randrange(60, 70))))
            late = top - sequence >= 64
            if late and peer.esn:
                continue
            # The UDP checksum over IPv6 is not looked at: the ICV says more.
            frame = peer.seal(packet, sequence, padding=source.choice((0, 0, 0, 4, 40, 248)))
            if late or sequence in seen[peer]:
                drops[REPLAY] += 1
            elif source.random() < 0.1:
                at = -source.randrange(1, 40)
                frame = frame[:at] + bytes([frame[at] ^ 1]) + (frame[at + 1 :] if at < -1 else b"")
                drops[ICV] += 1
            else:
                seen[peer].add(sequence)
                opened.append((packet, peer.user))
            # What a link adds: up to as much as a frame may be long.
            lane.source.frame(frame.ljust(source.choice((0, 0, len(frame) + 7, MAX_BYTES)), b"\0"))
        elif kind < 0.79:
            lane.source.frame(peer.wrap(struct.pack(">IIQ", 0x405, 1, 1) + bytes(40)))
            drops[NO_SA] += 1
        elif kind < 0.83:
            size = source.choice((8, 12, 35, 37, 38))
            lane.source.frame(peer.wrap((struct.pack(">IIQ", peer.spi, max(seen[peer]) + 1 & 0xFFFFFFFF, 1) + bytes(40))[:size]))
            drops[SHORT] += 1
        elif kind < 0.86:
            marker = peer.wrap(bytes(4) + source.randbytes(30)) if peer.udp else bytes(
                IP(src=V4[0], dst=V4[1]) / UDP(sport=4500, dport=4500) / Raw(source.choice((b"\xff", bytes(4) + b"IKE"))))
            lane.source.frame(marker)
            aside.append((marker, 1))
        elif kind < 0.88:
            lane.source.frame(peer.wrap(bytes(50))[:-1] if not peer.udp else b"\x45" + bytes(30))
            drops[MALFORMED] += 1
        elif kind < 0.90:
            lane.source.frame(bytes(IP(src=V4[0], dst=V4[1], proto=50, flags="MF") / Raw(bytes(48))))
            drops[FRAGMENT] += 1
        elif kind < 0.92:
            # Right but for what follows; the next one has the same number.
            frame = peer.seal(packet, max(seen[peer]) + 1)
            lane.source.frame(frame.ljust(MAX_BYTES + source.choice((1, source.randrange(2, 200))), b"\0"))
            drops[TOO_LONG] += 1
        elif kind < 0.94:
            lane.source.queue.extend(wrong_keep(peer.seal(packet, max(seen[peer]) + 1), source))
            drops[MALFORMED] += 1
        else:
            host = source.choice((9, 17, 25, 33, 41))
            plain = bytes(IP(src="203.0.113.5", dst=f"192.0.2.{host}") / UDP(sport=1, dport=2) / Raw(source.randbytes(50)))
            lane.source.frame(plain)
            if host == 9:
                aside.append((plain, 0))
            elif host == 17:
                aside.append((plain, 1))
            else:
                drops[{25: POLICY, 33: NOT_PROTECTED, 41: NO_POLICY}[host]] += 1
    await settle(lane, len(opened) + len(aside) + sum(drops.values()), 60000)
    assert lane.drops == drops
    got = [frame for frame in lane.frames if frame[1] >> 6 & 1]
    assert got == opened
    assert [frame for frame in lane.frames if not frame[1] >> 6 & 1] == aside
    assert lane.left == [len(frame) for frame, _ in lane.frames]
    lane.stop()
    return drops


@cocotb.test()
async def many_sas(dut):
    await bench.start(dut)
    drops = await traffic(dut, 0, 0, 200, seed=1)
    assert set(drops) == {MALFORMED, TOO_LONG, NO_POLICY, POLICY, FRAGMENT, NO_SA, SHORT, REPLAY, ICV, NOT_PROTECTED}


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    await traffic(dut, 0.3, 0.1, 60, seed=2)
    await bench.reset(dut)
    await traffic(dut, 0.1, 0.5, 60, seed=3)


@cocotb.test()
async def copies_under_way_together(dut):
    """The second look at the window: three copies are opened at the same time, one leaves."""
    await bench.start(dut)
    lane, source, peer = Lane(dut), random.Random(4), Peer(0x401, V4)
    await selectors(lane, SITES)
    await peer.install(lane)
    packet = inner(source, 60)
    for _ in range(3):
        lane.source.frame(peer.seal(packet, 1))
    lane.source.frame(peer.seal(packet, 200))
    lane.source.frame(peer.seal(packet, 136))  # left of the window by then
    await settle(lane, 5)
    assert lane.frames == [(packet, peer.user)] * 2 and lane.drops == {REPLAY: 3}
    lane.stop()


@cocotb.test()
async def headers_of_every_length(dut):
    """IPv4 options and IPv6 extension headers move the body to other places in a beat."""
    await bench.start(dut)
    lane, source = Lane(dut), random.Random(5)
    await selectors(lane, SITES)
    expected, sequence = [], 0
    for peer in (Peer(0x401, V4), Peer(0x802, V4, udp=True), Peer(0xC03, V6)):
        await peer.install(lane)
        for words in range(11 if ":" not in peer.ends[0] else 2):
            for length in range(28, 48):
                sequence += 1
                packet = bytes(IP(src="10.2.0.7", dst="10.1.0.9") / UDP() / Raw(source.randbytes(length - 28)))
                plain = peer.seal(packet, sequence)
                at = (20 if plain[0] >> 4 == 4 else 40) + 8 * peer.udp
                if plain[0] >> 4 == 4:
                    frame = peer.wrap(plain[at:], options=[IPOption_NOP()] * 4 * words)
                else:
                    frame = peer.wrap(plain[at:], extension=bool(words))
                lane.source.frame(frame)
                expected.append((packet, peer.user))
    await settle(lane, len(expected), 60000)
    assert lane.frames == expected
    lane.stop()


def in_udp(payload, **fields):
    return bytes(IP(src=V4[0], dst=V4[1], flags=fields.pop("flags", 0)) / UDP(sport=4500, dport=4500, **fields) / Raw(payload))


@cocotb.test()
async def too_little_or_too_much(dut):
    """Packets that end before their SPI or sequence number, UDP lengths that cannot be, fragments."""
    await bench.start(dut)
    lane, source, peers = Lane(dut), random.Random(9), (Peer(0x401, V4), Peer(0x802, V4, udp=True))
    await selectors(lane, SITES)
    for peer in peers:
        await peer.install(lane)
    head = struct.pack(">II", peers[1].spi, 1)
    wrong = [(peers[0].wrap(struct.pack(">II", peers[0].spi, 1)[:size]), SHORT) for size in range(8)]
    wrong += [(in_udp(head[:size]), SHORT) for size in range(4, 8)]
    wrong += [(in_udp(head + bytes(40), len=size), MALFORMED) for size in (*range(8), 57, 65535)]
    cut = bytes(IP(src=V4[0], dst=V4[1]) / UDP(sport=4500, dport=4500))
    wrong += [(bytes(IP(src=V4[0], dst=V4[1], proto=17) / Raw(cut[20:][:size])), MALFORMED) for size in (4, 7)]
    wrong += [(in_udp(head + bytes(40), flags="MF"), FRAGMENT), (in_udp(head + bytes(40), flags="MF", len=1000), FRAGMENT)]
    for frame, reason in wrong:
        lane.drops.clear()
        lane.source.frame(frame)
        await settle(lane, 1)
        assert lane.drops == {reason: 1}, f"{frame.hex()}: {reason}, got {lane.drops}"
    lane.drops.clear()
    packets = [inner(source, 300) for _ in peers]
    for peer, packet in zip(peers, packets):
        lane.source.frame(peer.seal(packet, 1))
    await settle(lane, 2)
    assert lane.frames == [(packet, peer.user) for peer, packet in zip(peers, packets)]
    lane.stop()


# Inner ECN, outer ECN, what the packet leaves with (RFC 6040, 4.2, figure 4); 1 is ECT(1), None is dropped.
ECN = {0: {0: 0, 1: 0, 2: 0, 3: None}, 2: {0: 2, 1: 1, 2: 2, 3: 3}, 1: {0: 1, 1: 1, 2: 1, 3: 3}, 3: {0: 3, 1: 3, 2: 3, 3: 3}}


@cocotb.test()
async def ecn_and_dscp_of_both_headers(dut):
    await bench.start(dut)
    lane, source = Lane(dut), random.Random(12)
    await selectors(lane, SITES)
    kinds = [(ends, dscp) for ends in (V4, V6) for dscp in (False, True)]
    peers = [Peer(1024 * n + n, ends, dscp=dscp) for n, (ends, dscp) in enumerate(kinds, 1)]
    expected, drops = [], Counter()
    for peer in peers:
        await peer.install(lane)
        cases = [(v6, inside, outside) for v6 in (False, True) for inside in range(4) for outside in range(4)]
        for sequence, (v6, inside, outside) in enumerate(cases, 1):
            packet = IPv6(src="2001:db8:2::7", dst="2001:db8:1::9") if v6 else IP(src="10.2.0.7", dst="10.1.0.9")
            packet /= UDP(sport=source.getrandbits(16), dport=53) / Raw(source.randbytes(30))
            field, tos, outer_tos = "tc" if v6 else "tos", source.randrange(64) << 2 | inside, source.randrange(64) << 2 | outside
            packet.setfieldval(field, tos)
            lane.source.frame(peer.seal(bytes(packet), sequence, tos=outer_tos))
            if ECN[inside][outside] is None:
                drops[ECN_LOST] += 1
            else:
                packet.setfieldval(field, (outer_tos if peer.dscp else tos) & 0xFC | ECN[inside][outside])
                expected.append((bytes(packet), peer.user))
    await settle(lane, 32 * len(peers), 60000)
    assert lane.frames == expected and lane.drops == drops
    lane.stop()


@cocotb.test()
async def an_sa_goes_with_packets_under_way(dut):
    """What was made for the key of zeros that a wiped row has is not taken for its packet, nor in the next SA's window."""
    await bench.start(dut)
    lane, source, seen = Lane(dut), random.Random(11), Counter()
    await selectors(lane, SITES)
    for round_ in range(24):
        peer, forger, latter = Peer(0x401, V4), Peer(0x401, V4), Peer(0x801, V4, top=5)
        forger.key = bytes(36)
        await lane.config("key").key(1, core.GCM256, peer.key, generation=2 * round_ + 1)
        await lane.config("sa").sa_in(1, spi=0x401, group=GROUP, generation=2 * round_ + 1)
        lane.drops.clear()
        lane.sink.taken.clear()
        packets = [inner(source, 200) for _ in range(8)]
        for at, packet in enumerate(packets):
            frame = bytearray((forger if at % 2 else peer).seal(packet, 100 + at))
            if at % 2:
                # With H = 0 the tag is the mask alone.
                frame[-16:] = Cipher(algorithms.AES(bytes(32)), modes.ECB()).encryptor().update(struct.pack(">IQI", 0, 100 + at, 1))
            lane.source.frame(bytes(frame))
        for _ in range(60 + 17 * round_):
            await RisingEdge(dut.clk_i)
        if round_ % 3:
            await lane.config("sa").write(1, 1, 0)
        await lane.config("key").write(1, 63, 0)
        if round_ % 3 == 1:
            await lane.config("key").key(1, core.GCM256, latter.key, generation=2 * round_ + 2)
            await lane.config("sa").sa_in(1, spi=0x801, group=GROUP, top=5, generation=2 * round_ + 2)
        await settle(lane, len(packets))
        assert all(frame in packets[::2] for frame, _ in lane.frames), "a forged one"
        assert set(lane.drops) <= {ICV, NO_SA}
        seen += lane.drops + Counter(opened=len(lane.frames))
        if round_ % 3 == 1:
            snap = await core.snapshot(dut, 1)
            assert (snap & core.ALL_ONES, snap >> 64 & core.ALL_ONES) == (5, 0)
    assert min(seen[kind] for kind in ("opened", ICV, NO_SA)) > 0
    lane.stop()


@cocotb.test()
async def exceptions_go_to_the_host(dut):
    await bench.start(dut)
    lane = Lane(dut)
    dut.exceptions_i.value = 1
    unknown = bytes(IP(src=V4[0], dst=V4[1], proto=50) / Raw(struct.pack(">IIQ", 9, 1, 1) + bytes(40)))
    fragment = bytes(IP(src=V4[0], dst=V4[1], proto=50, flags="MF") / Raw(bytes(48)))
    lane.source.frame(unknown)
    lane.source.frame(fragment)
    await settle(lane, 2)
    assert lane.frames == [(unknown, NO_SA << 1 | 1), (fragment, FRAGMENT << 1 | 1)]
    lane.stop()


@cocotb.test()
async def byte_lifetime(dut):
    await bench.start(dut)
    lane, source, peer = Lane(dut), random.Random(6), Peer(0x401, V4)
    await selectors(lane, SITES)
    await peer.install(lane)
    await lane.config("sa").sa_in(1, spi=0x401, group=GROUP, byte_limit=150)
    for n in range(1, 4):
        lane.source.frame(peer.seal(inner(source, 100), n))
        await settle(lane, n)
    assert lane.drops == {8: 1} and lane.events == [(2, 1)]
    snap = await core.snapshot(dut, 1)
    assert (snap & core.ALL_ONES, snap >> 64 & core.ALL_ONES, snap >> 128) == (2, 200, 0b111)
    lane.stop()


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    lane, source, peer = Lane(dut), random.Random(7), Peer(0x401, V4)
    await selectors(lane, SITES)
    await peer.install(lane)
    for n in range(1, 7):
        lane.source.frame(peer.seal(inner(source, 700), n))
    await until(dut.clk_i, lambda: len(lane.sink.words) > 10, 2000)
    lane.stop()
    await bench.reset(dut)
    await traffic(dut, 0, 0.1, 20, seed=8)


@cocotb.test()
async def cycles_per_packet(dut):
    await bench.start(dut)
    lane, peers = Lane(dut), [Peer(0x401, V4), Peer(0x802, V4, udp=True)]
    await selectors(lane, SITES)
    for peer in peers:
        await peer.install(lane)
    await lane.config("policy").write(63, 21, 0)  # waits for the entry that is being written
    for step, (udp, length, most) in enumerate(((0, 522, 45), (0, 1446, 105), (1, 514, 45), (1, 1438, 105), (0, 64, 18))):
        lane.sink.taken, lane.sink.ends = [], []
        packet = bytes(IP(src="10.2.0.7", dst="10.1.0.9") / UDP() / Raw(bytes(length - 28)))
        first = 100 * step + 1
        begin = lane.sink.cycle
        lane.source.frame(peers[udp].seal(packet, first))
        await until(dut.clk_i, lambda: len(lane.frames) == 1, 1000)
        latency = lane.sink.ends[0] - begin
        for n in range(1, 21):
            lane.source.frame(peers[udp].seal(packet, first + n))
        await until(dut.clk_i, lambda: len(lane.frames) == 21, 5000)
        interval = (lane.sink.ends[20] - lane.sink.ends[10]) / 10
        dut._log.info(f"esp_in {length} bytes{' in UDP' * udp}: interval {interval}, latency {latency} cycles")
        assert interval <= most
    lane.stop()


def test_esp_in():
    bench.run("esp_in", {"MaxBytes": MAX_BYTES})


@bench.parameter_sets("gcm", (1, 0))
def test_esp_in_with_hmac(gcm):
    bench.run("esp_in", {"HmacUnits": 2, "Gcm": gcm, "Rows": 16}, COCOTB_TEST_FILTER="every_vector")
