"""A lane of the ESP core under test: frames in and out, what it counts and tells, its configuration buses."""

from collections import Counter

import bench
import cocotb
import core
from cocotb.triggers import RisingEdge
from streams import FrameSink, Source


class Lane:
    """The module, its configuration bus and what comes out of it."""

    def __init__(self, dut, idle=0.0, back_pressure=0.0):
        self.dut = dut
        self.drops, self.left, self.events = Counter(), [], []
        dut.enable_i.value, dut.exceptions_i.value = 1, 0
        dut.snap_valid_i.value = 0
        for table in ("policy", "sa", "key"):
            getattr(dut, f"cfg_{table}_valid_i").value = 0
        self.source = Source(dut.clk_i, dut.valid_i, dut.ready_o, dut.beat_i, bench.pauses(idle, 11))
        self.sink = FrameSink(dut.clk_i, dut.valid_o, dut.ready_i, [dut.beat_o, dut.user_o],
                              bench.pauses(back_pressure, 12))
        cocotb.start_soon(self.watch())

    def stop(self):
        self.source.stop()
        self.sink.stop()

    async def watch(self):
        dut = self.dut
        while True:
            await RisingEdge(dut.clk_i)
            if dut.count_valid_o.value == 1:
                reason = int(dut.count_reason_o.value)
                if reason:
                    self.drops[reason] += 1
                else:
                    self.left.append(int(dut.count_bytes_o.value))
            if dut.event_valid_o.value == 1:
                self.events.append((int(dut.event_o.value), int(dut.event_row_o.value)))

    def config(self, table):
        return TableConfig(self.dut, table)

    @property
    def frames(self):
        return self.sink.frames


class TableConfig(core.Config):
    """Tables have a valid and a ready of their own here."""

    def __init__(self, dut, table):
        self.dut, self.table = dut, table
        self.valid, self.ready = getattr(dut, f"cfg_{table}_valid_i"), getattr(dut, f"cfg_{table}_ready_o")

    async def write(self, row, word, data, table=None):
        dut = self.dut
        dut.cfg_row_i.value, dut.cfg_word_i.value = row, word
        dut.cfg_data_i.value, self.valid.value = data & 0xFFFFFFFF, 1
        while True:
            await RisingEdge(dut.clk_i)
            if self.ready.value == 1:
                break
        self.valid.value = 0
