"""stream_slice: words come out in order, once each, one a cycle; ready is low only with two words inside."""

import bench
import cocotb
import streams


@cocotb.test()
async def words_keep_their_order(dut):
    await streams.words_keep_their_order(dut, 2)


@bench.parameter_sets("output_register", (0, 1))
def test_stream_slice(output_register):
    bench.run("stream_slice", {"Width": 16, "OutputRegister": output_register})
