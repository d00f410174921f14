"""sections_core: set up through the registers as software does it; what is protected opens with other people's crypto."""

import random

import bench
import cocotb
import sections_model as sections
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from registers import Host, load_map
from sections_model import DISCARD, PROTECT, Sa, packet
from streams import FrameSink, Joined, Source, beats, until

_, MAP, ADDRESS = load_map("sections")
DROPS = ("frame", "policy", "sa", "unit", "exit")


class Beats:
    """AXI4-Stream's signals as a beat_t."""

    def __init__(self, data, keep, last):
        self.signals = Joined(data, keep, last)
        self.parts = data, keep, last

    @property
    def value(self):
        data, keep, last = (int(part.value) for part in self.parts)
        return data << 17 | keep << 1 | last

    @value.setter
    def value(self, beat):
        self.signals.value = (beat >> 17, beat >> 1 & 0xFFFF, beat & 1)


def connect(dut, idle, back_pressure):
    taken = Beats(dut.s_axis_tdata_i, dut.s_axis_tkeep_i, dut.s_axis_tlast_i)
    given = Beats(dut.m_axis_tdata_o, dut.m_axis_tkeep_o, dut.m_axis_tlast_o)
    return (
        Source(dut.clk_i, dut.s_axis_tvalid_i, dut.s_axis_tready_o, taken, bench.pauses(idle, 1)),
        FrameSink(dut.clk_i, dut.m_axis_tvalid_o, dut.m_axis_tready_i, given, bench.pauses(back_pressure, 2)),
    )


async def install(host, writes):
    for address, data in writes:
        assert await host.write(1 << 22 | address << 2, data)


@cocotb.test()
async def set_up_by_registers(dut):
    Clock(dut.clk_sad_i, 7, unit="ns").start()
    dut.rst_sad_ni.value = 0
    source_bytes = random.Random(1).randbytes
    source, sink = connect(dut, 0.1, 0.1)
    await bench.start(dut)
    dut.rst_sad_ni.value = 1
    host = Host(dut, 0.1)
    sas = [Sa(3, 0x1001, source_bytes(16), source_bytes(20)), Sa(4, 0x1002, source_bytes(32), source_bytes(20), last_used=9)]
    policy, writes = sections.Policy(), []
    for n, (action, row) in enumerate(((PROTECT, 3), (PROTECT, 4), (DISCARD, 0), (PROTECT, 9))):
        writes += policy.entry(sections.selectors(packet(40, ports=(n, 7))), action, row)
    await install(host, writes + [write for sa in sas for write in sa.writes()])

    # What is off takes nothing.
    frames = [packet(40 + 13 * k, ports=(k % 4, 7), body=source_bytes(700)) for k in range(40)]
    for frame in frames:
        source.queue.extend(beats(frame))
    await ClockCycles(dut.clk_i, 100)
    assert source.sent == 0
    assert await host.write(ADDRESS["control"], 1)
    await until(dut.clk_i, lambda: len(sink.frames) == 20, 20000)
    inner = {sa.spi: [sections.forwarded(frame) for frame in frames[n::4]] for n, sa in enumerate(sas)}
    for frame in sink.frames:
        sa = next(sa for sa in sas if sa.spi == int.from_bytes(frame[20:24]))
        sequence, opened = sa.open(frame)
        sa.last_used += 1
        assert sequence == sa.last_used and opened == inner[sa.spi].pop(0)
    source.queue.append(next(beats(frames[0])) & ~(1 << 5))  # a hole in TKEEP
    await ClockCycles(dut.clk_i, 300)

    # A wiped row is no SA any more.
    assert await host.write(1 << 22 | (sections.SAD_TABLE << 16 | 3 << 6 | 63) << 2, 0)
    await ClockCycles(dut.clk_i, 50)
    source.queue.extend(list(beats(frames[0]))[1:])
    source.queue.extend(beats(frames[0]))
    await ClockCycles(dut.clk_i, 1000)
    counted = [await host.value(ADDRESS["dropped"] + 4 * n) for n in range(len(DROPS))]
    assert dict(zip(DROPS, counted)) == {"frame": 1, "policy": 10, "sa": 11, "unit": 0, "exit": 0}
    assert len(sink.frames) == 20


def test_sections_core():
    shape = {"Policies": 1, "Sads": 1, "Encaps": 1, "Aes": 1, "Hmacs": 1, "Rows": 16}
    bench.run("sections_core", shape, optimise="-O0")
