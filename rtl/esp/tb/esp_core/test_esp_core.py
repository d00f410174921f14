"""esp_core: set up through the registers as software does it; what one lane seals the other opens, and what is dropped is counted."""

import random
import struct
from collections import Counter

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from registers import load_map
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from streams import FrameSink, Source, until, wrong_keep

ENDS = (("192.0.2.1", "198.51.100.2"), ("2001:db8:ffff::1", "2001:db8:ffff::2"))
SITES = (("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:1::/48", "2001:db8:2::/48"))
OUT_CONTROL, IN_CONTROL, OUT_POLICY, IN_POLICY, OUT_SA, IN_SA, OUT_KEY, IN_KEY, OUT_SNAP, IN_SNAP = range(10)
MALFORMED, TOO_LONG, NO_POLICY, POLICY, FRAGMENT, NO_SA, SHORT, REPLAY, ICV = 1, 2, 3, 4, 5, 6, 11, 12, 13
NOT_PROTECTED = 21
REASONS = 22
MAX_BYTES = 2048  # of a clear packet
MAX_SEALED = MAX_BYTES + 128


_, MAP, ADDRESS = load_map("esp")


class Registers(core.Config):
    """The tables of the core, through AXI4-Lite."""

    def __init__(self, dut):
        self.clk = dut.clk_i
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk_i, dut.rst_ni, reset_active_level=False)

    async def write(self, row, word, data, table=None):
        await self.poke(1 << 22 | (table << 16 | row << 6 | word) << 2, data)

    async def poke(self, address, data):
        response = await self.master.write(address, (data & 0xFFFFFFFF).to_bytes(4, "little"))
        assert response.resp == AxiResp.OKAY

    async def peek(self, address):
        response = await self.master.read(address, 4)
        assert response.resp == AxiResp.OKAY
        return int.from_bytes(response.data, "little")


class Stream:
    """The signals of a stream as one beat_t."""

    def __init__(self, dut, prefix, pause):
        self.signals = [getattr(dut, f"{prefix}_{name}") for name in ("tdata", "tkeep", "tlast")]
        self.valid, self.ready = getattr(dut, f"{prefix}_tvalid"), getattr(dut, f"{prefix}_tready")
        self.dut, self.prefix, self.pause = dut, prefix, pause

    @property
    def value(self):
        data, keep, last = (int(signal.value) for signal in self.signals)
        return data << 17 | keep << 1 | last

    @value.setter
    def value(self, beat):
        data, keep, last = self.signals
        data.value, keep.value, last.value = beat >> 17, beat >> 1 & 0xFFFF, beat & 1

    def source(self):
        return Source(self.dut.clk_i, self.valid, self.ready, self, self.pause)

    def sink(self):
        user = getattr(self.dut, f"{self.prefix}_tuser")
        return FrameSink(self.dut.clk_i, self.valid, self.ready, [self, user], self.pause)


class Lanes:
    """What goes into both lanes and comes out."""

    def __init__(self, dut, idle, back_pressure):
        self.protected = Stream(dut, "s_axis_out", bench.pauses(idle, 0)).source()
        self.sealed = Stream(dut, "m_axis_out", bench.pauses(back_pressure, 1)).sink()
        self.network = Stream(dut, "s_axis_in", bench.pauses(idle, 2)).source()
        self.opened = Stream(dut, "m_axis_in", bench.pauses(back_pressure, 3)).sink()

    def stop(self):
        for end in (self.protected, self.sealed, self.network, self.opened):
            end.stop()


def inner(source, length):
    if source.random() < 0.5:
        packet = IP(src="10.1.0.9", dst="10.2.0.7", tos=source.randrange(256), flags=source.choice(("DF", 0)))
    else:
        packet = IPv6(src="2001:db8:1::9", dst="2001:db8:2::7", tc=source.randrange(256))
    packet /= UDP(sport=source.randrange(65536), dport=source.randrange(65536))
    return bytes(packet / Raw(source.randbytes(max(0, length - len(packet)))))


