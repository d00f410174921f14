"""aes_round: the rounds of FIPS 197's example, one a cycle, through every kind of S-box; what enters beside them."""

import random

import bench
import cocotb
import fips197
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge


@cocotb.test()
async def published_rounds(dut):
    cocotb.start_soon(Clock(dut.clk_i, 10, unit="ns").start())
    source, rounds = random.Random(1), fips197.rounds()
    latency, final, entrance = (int(getattr(dut, name).value) for name in ("Latency", "Final", "Entrance"))
    # The example's last round is the one without MixColumns.
    rounds = rounds[-1:] if final else rounds[:-1]
    inside = []  # what the next cycles end: (round key, what comes out), or nothing
    for _ in range(300):
        inside.append(source.choice(rounds) if source.random() < 0.8 else None)
        dut.state_i.value = int.from_bytes(inside[-1][0] if inside[-1] else source.randbytes(16))
        around, enters = source.randbytes(16), source.random() < 0.3
        dut.enter_i.value, dut.around_i.value = enters, int.from_bytes(around)
        ends = inside[-latency] if len(inside) >= latency else None
        dut.key_i.value = int.from_bytes(ends[1] if ends else source.randbytes(16))
        want = around if entrance and enters else ends[2] if ends else None
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        if want:
            assert int(dut.state_o.value).to_bytes(16) == want
        await cocotb.triggers.NextTimeStep()


@bench.parameter_sets(
    "latency,kind,final,entrance", ((2, 0, 0, 0), (3, 0, 1, 0), (2, 1, 0, 1), (3, 1, 0, 0), (3, 2, 0, 1), (2, 2, 1, 0))
)
def test_aes_round(latency, kind, final, entrance):
    bench.run("aes_round", {"Latency": latency, "SboxKind": kind, "Final": final, "Entrance": entrance})
