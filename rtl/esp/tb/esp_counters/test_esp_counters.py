"""esp_counters: packets by reason and bytes, read while they count; nothing is left of them after a reset."""

import random

import bench
import cocotb
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge, Timer

BYTES_LOW, BYTES_HIGH = 32, 33


class Model:
    def __init__(self, dut):
        self.dut, self.packets, self.bytes = dut, [0] * 32, 0

    async def step(self, packet=None, read=None):
        """A cycle with the end of a packet (reason, bytes), and a word read; returns the word."""
        dut = self.dut
        dut.valid_i.value, dut.read_i.value = packet is not None, read is not None
        dut.reason_i.value, dut.bytes_i.value = packet or (random.randrange(32), random.getrandbits(16))
        dut.address_i.value = random.randrange(34) if read is None else read
        wanted = self.word(read)
        if packet:
            self.packets[packet[0]] += 1
            self.bytes += packet[1] * (packet[0] == 0)
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        found = int(dut.data_o.value)
        assert read is None or found == wanted, f"word {read}"
        await Timer(1, "ns")

    def word(self, address):
        if address == BYTES_LOW:
            self.high = self.bytes >> 32
            return self.bytes & 0xFFFFFFFF
        # The high half is that of the moment in which the low one was read.
        return self.high if address == BYTES_HIGH else None if address is None else self.packets[address]


async def count(dut, source, cycles):
    model = Model(dut)
    await ClockCycles(dut.clk_i, 32)
    await Timer(1, "ns")
    for _ in range(cycles):
        packet = source.choice((0, 0, 0, source.randrange(32))), source.choice((65535, source.getrandbits(16)))
        await model.step(packet if source.random() < 0.7 else None, source.randrange(32) if source.random() < 0.3 else None)
    for address in (*range(32), BYTES_LOW):
        await model.step(None, address)
    await model.step((0, 65535))
    await model.step(None, BYTES_HIGH)
    return model


@cocotb.test()
async def counts(dut):
    dut.valid_i.value = dut.read_i.value = 0
    await bench.start(dut)
    await count(dut, random.Random(1), 3000)


@cocotb.test()
async def resets(dut):
    dut.valid_i.value = dut.read_i.value = 0
    await bench.start(dut)
    for cycles in (1, 50, 200):
        await count(dut, random.Random(cycles), cycles)
        # A packet that ends while the memory is cleared is not counted.
        await bench.reset(dut)
        dut.valid_i.value, dut.reason_i.value = 1, 3
        await ClockCycles(dut.clk_i, 5)
        dut.valid_i.value = 0


@cocotb.test()
async def carries_into_the_high_half(dut):
    dut.valid_i.value = dut.read_i.value = 0
    await bench.start(dut)
    model = Model(dut)
    await ClockCycles(dut.clk_i, 32)
    await Timer(1, "ns")
    for _ in range((1 << 32) // 65535):
        dut.valid_i.value, dut.reason_i.value, dut.bytes_i.value = 1, 0, 65535
        model.packets[0] += 1
        model.bytes += 65535
        await RisingEdge(dut.clk_i)
    await Timer(1, "ns")
    assert model.bytes == (1 << 32) - 1
    await model.step(None, BYTES_LOW)
    await model.step((0, 100))
    await model.step()  # the high half that is read next is still the one before
    for address in (BYTES_HIGH, 0, BYTES_LOW, BYTES_HIGH):
        await model.step(None, address)


def test_esp_counters():
    bench.run("esp_counters")
