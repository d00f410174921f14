"""hmac_pool against the hmac module: packets side by side, tags in order."""

import hmac
import random
from types import SimpleNamespace

import bench
import cocotb
import streams
from hmac_states import hmac_states


def connect(dut, idle=0, back_pressure=0):
    clk = dut.clk_i
    return SimpleNamespace(
        state=streams.Source(clk, dut.state_valid_i, dut.state_ready_o, dut.state_i, bench.pauses(idle, 1)),
        msg=streams.Source(clk, dut.msg_valid_i, dut.msg_ready_o, dut.msg_i, bench.pauses(idle, 2)),
        tag=streams.Sink(clk, dut.tag_valid_o, dut.tag_ready_i, dut.tag_o, bench.pauses(back_pressure, 3)),
    )


def disconnect(ends):
    for end in vars(ends).values():
        end.stop()


def offer(ends, messages):
    for key, message in messages:
        inner, outer = hmac_states(key, sha1=False)
        for state in (inner, outer):
            ends.state.queue.extend((state >> 128, state & (1 << 128) - 1))
        ends.msg.frame(message)


async def tags(dut, messages, idle=0, back_pressure=0):
    """The tags of (key, message), and the cycles in which they came."""
    ends = connect(dut, idle, back_pressure)
    offer(ends, messages)
    blocks = sum(len(message) // 64 + 3 for _, message in messages)
    await streams.until(dut.clk_i, lambda: len(ends.tag.words) == len(messages), 500 + 100 * blocks)
    disconnect(ends)
    return list(ends.tag.words), list(ends.tag.cycles)


def expected(messages):
    return [int.from_bytes(hmac.digest(key, message, "sha256")[:16], "big") for key, message in messages]


def random_messages(lengths, seed=1):
    source = random.Random(seed)
    return [(source.randbytes(32), source.randbytes(length)) for length in lengths]


@cocotb.test()
async def mixed_lengths(dut):
    await bench.start(dut)
    source = random.Random(4)
    lengths = [source.choice((4, 24, 48, 52, 56, 116, 120, 300, 700, 1508, 2200)) for _ in range(24)]
    for idle, back_pressure in ((0, 0), (0.5, 0), (0, 0.98), (0.3, 0.7)):
        messages = random_messages(lengths, seed=idle)
        results, _ = await tags(dut, messages, idle, back_pressure)
        assert results == expected(messages)


@cocotb.test()
async def rate(dut):
    """N units give N tags in the time of one, if the beats come in as fast."""
    await bench.start(dut)
    units = int(dut.Units.value)
    for length in (548, 1472):
        _, came = await tags(dut, random_messages([length] * 6 * units))
        interval = (came[-1] - came[2 * units - 1]) / (4 * units)
        one = ((length + 9 + 63) // 64 + 1) * 33 + 13
        dut._log.info("%d units, %d bytes: a tag every %.1f cycles", units, length, interval)
        assert interval <= max(one / units, (length + 15) // 16) + 1


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    messages = random_messages([100, 40, 300, 64, 8, 900])
    for cycles in (3, 6, 9, 33, 55, 90, 133, 170, 250):
        ends = connect(dut)
        offer(ends, messages)
        await bench.ClockCycles(dut.clk_i, cycles)
        disconnect(ends)
        await bench.reset(dut)
        results, _ = await tags(dut, messages[:3])
        assert results == expected(messages[:3])


@bench.parameter_sets("units", (1, 3, 8))
def test_hmac_pool(units):
    bench.run("hmac_pool", {"Units": units})
