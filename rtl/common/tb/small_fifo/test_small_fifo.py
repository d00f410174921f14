"""small_fifo: words come out in order, once each, and can leave in the cycle after they came; NeverFull stops what would lose one."""

import bench
import cocotb
import streams


@cocotb.test()
async def words_keep_their_order(dut):
    await streams.words_keep_their_order(dut, int(dut.Depth.value))


@cocotb.test()
async def a_word_too_many(dut):
    await streams.a_word_too_many(dut, int(dut.Depth.value))


@bench.parameter_sets("depth", (2, 8))
def test_small_fifo(depth):
    bench.run("small_fifo", {"Width": 16, "Depth": depth})


def test_never_full(tmp_path):
    printed = bench.stops("small_fifo", {"Depth": 4, "NeverFull": 1}, tmp_path / "log", COCOTB_TEST_FILTER="too_many")
    streams.assert_overfilled(printed)
