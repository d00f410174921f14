"""esp_out: packets leave as another implementation would seal them; what may not leave is dropped for the right reason."""

import json
import random
import struct
import sys
from collections import Counter

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from lane import Lane
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from streams import beat, until

sys.path.insert(0, str(bench.VECTORS))
from packet_oracle import Transform  # noqa: E402

GCM = {core.GCM256: Transform("AES_GCM_16_256", "gcm", 256, icv=16),
       core.GCM128: Transform("AES_GCM_16_128", "gcm", 128, icv=16)}
MALFORMED, TOO_LONG, NO_POLICY, POLICY, NO_SA, SEQUENCE_END, LIFETIME, TOO_BIG = 1, 2, 3, 4, 6, 7, 8, 9
MAX_BYTES = 2048


class Sa:
    """An SA in the hardware and a model of it."""

    def __init__(self, row, spi, local, remote, suite=core.GCM256, seed=0, **fields):
        self.row, self.spi, self.local, self.remote, self.suite, self.fields = row, spi, local, remote, suite, fields
        self.transform = GCM[suite]
        self.key = random.Random(seed + row).randbytes(self.transform.key_len)
        self.sequence = fields.get("sequence", 0)

    async def install(self, lane):
        await lane.config("key").key(self.row, self.suite, self.key, generation=self.fields.get("generation", 1))
        await lane.config("sa").sa_out(self.row, spi=self.spi, local=self.local, remote=self.remote, suite=self.suite,
                                       **self.fields)

    @property
    def user(self):
        return 1 << 6 | self.row << 7

    def seal(self, inner, identification):
        """The whole outer packet."""
        fields = self.fields
        self.sequence += 1
        body = self.transform.pad(inner, 4 if inner[0] >> 4 == 4 else 41)
        esp = self.seal_esp(body)
        ports = fields.get("ports")
        if inner[0] >> 4 == 4:
            inner_ip = IP(inner)
            tos, df, label = inner_ip.tos, int(inner_ip.flags.DF), 0
        else:
            inner_ip = IPv6(inner)
            tos, df, label = inner_ip.tc, 1, inner_ip.fl
        df = (df, 1, 0)[fields.get("df", 0)]
        if fields.get("ecn_clear"):
            tos &= ~3
        if fields.get("dscp") is not None:
            tos = fields["dscp"] << 2 | tos & 3
        upper = UDP(sport=ports[0], dport=ports[1]) / Raw(esp) if ports else Raw(esp)
        ttl, protocol = fields.get("ttl", 64), 17 if ports else 50
        if ":" in self.local:
            label = label if fields.get("copy_label") else 0
            return bytes(IPv6(tc=tos, fl=label, hlim=ttl, nh=protocol, src=self.local, dst=self.remote) / upper)
        if ports:
            upper.chksum = 0
        return bytes(IP(tos=tos, id=identification, flags="DF" if df else 0, ttl=ttl, proto=protocol, src=self.local,
                        dst=self.remote) / upper)

    def seal_esp(self, body):
        header = struct.pack(">II", self.spi, self.sequence & 0xFFFFFFFF)
        iv = struct.pack(">Q", self.sequence ^ self.fields.get("iv_base", 0))
        aad = struct.pack(">IQ", self.spi, self.sequence) if self.fields.get("esn") else header
        cut = self.transform.cipher_len
        return header + iv + AESGCM(self.key[:cut]).encrypt(self.key[cut:] + iv, body, aad)


V4, V6 = ("192.0.2.1", "198.51.100.2"), ("2001:db8:ffff::1", "2001:db8:ffff::2")


def inner(source, site, version, length):
    """A packet of the site to which an entry of the policy leads."""
    tos = source.randrange(256)
    ttl = source.randrange(1, 256)
    upper = source.choice((UDP, TCP))(sport=source.randrange(65536), dport=source.randrange(65536))
    if version == 4:
        packet = IP(src=f"10.1.{site}.{source.randrange(256)}", dst=f"10.2.{site}.7", tos=tos, ttl=ttl,
                    flags=source.choice(("DF", 0)), id=source.randrange(65536))
    else:
        packet = IPv6(src=f"2001:db8:1:{site}::9", dst=f"2001:db8:2:{site}::7", tc=tos, hlim=ttl,
                      fl=source.randrange(1 << 20))
    packet /= upper / Raw(source.randbytes(max(0, length - len(packet / upper))))
    return bytes(packet)


