"""ghash against the authentication tag of AES-GCM over additional data alone, which is GHASH and one encrypted block."""

import random

import bench
import cocotb
import gcm
from cocotb.triggers import ReadOnly, RisingEdge
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def message(source, blocks):
    """Powers of H, blocks of the message with the length block, hash."""
    key, nonce, data = source.randbytes(source.choice((16, 32))), source.randbytes(12), source.randbytes(16 * (blocks - 1))
    tag = AESGCM(key).encrypt(nonce, b"", data)
    mask = gcm.encrypt_block(key, nonce + b"\0\0\0\1")
    chunks = [data[i : i + 16] for i in range(0, len(data), 16)] + [(len(data) * 8).to_bytes(8) + bytes(8)]
    return gcm.powers(key, 4), chunks, int.from_bytes(tag) ^ int.from_bytes(mask)


class Driver:
    def __init__(self, dut):
        self.dut, self.expected, self.cycle = dut, {}, 0
        self.stages = int(dut.Stages.value)

    async def step(self, load=None, block=None, first=0, left=0):
        dut = self.dut
        dut.load_i.value = load is not None
        # Powers are looked at with load_i only, blocks with valid_i.
        for i, power in enumerate((load or [random.getrandbits(128) for _ in range(4)])[: self.stages]):
            dut.powers_i[i].value = power
        dut.valid_i.value = block is not None
        dut.block_i.value = int.from_bytes(block or random.randbytes(16))
        dut.first_i.value = first if block else random.getrandbits(1)
        dut.left_i.value = min(left, self.stages) if block else random.randrange(self.stages + 1)
        await ReadOnly()
        expected = self.expected.pop(self.cycle, None)
        assert dut.valid_o.value == (expected is not None)
        if expected is not None:
            assert int(dut.hash_o.value) == expected
        await RisingEdge(dut.clk_i)
        self.cycle += 1

    async def send(self, powers, chunks, value, idle, upto=None):
        """The powers are loaded in the cycle before the first block, which is the cycle of the last block of the message before."""
        pause = bench.pauses(idle, self.cycle)
        for index, chunk in enumerate(chunks[:upto]):
            while index and next(pause):
                for _ in range(self.stages):
                    await self.step()
            left = len(chunks) - 1 - index
            await self.step(self.following if left == 0 else None, chunk, index == 0, left)
        if upto is None:
            self.expected[self.cycle - 1 + self.stages + 2] = value

    async def messages(self, source, count, idle, gap=(0,)):
        made = [message(source, source.choice((2, 3, 3, 4, 5, 6, 20))) for _ in range(count)]
        await self.step(load=made[0][0])
        for index, one in enumerate(made):
            self.following = made[index + 1][0] if index + 1 < count else None
            await self.send(*one, idle)
            for _ in range(source.choice(gap)):
                await self.step()
        for _ in range(8):
            await self.step()
        assert not self.expected


@cocotb.test()
async def back_to_back(dut):
    await bench.start(dut)
    await Driver(dut).messages(random.Random(1), 40, 0)


@cocotb.test()
async def idle_cycles(dut):
    await bench.start(dut)
    await Driver(dut).messages(random.Random(2), 40, 0.3, (0, 1, 2, 7))


@cocotb.test()
async def reset_in_mid_message(dut):
    source = random.Random(3)
    await bench.start(dut)
    for upto in (1, 2, 3, 5, 6):
        driver = Driver(dut)
        powers, chunks, value = message(source, 6)
        await driver.step(load=powers)
        driver.following = None
        await driver.send(powers, chunks, value, 0, upto)
        await bench.reset(dut)
        await Driver(dut).messages(source, 4, 0)


@bench.parameter_sets("stages,leaf", ((2, 32), (3, 32), (3, 8), (4, 8)))
def test_ghash(stages, leaf):
    bench.run("ghash", {"Stages": stages, "Leaf": leaf})
