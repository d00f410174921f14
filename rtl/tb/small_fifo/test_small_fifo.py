"""small_fifo: words come out in order, once each, and can leave in the cycle after they came."""

import bench
import cocotb
import pytest
import streams


@cocotb.test()
async def words_keep_their_order(dut):
    await streams.words_keep_their_order(dut, int(dut.Depth.value))


@pytest.mark.parametrize("depth", (2, 8))
def test_small_fifo(depth):
    bench.run("small_fifo", {"Width": 16, "Depth": depth})
