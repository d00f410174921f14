"""aes_sbox_rom: both ports' bytes as FIPS 197, 5.1.1 makes them, a cycle or two later."""

import random

import bench
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge, Timer


def multiply(a, b):
    product = 0
    for _ in range(8):
        product ^= a * (b & 1)
        a, b = a << 1 ^ (0x11B if a & 0x80 else 0), b >> 1
    return product


def substitute(byte):
    """The inverse (0 for 0), then the affine transformation."""
    inverse = next((x for x in range(256) if multiply(byte, x) == 1), 0)
    turned = inverse << 8 | inverse
    return (inverse ^ turned >> 4 ^ turned >> 5 ^ turned >> 6 ^ turned >> 7 ^ 0x63) & 0xFF


@cocotb.test()
async def every_byte(dut):
    cocotb.start_soon(Clock(dut.clk_i, 10, unit="ns").start())
    latency, inside = 1 + int(dut.OutputRegister.value), []
    for a, b in zip(range(256), random.Random(1).sample(range(256), 256)):
        dut.a_i.value, dut.b_i.value = a, b
        inside.append((substitute(a), substitute(b)))
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        if len(inside) >= latency:
            assert (int(dut.a_o.value), int(dut.b_o.value)) == inside[-latency]
        await Timer(1, "ns")


@bench.parameter_sets("register", (0, 1))
def test_aes_sbox_rom(register):
    bench.run("aes_sbox_rom", {"OutputRegister": register})