@cocotb.test()
async def one_lane_opens_what_the_other_seals(dut):
    source = random.Random(1)
    lanes = Lanes(dut, 0.1, 0.1)
    protected, network, sealed, opened = lanes.protected, lanes.network, lanes.sealed, lanes.opened
    registers = Registers(dut)
    await bench.start(dut)
    suites = [core.GCM256, core.GCM128] + ([core.CTR256, core.CTR128] if int(dut.HmacUnits.value) else [])
    for n, (suite, (local, remote), ports) in enumerate(
            (suite, ENDS[at % 2], (4500, 4500) if at // 2 % 2 else None) for at, suite in enumerate(suites * 2)):
        row, spi = n + 1, 0x10000 | n + 1
        material = source.randbytes(68)[: (16 if suite & 1 else 32) + 4 + (32 if suite & 2 else 0)]
        await registers.key(row, suite, material, table=OUT_KEY)
        await registers.key(row, suite, material, table=IN_KEY)
        await registers.sa_out(row, spi=spi, local=local, remote=remote, suite=suite, ports=ports, esn=n % 2 == 0,
                               iv_base=source.getrandbits(64), table=OUT_SA)
        await registers.sa_in(row, spi=spi, suite=suite, esn=n % 2 == 0, group=9, table=IN_SA)
    count = 2 * len(suites)
    for at, (local, remote) in enumerate(SITES):
        # Seen from the other end, local is remote.
        await registers.policy(at, core.entry(remote, local, tunnelled=True), core.PROTECT, 9, table=IN_POLICY)
    await registers.poke(ADDRESS["control"], 3)
    sent = []
    for row in range(1, count + 1):
        for at, (local, remote) in enumerate(SITES):
            await registers.policy(at, core.entry(local, remote), core.PROTECT, row, table=OUT_POLICY)
        for length in (*source.choices((28, 64, 300, 1400), k=5), MAX_BYTES):
            packet = inner(source, length)
            protected.frame(packet)
            sent.append((packet, row))
        await until(dut.clk_i, lambda: len(sealed.frames) == len(sent), 5000)
        for frame, user in sealed.frames[-6:]:
            assert user == 1 << 6 | row << 7
            network.frame(frame)
    await until(dut.clk_i, lambda: len(opened.frames) == len(sent), 20000)
    for (got, user), (packet, row) in zip(opened.frames, sent):
        assert got == packet and user == 1 << 6 | row << 7

    # Drops and events are told through the registers, and so is how far an SA is.
    damaged = bytearray(sealed.frames[0][0])
    damaged[-1] ^= 1
    network.frame(bytes(damaged))  # a replay by now
    protected.frame(b"\x45" + bytes(30))
    for _ in range(600):
        await RisingEdge(dut.clk_i)
    assert await registers.peek(ADDRESS["out_counters"]) == await registers.peek(ADDRESS["in_counters"]) == len(sent)
    assert await registers.peek(ADDRESS["out_counters"] + 4) == 1
    assert await registers.peek(ADDRESS["in_counters"] + 4 * 12) == 1
    await registers.write(0, 0, 3, table=OUT_SNAP)
    await registers.write(0, 0, 3, table=IN_SNAP)
    size = sum(len(packet) for packet, row in sent if row == 3)
    for lane in ("out_snapshot", "in_snapshot"):
        got = [await registers.peek(ADDRESS[lane] + 4 * n) for n in range(6)]
        assert got[:4] == [6, 0, size, 0]
        assert got[4:] == ([0b1111111, 0] if lane == "in_snapshot" else [0, 0])


V4, V6 = 3, 5  # rows of the SAs that carry packets of each version
ESP_AT = {V4: 20, V6: 40 + 8}


async def install_policies(registers):
    for at, ((local, remote), row) in enumerate(zip(SITES, (V4, V6))):
        await registers.policy(at, core.entry(local, remote), core.PROTECT, row, table=OUT_POLICY)
        await registers.policy(at, core.entry(remote, local, tunnelled=True), core.PROTECT, 9, table=IN_POLICY)
    for at, (net, action, row) in enumerate((("10.3.0.0/16", core.DISCARD, 0), ("10.4.0.0/16", core.PROTECT, 9)), 2):
        await registers.policy(at, core.entry("10.1.0.0/16", net), action, row, table=OUT_POLICY)
        await registers.policy(at, core.entry("10.1.0.0/16", net, tunnelled=False), action, table=IN_POLICY)


async def install_sas(registers):
    """IPv4 by itself, IPv6 in UDP and with extended sequence numbers."""
    for row, suite, (local, remote), ports in ((V4, core.GCM256, ENDS[0], None), (V6, core.CTR128, ENDS[1], (4500, 4500))):
        fields = {"spi": row << 16 | row, "suite": suite, "esn": ports is not None}
        await registers.sa_out(row, local=local, remote=remote, ports=ports, **fields, table=OUT_SA)
        await registers.sa_in(row, group=9, **fields, table=IN_SA)


async def install_keys(registers):
    for row, suite in ((V4, core.GCM256), (V6, core.CTR128)):
        key = random.Random(row).randbytes((16 if suite & 1 else 32) + 4 + (32 if suite & 2 else 0))
        for table in (OUT_KEY, IN_KEY):
            await registers.key(row, suite, key, table=table)


async def install(registers):
    await install_policies(registers)
    await install_keys(registers)
    await install_sas(registers)
    await registers.poke(ADDRESS["control"], 3)


def plain(source, destination):
    return bytes(IP(src=source, dst=destination) / UDP(sport=1, dport=2) / Raw(bytes(60)))


def row_of(packet):
    return V4 if packet[0] >> 4 == 4 else V6


class Counts:
    """What a lane's counters are to be."""

    def __init__(self, registers, lane):
        self.registers, self.base, self.reasons, self.bytes = registers, ADDRESS[f"{lane}_counters"], Counter(), 0

    def left(self, frame):
        self.reasons[0] += 1
        self.bytes += len(frame)

    async def read(self):
        return Counter({n: await self.registers.peek(self.base + 4 * n) for n in range(REASONS)})

    async def compare(self):
        """Waits for the last packet to be counted, and whether one more comes."""
        for _ in range(200):
            if (await self.read()).total() >= self.reasons.total():
                break
        for _ in range(100):
            await RisingEdge(self.registers.clk)
        assert await self.read() == self.reasons
        assert [await self.registers.peek(self.base + at) for at in (0x80, 0x84)] == [self.bytes & 0xFFFFFFFF, self.bytes >> 32]


async def outbound(dut, lanes, counts, source, packets):
    """Packets of which some may not leave; returns those that did, and as what."""
    begun, passed = len(lanes.sealed.frames), []
    for _ in range(packets):
        packet, kind = inner(source, source.choice((28, 64, 300, 1400, MAX_BYTES))), source.random()
        if kind < 0.6:
            lanes.protected.frame(packet)
            passed.append(packet)
        elif kind < 0.68:
            lanes.protected.frame(source.choice((packet[:-1], bytes([0x50]) + packet[1:], b"\x45", bytes(70))))
            counts.reasons[MALFORMED] += 1
        elif kind < 0.76:
            lanes.protected.queue.extend(wrong_keep(packet, source))
            counts.reasons[MALFORMED] += 1
        elif kind < 0.84:
            lanes.protected.frame(packet.ljust(MAX_BYTES + source.choice((1, source.randrange(2, 200))), b"\0"))
            counts.reasons[TOO_LONG] += 1
        else:
            net, reason = source.choice((("10.9.0.1", NO_POLICY), ("10.3.0.1", POLICY), ("10.4.0.1", NO_SA)))
            lanes.protected.frame(plain("10.1.0.9", net))
            counts.reasons[reason] += 1
    await until(dut.clk_i, lambda: len(lanes.sealed.frames) == begun + len(passed), 60000)
    sealed = lanes.sealed.frames[begun:]
    for packet, (frame, user) in zip(passed, sealed):
        assert user == 1 << 6 | row_of(packet) << 7
        counts.left(frame)
    return [(packet, frame) for packet, (frame, _) in zip(passed, sealed)]


async def inbound(dut, lanes, counts, source, arriving):
    """`arriving`: (inner packet, frame), among which comes what must not pass."""
    begun, network = len(lanes.opened.frames), lanes.network
    for packet, frame in arriving:
        at, kind = ESP_AT[row_of(packet)], source.random()
        if kind < 0.2:
            # Forged in IV, ciphertext or ICV. The window still lets the right one in.
            place = source.choice((source.randrange(at + 8, len(frame)), len(frame) - 1 - source.randrange(16)))
            network.frame(frame[:place] + bytes([frame[place] ^ 1 << source.randrange(8)]) + frame[place + 1 :])
            counts.reasons[ICV] += 1
        elif kind < 0.3:
            network.queue.extend(wrong_keep(frame, source))
            counts.reasons[MALFORMED] += 1
        elif kind < 0.4:
            network.frame(frame.ljust(MAX_SEALED + source.choice((1, source.randrange(2, 200))), b"\0"))
            counts.reasons[TOO_LONG] += 1
        elif kind < 0.5:
            network.frame(source.choice((frame[:-1], bytes([0x50]) + frame[1:], b"\x45", bytes(70))))
            counts.reasons[MALFORMED] += 1
        elif kind < 0.6:
            network.frame(frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :])
            counts.reasons[NO_SA] += 1
        elif kind < 0.7:
            esp, flags, reason = source.choice(((bytes(48), "MF", FRAGMENT), (struct.pack(">II", V4 << 16 | V4, 99) + bytes(20), 0, SHORT)))
            network.frame(bytes(IP(src=ENDS[0][0], dst=ENDS[0][1], proto=50, flags=flags) / Raw(esp)))
            counts.reasons[reason] += 1
        elif kind < 0.9:
            net, reason = source.choice((("10.9.0.1", NO_POLICY), ("10.3.0.1", POLICY), ("10.4.0.1", NOT_PROTECTED)))
            network.frame(plain(net, "10.1.0.9"))
            counts.reasons[reason] += 1
        network.frame(frame)
        counts.left(packet)
        if source.random() < 0.2:
            network.frame(frame)
            counts.reasons[REPLAY] += 1
    await until(dut.clk_i, lambda: len(lanes.opened.frames) == begun + len(arriving), 60000)
    got = lanes.opened.frames[begun:]
    assert got == [(packet, 1 << 6 | row_of(packet) << 7) for packet, _ in arriving]


async def both_ways(dut, registers, lanes, counts, source, packets):
    arriving = await outbound(dut, lanes, counts[0], source, packets)
    await inbound(dut, lanes, counts[1], source, arriving)
    for lane in counts:
        await lane.compare()


@cocotb.test()
async def exceptions_come_to_the_host_where_it_asks(dut):
    lanes, registers = Lanes(dut, 0, 0), Registers(dut)
    await bench.start(dut)
    await install(registers)
    outbound, fragment = plain("10.1.0.9", "10.4.0.1"), bytes(IP(src=ENDS[0][0], dst=ENDS[0][1], proto=50, flags="MF") / Raw(bytes(48)))
    asked = {}
    for table in (OUT_CONTROL, IN_CONTROL):
        for on in (1, 0):
            await registers.write(0, 0, on, table=table)
            asked[table] = on
            begun = [len(lanes.sealed.frames), len(lanes.opened.frames)]
            lanes.protected.frame(outbound)
            lanes.network.frame(fragment)
            for _ in range(600):
                await RisingEdge(dut.clk_i)
            assert lanes.sealed.frames[begun[0] :] == [(outbound, 9 << 7 | NO_SA << 1 | 1)] * asked.get(OUT_CONTROL, 0)
            assert lanes.opened.frames[begun[1] :] == [(fragment, FRAGMENT << 1 | 1)] * asked.get(IN_CONTROL, 0)
    lanes.stop()


def in_mid_frame(lanes):
    """At both ends of both lanes: what was taken last is not the end of a frame, nor is what comes next."""
    sinks, sources = (lanes.sealed, lanes.opened), (lanes.protected, lanes.network)
    return all(sink.words and sink.words[-1][0] & 1 == 0 for sink in sinks) and all(
        end.sent and end.valid.value == 1 and end.data.value & 1 == 0 for end in sources
    )


@cocotb.test()
async def drops_are_counted_and_a_reset_takes_all_away(dut):
    source, registers = random.Random(2), Registers(dut)
    lanes = Lanes(dut, 0, 0)
    await bench.start(dut)
    await install(registers)
    counts = [Counts(registers, lane) for lane in ("out", "in")]
    for idle, back_pressure, packets in ((0, 0, 60), (0.4, 0.1, 40), (0.1, 0.5, 40)):
        lanes.stop()
        lanes = Lanes(dut, idle, back_pressure)
        await both_ways(dut, registers, lanes, counts, source, packets)
    assert set(counts[0].reasons) == {0, MALFORMED, TOO_LONG, NO_POLICY, POLICY, NO_SA}
    assert set(counts[1].reasons) == {
        0, MALFORMED, TOO_LONG, NO_POLICY, POLICY, FRAGMENT, NO_SA, SHORT, REPLAY, ICV, NOT_PROTECTED
    }  # fmt: skip

    begun = len(lanes.sealed.frames)
    for _ in range(40):
        lanes.protected.frame(inner(source, 1400))
    await until(dut.clk_i, lambda: len(lanes.sealed.frames) >= begun + 8, 20000)
    sealed = [frame for frame, _ in lanes.sealed.frames[begun:]]
    for frame in sealed:
        lanes.network.frame(frame)
    await until(dut.clk_i, lambda: in_mid_frame(lanes), 5000)
    lanes.stop()
    await bench.reset(dut)

    # Nothing comes out of what was under way, and nothing is taken before the lanes are on again.
    lanes, counts = Lanes(dut, 0.1, 0.1), [Counts(registers, lane) for lane in ("out", "in")]
    lanes.protected.frame(inner(source, 300))
    kept = [next(frame for frame in sealed if frame[0] >> 4 == version) for version in (4, 6)]
    for frame in kept:
        lanes.network.frame(frame)
    for _ in range(300):
        await RisingEdge(dut.clk_i)
    assert lanes.protected.sent == lanes.network.sent == 0
    assert await registers.peek(ADDRESS["control"]) == 0
    for lane in counts:
        await lane.compare()
    await registers.poke(ADDRESS["control"], 3)
    counts[0].reasons[NO_POLICY] += 1
    counts[1].reasons[NO_SA] += 2
    for lane in counts:
        await lane.compare()
    # The policies alone are no SA.
    await install_policies(registers)
    lanes.protected.frame(inner(source, 300))
    counts[0].reasons[NO_SA] += 1
    for lane in counts:
        await lane.compare()
    # And an SA without its key opens nothing.
    await install_sas(registers)
    for frame in kept:
        lanes.network.frame(frame)
    counts[1].reasons[ICV] += 2
    await counts[1].compare()
    assert not lanes.sealed.frames and not lanes.opened.frames and not lanes.sealed.words and not lanes.opened.words
    # Installed again, all is as it was.
    await install(registers)
    await both_ways(dut, registers, lanes, counts, source, 40)
    lanes.stop()


def test_esp_core():
    bench.run("esp_core", {"Rows": 16, "Entries": 4, "HmacUnits": 2})
