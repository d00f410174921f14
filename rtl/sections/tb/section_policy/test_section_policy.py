"""section_policy: frames come out as they came in, with what a dictionary of selectors says about them."""

import random

import bench
import cocotb
import section_unit
import sections_model as model
from cocotb.triggers import RisingEdge
from structs import FRAME_HEAD, POLICY_HEAD, SECTION_POLICY

NOBODY = 4
FLOWS = 20


class Table:
    def __init__(self):
        self.places, self.entries = {}, {}

    async def enter(self, dut, key, action, row, generation):
        bucket = model.pearson(key)
        way = self.places[bucket] = self.places.get(bucket, -1) + 1
        assert way < 4
        self.entries[key] = action, (row, generation)
        little = [int.from_bytes(key[at:end], "little") for at, end in ((0, 4), (4, 8), (8, 9), (9, 11), (11, 13))]
        fields = dict(zip(("source", "destination", "protocol", "source_port", "destination_port"), little))
        dut.write_bucket_i.value, dut.write_way_i.value = bucket, way
        dut.write_entry_i.value = SECTION_POLICY.pack(valid=1, action=action, generation=generation, row=row, **fields)
        dut.write_i.value = 1
        await RisingEdge(dut.clk_i)
        dut.write_i.value = 0

    def wants(self, frame):
        """Type of unit, and the row with its generation; a malformed frame wants nobody."""
        action, sa = self.entries.get(model.selectors(frame), (model.DISCARD, None))
        return {model.PROTECT: model.MAIN, model.BYPASS: model.PASS}.get(action, NOBODY), sa


def frame_of(flow, length, source, **other):
    protocol = (17, 6, 1, 47)[flow % 4]
    return model.packet(length, source=f"10.1.{flow}.1", protocol=protocol, ports=(100 + flow, 53), body=source.randbytes(length), **other)


def make(source, table, length=None):
    flow, port = source.randrange(FLOWS + 2), source.getrandbits(4)
    length = length or source.choice((20, 22, 23, 24, 31, 32, 33, source.randrange(24, 200)))
    frame, bad = bytearray(frame_of(flow, length, source, flags=source.choice((0, 0, 0x4000, 0x2000, 0x0007)))), source.random() < 0.2
    if bad:
        at, value = source.choice(((0, 0x65), (0, 0x46), (3, frame[3] ^ 1), (8, 1), (10, frame[10] ^ 4)))
        if at == 8:
            frame = bytearray(frame_of(flow, length, source, ttl=1))
        frame[at] = value
    frame = bytes(frame)
    unit, sa = (NOBODY, None) if bad else table.wants(frame)
    return frame, FRAME_HEAD.pack(port=port, bytes=length), (frame, (port, unit, sa, length))


async def check(dut, packets, idle=0.0, back_pressure=0.0):
    """The SA of a frame that goes nowhere means nothing."""
    source, sink = section_unit.connect(dut, idle, back_pressure)
    for frame, user, _ in packets:
        source.queue.extend((beat, user) for beat in section_unit.beats(frame))
    await section_unit.until(dut.clk_i, lambda: len(sink.frames) == len(packets), 20000)
    for (got, user), (_, _, (frame, (port, unit, sa, length))) in zip(sink.frames, packets):
        head = POLICY_HEAD.unpack(user)
        assert got == frame and (head.port, head.sad, head.bytes) == (port, unit, length), (frame.hex(), head, unit)
        assert unit == NOBODY or (head.row, head.generation) == sa
    source.stop()
    sink.stop()


async def filled(dut, source):
    table = Table()
    while dut.write_ready_o.value == 0:  # the table empties itself after reset
        await RisingEdge(dut.clk_i)
    for flow in range(FLOWS):
        # Later fragments, and ICMP, have ports of 0.
        for key in {model.selectors(frame_of(flow, 40, source)), model.selectors(frame_of(flow, 40, source, flags=7))}:
            if flow % 4 == 2:
                key = key[:9] + bytes(4)
            await table.enter(dut, key, source.randrange(3), source.getrandbits(10), source.getrandbits(7))
    return table


@cocotb.test()
async def idle_cycles_back_pressure_and_resets(dut):
    dut.write_i.value = dut.s_valid_i.value = 0
    await bench.start(dut)
    source = random.Random(1)
    table = await filled(dut, source)
    for idle, back_pressure in ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.85)):
        await check(dut, [make(source, table) for _ in range(40)], idle, back_pressure)
    for cut in (1, 2, 3, 5):
        frames, sink = section_unit.connect(dut)
        frame, user, _ = make(source, table, 100)
        frames.queue.extend([(beat, user) for beat in section_unit.beats(frame)][:cut])
        for _ in range(40):
            await RisingEdge(dut.clk_i)
        frames.stop()
        sink.stop()
        await bench.reset(dut)
        table = await filled(dut, source)
        await check(dut, [make(source, table) for _ in range(10)], 0.1, 0.1)


def test_section_policy():
    bench.run("section_policy")
