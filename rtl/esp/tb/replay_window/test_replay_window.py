"""replay_window against the set of the numbers that came (RFC 4303, 3.4.3): of 32 and 64 bits, near and far, at both ends."""

import random

import bench
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge


class Model:
    def __init__(self, window, top):
        self.window, self.top, self.came = window, top, {top}

    def fresh(self, number, off):
        known = number in self.came or number <= self.top - self.window
        return number > 0 and (off or not known)

    def take(self, number):
        self.top = max(self.top, number)
        self.came.add(number)

    def bits(self):
        return sum(1 << self.top - number for number in self.came if self.top - self.window < number)


def numbers(source, model, highest):
    reach = source.choice((1, 3, model.window - 1, model.window, model.window + 1, 1 << 20, highest))
    number = model.top + source.choice((-reach, reach, source.randint(-reach, reach), 0))
    return min(max(number, 0), highest)


@cocotb.test()
async def numbers_that_come_once(dut):
    cocotb.start_soon(Clock(dut.clk_i, 10, unit="ns").start())
    window, width = int(dut.Window.value), int(dut.Width.value)
    source, highest, seen = random.Random(1), (1 << width) - 1, set()
    for top in (0, 1, window, 1 << 20, (1 << 32) - 2, highest - 3):
        model = Model(window, top)
        for _ in range(400):
            number, off = numbers(source, model, highest), source.random() < 0.1
            dut.top_i.value, dut.seen_i.value, dut.number_i.value, dut.off_i.value = model.top, model.bits(), number, off
            await ClockCycles(dut.clk_i, 2)
            await ReadOnly()
            fresh = model.fresh(number, off)
            assert dut.fresh_o.value == fresh, f"{number} after {model.top}"
            # Without a check a number may come again; what is stored is to be right all the same.
            if fresh:
                model.take(number)
                assert (int(dut.top_o.value), int(dut.seen_o.value)) == (model.top, model.bits())
            seen.add((fresh, off, number > model.top - window))
            await RisingEdge(dut.clk_i)
    assert len(seen) >= 6


@bench.parameter_sets("width", (32, 64))
def test_replay_window(width):
    bench.run("replay_window", {"Window": 64, "Width": width})
