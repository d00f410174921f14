"""esp_encap: bodies as RFC 4303, 2.4 pads them, a command each, and the job beside."""

import random

import bench
import cocotb
from streams import FrameSink, Joined, Sink, Source, until
from structs import CIPHER_CMD, OUTER, SEAL_JOB


def body_of(packet):
    padding = -(len(packet) + 2) % 4
    return packet + bytes(range(1, padding + 1)) + bytes([padding, 4 if packet[0] >> 4 == 4 else 41])


def job_of(source, packet):
    fields = {name: source.getrandbits(width) for name, width in SEAL_JOB.widths.items()}
    return SEAL_JOB.pack(**fields | {"inner_bytes": len(packet), "inner_v6": packet[0] >> 4 == 6})


def frame(source, packet):
    """(data, last) of its beats; bytes behind the packet mean nothing."""
    for at in range(0, len(packet), 16):
        part = packet[at : at + 16]
        part += source.randbytes(16 - len(part))
        yield int.from_bytes(part, "little"), at + 16 >= len(packet)


def connect(dut, idle, back_pressure):
    clk = dut.clk_i
    return (
        Source(clk, dut.job_valid_i, dut.job_ready_o, dut.job_i, bench.pauses(idle, 1)),
        Source(clk, dut.valid_i, dut.ready_o, Joined(dut.data_i, dut.last_i), bench.pauses(idle, 2)),
        Sink(clk, dut.outer_valid_o, dut.outer_ready_i, dut.outer_o, bench.pauses(back_pressure, 3)),
        Sink(clk, dut.cmd_valid_o, dut.cmd_ready_i, dut.cmd_o, bench.pauses(back_pressure, 4)),
        FrameSink(clk, dut.body_valid_o, dut.body_ready_i, dut.body_o, bench.pauses(back_pressure, 5)),
    )


async def exchange(dut, packets, idle=0.0, back_pressure=0.0):
    ends = jobs, frames, outers, commands, bodies = connect(dut, idle, back_pressure)
    source = random.Random(len(packets))
    for packet in packets:
        jobs.queue.append(job_of(source, packet))
        frames.queue.extend(frame(source, packet))
    expected = list(jobs.queue)
    await until(dut.clk_i, lambda: len(bodies.frames) == len(packets), 20000)
    assert bodies.frames == [body_of(packet) for packet in packets]
    for number, beside, command, packet in zip(expected, outers.words, commands.words, packets, strict=True):
        job, outer, cmd = SEAL_JOB.unpack(number), OUTER.unpack(beside), CIPHER_CMD.unpack(command)
        assert outer.job == number and outer.id == cmd.id
        assert (cmd.suite, cmd.row, cmd.iv, cmd.spi, cmd.esn) == (job.suite, job.row, job.iv, job.spi, job.esn)
        assert cmd.seq_hi << 32 | cmd.seq_lo == job.seq and cmd.len == len(body_of(packet))
    for end in ends:
        end.stop()
    return bodies.ends


def packets_of(source, lengths):
    return [bytes([source.choice((0x45, 0x60))]) + source.randbytes(length - 1) for length in lengths]


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    await exchange(dut, packets_of(random.Random(1), [*range(20, 86), 1446, 1500]))


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    source = random.Random(2)
    for idle, back_pressure in ((0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.8)):
        await exchange(dut, packets_of(source, [source.randrange(20, 120) for _ in range(40)]), idle, back_pressure)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    source = random.Random(3)
    for length in (100, 126, 128):  # the last ones end with a beat of their own
        ends = jobs, frames, *_, bodies = connect(dut, 0, 0)
        packet = packets_of(source, [length])[0]
        jobs.queue.append(job_of(source, packet))
        frames.queue.extend(list(frame(source, packet))[: source.randrange(1, 9)])
        await until(dut.clk_i, lambda: len(frames.queue) == 0 and len(bodies.words) > 0, 100)
        for end in ends:
            end.stop()
        await bench.reset(dut)
        await exchange(dut, packets_of(source, range(20, 40)), 0.2, 0.2)


@cocotb.test()
async def a_cycle_more_than_beats(dut):
    await bench.start(dut)
    ends = await exchange(dut, packets_of(random.Random(4), [160] * 20))
    assert ends[-1] - ends[0] <= 19 * (11 + 1)


def test_esp_encap():
    bench.run("esp_encap")
