"""section_sad: asks for each packet's row, once, and puts what it is told in front; whenever the answer comes."""

import random

import bench
import cocotb
import section_unit
from cocotb.triggers import RisingEdge
from sections_model import front, packet
from structs import POLICY_HEAD, SA, SAD_HEAD

BEATS = 6


def sa(row, generation):
    """What the SAD answers: the header's fields, and the words for the beats in front."""
    source = random.Random(row << 7 | generation)
    fields = {"encap": source.getrandbits(3), "cipher": source.getrandbits(3), "auth": source.getrandbits(3), "wide": source.getrandbits(1)}
    return SA.pack(**fields), front([source.getrandbits(32) for _ in range(4 * BEATS)])


def make(source, length=None):
    length = length or source.choice((20, 24, source.randrange(20, 90), source.randrange(20, 400)))
    row, generation, port = source.getrandbits(10), source.getrandbits(7), source.getrandbits(4)
    inner, (fields, words) = packet(length, body=source.randbytes(length)), sa(row, generation)
    user = POLICY_HEAD.pack(port=port, sad=source.getrandbits(3), generation=generation, row=row, bytes=length)
    return inner, user, (words + inner, SAD_HEAD.pack(port=port, bytes=length, sa=fields))


async def sad(dut, source):
    """Grants and answers when it likes, a row's words with pauses in between."""
    dut.grant_i.value = dut.answer_i.value = 0
    while True:
        await RisingEdge(dut.clk_i)
        if dut.rst_ni.value != 1 or dut.request_o.value != 1 or source.random() < 0.3:
            continue
        asked = int(dut.row_o.value), int(dut.generation_o.value)
        dut.grant_i.value = 1
        await RisingEdge(dut.clk_i)
        # It was seen before the edge and is held until the grant.
        assert dut.rst_ni.value != 1 or (dut.request_o.value == 1 and (int(dut.row_o.value), int(dut.generation_o.value)) == asked)
        dut.grant_i.value = 0
        fields, words = sa(*asked)
        for _ in range(source.choice((0, 1, 5, 30))):
            await RisingEdge(dut.clk_i)
        for at in range(0, len(words), 16):
            dut.answer_i.value, dut.sa_i.value, dut.words_i.value = 1, fields, int.from_bytes(words[at : at + 16], "little")
            await RisingEdge(dut.clk_i)
            dut.answer_i.value, dut.sa_i.value, dut.words_i.value = 0, source.getrandbits(10), source.getrandbits(128)
            for _ in range(source.choice((0, 0, 0, 2))):
                await RisingEdge(dut.clk_i)


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    cocotb.start_soon(sad(dut, random.Random(3)))
    source = random.Random(1)
    await section_unit.exchange(dut, [make(source, length) for length in (*range(20, 60), 1500)])


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    cocotb.start_soon(sad(dut, random.Random(4)))
    source = random.Random(2)
    await section_unit.paused(dut, lambda count: [make(source) for _ in range(count)])


@cocotb.test()
async def resets(dut):
    await bench.start(dut)
    source = random.Random(5)
    for cut in (1, 2, 3, 5):
        task = cocotb.start_soon(sad(dut, random.Random(cut)))
        await section_unit.cut_off(dut, lambda count: [make(source, source.randrange(90, 140)) for _ in range(count)], (cut,))
        task.cancel()


def test_section_sad():
    bench.run("section_sad")