def entries(site):
    return (core.entry(f"10.1.{site}.0/24", f"10.2.{site}.0/24"),
            core.entry(f"2001:db8:1:{site}::/64", f"2001:db8:2:{site}::/64"))


async def set_up(lane, sas):
    """An SA each for the sites 0, 1, …"""
    policy = lane.config("policy")
    for sa in sas:
        await sa.install(lane)
    for site, sa in enumerate(sas):
        for at, value_care in enumerate(entries(site)):
            await policy.policy(2 * site + at, value_care, core.PROTECT, sa.row)


def kinds():
    return [
        Sa(5, 0x1000, *V4), Sa(6, 0x1001, *V4, suite=core.GCM128, ports=(4500, 1024), iv_base=0x0123456789ABCDEF),
        Sa(7, 0xFFFFFFFF, *V6, esn=True, sequence=0xFFFFFFFD, df=1, ttl=17, copy_label=True),
        Sa(1023, 0x77, *V6, ports=(500, 4500), esn=True, dscp=46, ecn_clear=True, df=2),
        Sa(0, 0x78, *V4, df=2, dscp=1, esn=True, sequence=0x123456789ABCDEF0, iv_base=1 << 63)]


class Expect:
    """What comes out, in order for each way."""

    def __init__(self):
        self.sealed, self.aside, self.drops, self.identification = [], [], Counter(), 0

    def seal(self, sa, packet):
        self.identification = self.identification % 0xFFFF + 1
        self.sealed.append((sa.seal(packet, self.identification), sa.user))

    @property
    def count(self):
        return len(self.sealed) + len(self.aside) + sum(self.drops.values())


async def finish(lane, expect, cycles=60000):
    await until(lane.dut.clk_i, lambda: len(lane.frames) + sum(lane.drops.values()) >= expect.count, cycles)
    for _ in range(30):
        await RisingEdge(lane.dut.clk_i)
    assert lane.drops == expect.drops
    sealed = [frame for frame in lane.frames if frame[1] >> 6 & 1]
    aside = [frame for frame in lane.frames if not frame[1] >> 6 & 1]
    for got, want in zip(sealed, expect.sealed):
        assert got[0] == want[0], f"\n{got[0].hex()} is not\n{want[0].hex()}"
        assert got == want
    assert aside == expect.aside and len(sealed) == len(expect.sealed)
    assert lane.left == [len(frame) for frame, _ in lane.frames]


async def mixed_traffic(dut, idle, back_pressure, packets, seed):
    """Every kind of SA, every length, bypass, host, and all that is dropped."""
    lane, source, expect, sas = Lane(dut, idle, back_pressure), random.Random(seed), Expect(), kinds()
    await set_up(lane, sas)
    policy = lane.config("policy")
    for row, (site, action) in enumerate(((100, core.BYPASS), (101, core.TO_HOST), (102, core.DISCARD)), 20):
        await policy.policy(row, entries(site)[0], action, site)
    await policy.policy(30, entries(103)[0], core.PROTECT, 900)  # there is no such SA
    for _ in range(packets):
        length = source.choice((0, source.randrange(60, 130), source.randrange(1400, 1500), source.randrange(300)))
        kind = source.random()
        if kind < 0.7:
            site = source.randrange(len(sas))
            packet = inner(source, site, source.choice((4, 6)), length)
            expect.seal(sas[site], packet)
            lane.source.frame(packet + bytes(source.choice((0, 0, 0, 9))))
            continue
        site = source.choice((100, 101, 102, 103, 104))
        packet = inner(source, site, 4, length)
        if kind < 0.74:
            lane.source.frame(source.choice((packet[:-1], bytes([0x50]) + packet[1:], b"\x45", bytes(70))))
            expect.drops[MALFORMED] += 1
        elif kind < 0.76:
            lane.source.frame(packet.ljust(MAX_BYTES + source.randrange(1, 200), b"\0"))
            expect.drops[TOO_LONG] += 1
        elif kind < 0.78:
            lane.source.queue.extend((beat(bytes(16), False, 0x7FFF), beat(bytes(16), True)))
            expect.drops[MALFORMED] += 1
        else:
            lane.source.frame(packet)
            if site == 100:
                expect.aside.append((packet, 100 << 7))
            elif site == 101:
                expect.aside.append((packet, 101 << 7 | 1))
            else:
                expect.drops[{102: POLICY, 103: NO_SA, 104: NO_POLICY}[site]] += 1
    await finish(lane, expect)
    assert set(lane.events) <= {(4, 900)}
    lane.stop()


