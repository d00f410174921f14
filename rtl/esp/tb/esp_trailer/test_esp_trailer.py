"""esp_trailer: padding of every length, right and wrong, at every place in a beat."""

import random

import bench
import cocotb
from cocotb.triggers import RisingEdge
from streams import beats


def expect(body):
    """(sound, next header, payload length)"""
    length, next_header = body[-2], body[-1]
    payload = len(body) - 2 - length
    return int(payload >= 0 and body[payload:-2] == bytes(range(1, length + 1))), next_header, payload


def body(source):
    """Mostly sound; bytes that are wrong stand anywhere in the padding, or just before it as if it were longer."""
    length = source.choice((0, 1, 2, 3, source.randrange(40), source.randrange(256), 255))
    payload = source.randbytes(source.randrange(80))
    payload += bytes(-(len(payload) + length + 2) % 4)
    padding = bytearray(range(1, length + 1))
    kind = source.random()
    if kind < 0.3 and length:
        padding[source.choice((0, length - 1, source.randrange(length)))] ^= 1 << source.randrange(8)
    elif kind < 0.4:
        payload = payload[:-1] + b"\0" if payload else payload
    elif kind < 0.45:
        # What is before the padding goes on in the same way.
        payload = bytes(n + 1 & 255 for n in range(-len(payload) - 4 * source.randrange(300), 0))
    claimed = source.randrange(256) if kind > 0.9 else length
    return payload + bytes(padding) + bytes([claimed, source.choice((4, 41, 59, source.randrange(256)))])


async def check(dut, bodies, idle):
    words = [word for one in bodies for word in beats(one)]
    expected, pause, at = [expect(one) for one in bodies], bench.pauses(idle, 2), 0
    for _ in range(20 * len(words) + 100):
        if not expected:
            return
        offered = at < len(words) and not next(pause)
        dut.valid_i.value = offered
        if offered:
            dut.beat_i.value = words[at]
            at += 1
        await RisingEdge(dut.clk_i)
        if dut.done_o.value == 1:
            value = int(dut.trailer_o.value)
            got = value >> 24, value >> 16 & 0xFF, value & 0xFFFF
            sound, *rest = expected.pop(0)
            assert got[0] == sound
            if sound:
                assert list(got[1:]) == rest
    raise AssertionError(f"{len(expected)} answers are missing")


@cocotb.test()
async def random_padding(dut):
    dut.valid_i.value = 0
    await bench.start(dut)
    source = random.Random(1)
    bodies = [body(source) for _ in range(1500)]
    assert {expect(one)[0] for one in bodies} == {0, 1}
    await check(dut, bodies, 0)
    await check(dut, bodies[:300], 0.4)


@cocotb.test()
async def reset_in_mid_frame(dut):
    dut.valid_i.value = 0
    await bench.start(dut)
    source = random.Random(2)
    for _ in range(3):
        dut.valid_i.value, dut.beat_i.value = 1, next(beats(bytes(range(1, 33))))
        await RisingEdge(dut.clk_i)
        dut.valid_i.value = 0
        await bench.reset(dut)
        await check(dut, [body(source) for _ in range(30)], 0.2)


def test_esp_trailer():
    bench.run("esp_trailer")
