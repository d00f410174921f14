"""order_keeper: a unit's turn comes in the order of its class, classes do not wait for each other."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

UNITS, CLASSES = 5, 2
CLASS = (0, 1, 0, 1, 0)


@cocotb.test()
async def turns(dut):
    source = random.Random(1)
    dut.class_i.value = sum(c << unit for unit, c in enumerate(CLASS))
    dut.sent_valid_i.value = dut.taken_i.value = 0
    await bench.start(dut)
    for busy in (0.9, 0.3):
        order = [deque() for _ in range(CLASSES)]
        full, room = 0, True
        for cycle in range(600):
            if cycle == 300:
                await bench.reset(dut)
                order, room = [deque() for _ in range(CLASSES)], True
            # A unit may be sent to that there was room for before.
            sent = room and source.random() < busy
            unit = source.randrange(UNITS)
            dut.sent_valid_i.value, dut.sent_unit_i.value, dut.taken_i.value = sent, unit, 0
            await ReadOnly()
            turn = int(dut.turn_o.value)
            assert turn == sum(1 << queue[0] for queue in order if queue)
            room = dut.sent_ready_o.value == 1
            assert room == all(len(queue) <= 6 for queue in order)
            full += not room
            await RisingEdge(dut.clk_i)
            if sent:
                order[CLASS[unit]].append(unit)
            # Taken in a cycle of its own, so that it is of the turn just seen.
            candidates = [u for u in range(UNITS) if turn >> u & 1 and source.random() < 0.6]
            dut.sent_valid_i.value = 0
            dut.taken_i.value = 1 << candidates[0] if candidates else 0
            await RisingEdge(dut.clk_i)
            if candidates:
                assert order[CLASS[candidates[0]]].popleft() == candidates[0]
        assert full if busy > 0.5 else True
        dut.taken_i.value = 0
        await bench.reset(dut)


def test_order_keeper():
    bench.run("order_keeper", {"Units": UNITS, "Classes": CLASSES, "Depth": 8})