@cocotb.test()
async def packets_leave_as_others_seal_them(dut):
    await bench.start(dut)
    await mixed_traffic(dut, 0, 0, 120, seed=1)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    await mixed_traffic(dut, 0.3, 0.1, 60, seed=2)
    await bench.reset(dut)
    await mixed_traffic(dut, 0.1, 0.4, 60, seed=3)


@cocotb.test()
async def every_vector(dut):
    """The valid tunnel vectors from the other end: what was delivered there is sealed as it came."""
    await bench.start(dut)
    lane, expect = Lane(dut, 0.05, 0.05), Expect()
    policy = lane.config("policy")
    for suite, transform in GCM.items():
        vectors = json.loads((bench.VECTORS / "packets" / f"esp-aes-gcm-16-{8 * transform.cipher_len}.json").read_text())
        for row, (remote, local) in enumerate(vectors["selectors"]["tunnel"]):
            await policy.policy(row, core.entry(local, remote), core.PROTECT, 5)
        for case in vectors["cases"]:
            # The lane adds no padding of its own, and what was marked on the way did not leave so.
            if case["mode"] != "tunnel" or case["drop"] or case["name"].startswith(("traffic flow", "congestion")):
                continue
            frame, packet = bytes.fromhex(case["frame"]), bytes.fromhex(case["delivered"])
            outer = IP(frame) if frame[0] >> 4 == 4 else IPv6(frame)
            sa = Sa(5, int(vectors["spi"], 16), outer.src, outer.dst, suite, ports=(4500, 4500) if case["udp"] else None,
                    esn=case["esn"], sequence=int(case["sequence"], 16) - 1, df=1)
            sa.key = bytes.fromhex(case["key"])
            await sa.install(lane)
            expect.identification += 1
            if outer.version == 4:
                outer.id, outer.chksum = expect.identification, None
            lane.source.frame(packet)
            expect.sealed.append((bytes(outer), sa.user))
            await finish(lane, expect, 3000)
    assert len(expect.sealed) == 30
    lane.stop()


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    lane, sa = Lane(dut), Sa(5, 0x1000, *V4)
    await set_up(lane, [sa])
    for _ in range(6):
        lane.source.frame(inner(random.Random(1), 0, 4, 700))
    await until(dut.clk_i, lambda: len(lane.sink.words) > 10, 2000)
    lane.stop()
    await bench.reset(dut)
    # The SA is gone, and all else too.
    lane, expect = Lane(dut), Expect()
    await lane.config("policy").policy(0, entries(0)[0], core.PROTECT, 5)
    lane.source.frame(inner(random.Random(1), 0, 4, 700))
    expect.drops[NO_SA] += 1
    await finish(lane, expect)
    lane.stop()
    await bench.reset(dut)
    await mixed_traffic(dut, 0, 0.1, 20, seed=4)


@cocotb.test()
async def limits_of_an_sa(dut):
    """Sequence numbers end, lifetimes end, the path has an MTU; each is told once."""
    await bench.start(dut)
    lane, source, expect = Lane(dut), random.Random(5), Expect()
    sas = [Sa(1, 0x1001, *V4, sequence=0xFFFFFFFD), Sa(2, 0x1002, *V4, esn=True, sequence=core.ALL_ONES - 3),
           Sa(3, 0x1003, *V4, limit=2, soft=2), Sa(4, 0x1004, *V4, byte_limit=250), Sa(5, 0x1005, *V4, mtu=160)]
    await set_up(lane, sas)
    passing = (2, 2, 2, 3, 4)
    for site, sa in enumerate(sas):
        for n in range(5):
            packet = inner(source, site, 4, 100 if site < 4 or n < 4 else 107)
            lane.source.frame(packet)
            if n < passing[site]:
                expect.seal(sa, packet)
    expect.drops.update({SEQUENCE_END: 6, LIFETIME: 5, TOO_BIG: 1})
    await finish(lane, expect)
    assert lane.events == [(3, 1), (3, 2), (1, 3), (2, 3), (2, 4)]
    # As an exception, what is too big goes to the host.
    dut.exceptions_i.value = 1
    packet = inner(source, 4, 4, 107)
    lane.source.frame(packet)
    expect.aside.append((packet, 5 << 7 | TOO_BIG << 1 | 1))
    await finish(lane, expect)
    # The host reads how far an SA is.
    snap = await core.snapshot(dut, 4)
    assert (snap & core.ALL_ONES, snap >> 64) == (3, 300)
    lane.stop()


