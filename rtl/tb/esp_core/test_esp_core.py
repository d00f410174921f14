"""esp_core: set up through the registers as software does it; what one lane seals the other opens."""

import importlib.util
import random

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from streams import FrameSink, Source, until

OUT_CONTROL, IN_CONTROL, OUT_POLICY, IN_POLICY, OUT_SA, IN_SA, OUT_KEY, IN_KEY, OUT_SNAP, IN_SNAP = range(10)
NO_POLICY, ICV = 3, 13


def load_map():
    path = bench.RTL / "regs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Map(bench.RTL / "regs" / "esp.rdl")


MAP = load_map()
ADDRESS = {node.inst_name: node.absolute_address for node in (*MAP.registers, *MAP.readable)}


class Registers(core.Config):
    """The tables of the core, through AXI4-Lite."""

    def __init__(self, dut):
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
    names = ("s_axis_out", "m_axis_out", "s_axis_in", "m_axis_in")
    streams = {name: Stream(dut, name, bench.pauses(0.1, seed)) for seed, name in enumerate(names)}
    protected, network = streams["s_axis_out"].source(), streams["s_axis_in"].source()
    sealed, opened = streams["m_axis_out"].sink(), streams["m_axis_in"].sink()
    registers = Registers(dut)
    await bench.start(dut)
    suites = [core.GCM256, core.GCM128] + ([core.CTR256, core.CTR128] if int(dut.HmacUnits.value) else [])
    ends = [("192.0.2.1", "198.51.100.2"), ("2001:db8:ffff::1", "2001:db8:ffff::2")]
    for n, (suite, (local, remote), ports) in enumerate(
            (suite, ends[at % 2], (4500, 4500) if at // 2 % 2 else None) for at, suite in enumerate(suites * 2)):
        row, spi = n + 1, 0x10000 | n + 1
        material = source.randbytes(68)[: (16 if suite & 1 else 32) + 4 + (32 if suite & 2 else 0)]
        await registers.key(row, suite, material, table=OUT_KEY)
        await registers.key(row, suite, material, table=IN_KEY)
        await registers.sa_out(row, spi=spi, local=local, remote=remote, suite=suite, ports=ports, esn=n % 2 == 0,
                               iv_base=source.getrandbits(64), table=OUT_SA)
        await registers.sa_in(row, spi=spi, suite=suite, esn=n % 2 == 0, group=9, table=IN_SA)
    count = 2 * len(suites)
    for at, (local, remote) in enumerate((("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:1::/48", "2001:db8:2::/48"))):
        # Seen from the other end, local is remote.
        await registers.policy(at, core.entry(remote, local, tunnelled=True), core.PROTECT, 9, table=IN_POLICY)
    await registers.poke(ADDRESS["control"], 3)
    sent = []
    for row in range(1, count + 1):
        for at, (local, remote) in enumerate((("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:1::/48", "2001:db8:2::/48"))):
            await registers.policy(at, core.entry(local, remote), core.PROTECT, row, table=OUT_POLICY)
        for _ in range(6):
            packet = inner(source, source.choice((28, 64, 300, 1400)))
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


def test_esp_core():
    bench.run("esp_core", {"Rows": 16, "Entries": 4, "HmacUnits": 2}, big=True)
