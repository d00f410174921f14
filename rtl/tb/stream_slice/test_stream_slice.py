"""stream_slice: words come out in order, once each, one a cycle; ready is low only with two words inside."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge


@cocotb.test()
async def words_keep_their_order(dut):
    await bench.start(dut)
    source = random.Random(3)
    for idle, pressure in ((0, 0), (0.5, 0), (0, 0.5), (0.5, 0.5)):
        idles, pressures, inside, seen = bench.pauses(idle, 1), bench.pauses(pressure, 2), deque(), 0
        for cycle in range(500):
            if cycle in (100, 233):
                await bench.reset(dut)
                inside.clear()
            valid, ready, word = not next(idles), not next(pressures), source.getrandbits(16)
            dut.valid_i.value, dut.ready_i.value, dut.data_i.value = valid, ready, word
            await ReadOnly()
            assert dut.ready_o.value == (len(inside) < 2)
            assert dut.valid_o.value == bool(inside)
            put = valid and len(inside) < 2
            if inside:
                assert int(dut.data_o.value) == inside[0]
                if ready:
                    inside.popleft()
                    seen += 1
            if put:
                inside.append(word)
            await RisingEdge(dut.clk_i)
        assert seen > 90
        assert seen >= 497 or idle or pressure
        await bench.reset(dut)


def test_stream_slice():
    bench.run("stream_slice", {"Width": 16})