@cocotb.test()
async def an_sa_goes_with_packets_under_way(dut):
    """Whenever its key is wiped, or another SA gets its row: what leaves is under its own key, the rest is dropped."""
    await bench.start(dut)
    lane, source, seen = Lane(dut), random.Random(10), Counter()

    async def lead_to(sa):
        await lane.config("policy").policy(0, entries(0)[0], core.PROTECT, 5, generation=sa.fields["generation"])
        await lane.config("policy").write(63, 21, 0)  # waits for the entry that is being written

    for round_ in range(24):
        former, latter = (Sa(5, 0x1000 + at, *V4, seed=2 * round_ + at, generation=round_ * 2 + at + 1) for at in range(2))
        await former.install(lane)
        await lead_to(former)
        lane.drops.clear()
        lane.sink.taken.clear()
        packets = [inner(source, 0, 4, 300) for _ in range(8)]
        for packet in packets:
            lane.source.frame(packet)
        for _ in range(60 + 17 * round_):
            await RisingEdge(dut.clk_i)
        await lane.config("sa").write(5, 1, 0)
        if round_ % 2:
            await latter.install(lane)
        else:
            await lane.config("key").write(5, 63, 0)
        # These were meant for the one before.
        packets += [inner(source, 0, 4, 100) for _ in range(2)]
        for packet in packets[8:]:
            lane.source.frame(packet)
        await until(dut.clk_i, lambda: len(lane.frames) + lane.drops[NO_SA] == len(packets), 5000)
        passed = [packet for packet in packets[:8] if opens(former, lane.frames, packet)]
        assert len(passed) == len(lane.frames) and sum(lane.drops.values()) == lane.drops[NO_SA]
        seen += Counter(dropped=lane.drops[NO_SA], passed=len(passed))
        if round_ % 2:
            await lead_to(latter)
            packet = inner(source, 0, 4, 100)
            lane.source.frame(packet)
            await until(dut.clk_i, lambda: len(lane.frames) == len(passed) + 1, 1000)
            assert opens(latter, lane.frames[-1:], packet)
    assert seen["dropped"] > 48 and seen["passed"] > 0, seen
    lane.stop()


def opens(sa, frames, packet):
    """Whether one of the frames is that packet under this SA."""
    for frame, _ in frames:
        esp = frame[20:]
        try:
            body = AESGCM(sa.key[:32]).decrypt(sa.key[32:] + esp[8:16], esp[16:], esp[:8])
        except InvalidTag:
            continue
        if body[: len(packet)] == packet:
            return True
    return False


@cocotb.test()
async def a_lane_that_is_off_takes_nothing(dut):
    await bench.start(dut)
    lane = Lane(dut)
    dut.enable_i.value = 0
    lane.source.frame(bytes(40))
    for _ in range(100):
        await RisingEdge(dut.clk_i)
    assert lane.source.sent == 0
    dut.enable_i.value = 1
    await until(dut.clk_i, lambda: lane.drops[MALFORMED] == 1, 100)
    lane.stop()


@cocotb.test()
async def cycles_per_packet(dut):
    """The papers' packets, in a row: the interval between them, and how long one takes alone."""
    await bench.start(dut)
    lane = Lane(dut)
    sas = [Sa(5, 0x1000, *V4), Sa(6, 0x1001, *V4, ports=(4500, 4500))]
    await set_up(lane, sas)
    await lane.config("policy").write(63, 21, 0)  # waits for the entry that is being written
    source = random.Random(6)
    for site, length, most in ((0, 522, 45), (0, 1446, 105), (1, 514, 45), (1, 1438, 105), (0, 64, 16)):
        lane.sink.taken, lane.sink.ends = [], []
        packet = inner(source, site, 4, length)
        begin = lane.sink.cycle
        lane.source.frame(packet)
        await until(dut.clk_i, lambda: len(lane.frames) == 1, 1000)
        latency = lane.sink.ends[0] - begin
        for _ in range(20):
            lane.source.frame(packet)
        await until(dut.clk_i, lambda: len(lane.frames) == 21, 5000)
        interval = (lane.sink.ends[20] - lane.sink.ends[10]) / 10
        dut._log.info(f"esp_out {length} bytes{' in UDP' * site}: interval {interval}, latency {latency} cycles")
        assert interval <= most
    lane.stop()


def test_esp_out():
    bench.run("esp_out", {"MaxBytes": MAX_BYTES})
