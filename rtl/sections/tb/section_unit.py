"""Drives a unit of a section: frames with their internal header in, frames with what is left of it out."""

import bench
from cocotb.triggers import ClockCycles
from streams import FrameSink, Joined, Source, beats, until

LEAD = 32  # bytes of zeros, outer header, SPI and sequence number: two beats
ESP_AT = 24  # in a protected frame


def connect(dut, idle=0.0, back_pressure=0.0):
    out = [dut.m_beat_o, dut.m_user_o] if hasattr(dut, "m_user_o") else [dut.m_beat_o]
    return (
        Source(dut.clk_i, dut.s_valid_i, dut.s_ready_o, Joined(dut.s_beat_i, dut.s_user_i), bench.pauses(idle, 21)),
        FrameSink(dut.clk_i, dut.m_valid_o, dut.m_ready_i, out, bench.pauses(back_pressure, 22)),
    )


async def exchange(dut, packets, idle=0.0, back_pressure=0.0, cycles=40000):
    """`packets`: (frame, header, what comes out). The last is a frame, with its header where there is one."""
    source, sink = connect(dut, idle, back_pressure)
    for frame, user, _ in packets:
        source.queue.extend((beat, user) for beat in beats(frame))
    await until(dut.clk_i, lambda: len(sink.frames) == len(packets), cycles)
    for got, (_, _, want) in zip(sink.frames, packets):
        assert got == want, f"\n{got} is not\n{want}"
    source.stop()
    sink.stop()
    return sink.ends


async def paused(dut, make):
    """Packets of `make(count)` with idle cycles and back-pressure of all kinds."""
    for idle, back_pressure in ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.85)):
        await exchange(dut, make(20), idle, back_pressure)


async def cut_off(dut, make, cuts=(1, 2, 3, 5)):
    """Resets after so many beats of a packet; the next ones come through as ever."""
    for cut in cuts:
        source, sink = connect(dut)
        frame, user, _ = next(packet for packet in make(20) if len(packet[0]) > 16 * cut)
        source.queue.extend([(beat, user) for beat in beats(frame)][:cut])
        await ClockCycles(dut.clk_i, 60)
        source.stop()
        sink.stop()
        await bench.reset(dut)
        await exchange(dut, make(5), 0.1, 0.1)
