"""esp_decap: ciphertext and ICV are cut out of frames in which they begin at any word."""

import random

import bench
import cocotb
from streams import FrameSink, Joined, Sink, Source, until
from structs import CIPHER_CMD, OPEN_JOB, OPEN_SA, OPENED

ICV = 16


def connect(dut, idle, back_pressure):
    clk = dut.clk_i
    return (
        Source(clk, dut.job_valid_i, dut.job_ready_o, dut.job_i, bench.pauses(idle, 1)),
        Source(clk, dut.valid_i, dut.ready_o, Joined(dut.data_i, dut.last_i), bench.pauses(idle, 2)),
        Sink(clk, dut.opened_valid_o, dut.opened_ready_i, dut.opened_o, bench.pauses(back_pressure, 3)),
        Sink(clk, dut.cmd_valid_o, dut.cmd_ready_i, dut.cmd_o, bench.pauses(back_pressure, 4)),
        FrameSink(clk, dut.body_valid_o, dut.body_ready_i, dut.body_o, bench.pauses(back_pressure, 5)),
        Sink(clk, dut.icv_valid_o, dut.icv_ready_i, dut.icv_o, bench.pauses(back_pressure, 6)),
    )


def packet(source, shift, length):
    """Job, beats, body and ICV."""
    body, icv = source.randbytes(length), source.randbytes(ICV)
    sa = source.getrandbits(OPEN_SA.bits)
    job = OPEN_JOB.pack(sa=sa, spi=source.getrandbits(32), iv=source.getrandbits(64), tos=source.getrandbits(8), shift=shift,
                        bytes=length)
    whole = source.randbytes(4 * shift) + body + icv
    whole += source.randbytes(-len(whole) % 16)
    beats = [(int.from_bytes(whole[at : at + 16], "little"), at + 16 == len(whole)) for at in range(0, len(whole), 16)]
    return job, beats, body, icv


async def exchange(dut, packets, idle=0.0, back_pressure=0.0):
    ends = jobs, frames, opened, commands, bodies, icvs = connect(dut, idle, back_pressure)
    for job, beats, _, _ in packets:
        jobs.queue.append(job)
        frames.queue.extend(beats)
    await until(dut.clk_i, lambda: len(icvs.words) == len(bodies.frames) == len(packets), 20000)
    assert bodies.frames == [body for _, _, body, _ in packets]
    assert [word.to_bytes(ICV, "little") for word in icvs.words] == [icv for *_, icv in packets]
    for (number, _, body, _), after, command in zip(packets, opened.words, commands.words, strict=True):
        job, cmd = OPEN_JOB.unpack(number), CIPHER_CMD.unpack(command)
        sa = OPEN_SA.unpack(job.sa)
        assert after == OPENED.pack(id=cmd.id, sa=job.sa, tos=job.tos)
        assert (cmd.suite, cmd.row, cmd.iv, cmd.spi, cmd.esn) == (sa.suite, sa.row, job.iv, job.spi, sa.esn)
        assert cmd.seq_hi << 32 | cmd.seq_lo == sa.seq and cmd.len == len(body)
    for end in ends:
        end.stop()
    return bodies.ends


@cocotb.test()
async def every_length_at_every_word(dut):
    await bench.start(dut)
    source = random.Random(1)
    await exchange(dut, [packet(source, shift, length) for length in (*range(4, 72, 4), 1448) for shift in range(4)])


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    source = random.Random(2)
    for idle, back_pressure in ((0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.8)):
        packets = [packet(source, source.randrange(4), 4 * source.randrange(1, 30)) for _ in range(40)]
        await exchange(dut, packets, idle, back_pressure)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    source = random.Random(3)
    for shift in range(4):
        ends = jobs, frames, *_, bodies, _ = connect(dut, 0, 0)
        job, beats, *_ = packet(source, shift, 100)
        jobs.queue.append(job)
        frames.queue.extend(beats[:4])
        await until(dut.clk_i, lambda: len(bodies.words) >= 2, 100)
        for end in ends:
            end.stop()
        await bench.reset(dut)
        await exchange(dut, [packet(source, source.randrange(4), 4 * source.randrange(1, 30)) for _ in range(10)], 0.2, 0.2)


@cocotb.test()
async def three_cycles_more_than_beats(dut):
    await bench.start(dut)
    source = random.Random(4)
    for shift in range(4):
        ends = await exchange(dut, [packet(source, shift, 160) for _ in range(20)])
        assert ends[-1] - ends[0] <= 19 * (10 + 3)


def test_esp_decap():
    bench.run("esp_decap")
