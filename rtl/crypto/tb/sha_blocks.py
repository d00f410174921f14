"""Drives sha1_core and sha256_core: the blocks of messages in, the hash of each out."""

import random

import bench
from cocotb.triggers import RisingEdge, Timer


def padded(message, before=0):
    """The message with its padding; `before` bytes were hashed already."""
    zeros = -(len(message) + 9) % 64
    return message + b"\x80" + bytes(zeros) + (8 * (before + len(message))).to_bytes(8, "big")


def state(initial):
    return int.from_bytes(b"".join(word.to_bytes(4, "big") for word in initial), "big")


async def hashes(dut, messages, idle=0, limit=None):
    """Hashes (state, padded bytes) one after another; returns the results and the cycles taken. With `limit`, stops
    after that many cycles."""
    blocks = []
    for initial, data in messages:
        for at in range(0, len(data), 64):
            words = [int.from_bytes(data[at + 8 * pair:at + 8 * pair + 8], "big") for pair in range(8)]
            blocks.append((initial, words, at + 64 == len(data)))
    results, cycles, place, idle = [], 0, 0, bench.pauses(idle)
    offered = False
    while len(results) < len(messages) and cycles != limit:
        assert cycles < 200 + 60 * (len(blocks) + 1) * 4, "stuck"
        offered = offered or (place < len(blocks) and not next(idle))
        dut.valid_i.value = offered
        if offered:
            initial, words, last = blocks[place]
            dut.last_i.value = last
            dut.state_i.value = initial
        await Timer(1, "ns")
        if offered:
            dut.words_i.value = words[int(dut.index_o.value)]
            if dut.ready_o.value == 1:
                place, offered = place + 1, False
        if dut.valid_o.value == 1:
            results.append(int(dut.state_o.value))
        await RisingEdge(dut.clk_i)
        cycles += 1
    dut.valid_i.value = 0
    return results, cycles


def whole_messages(initial, function, count, longest, seed=3):
    """Random messages from the standard initial value, and their hashes."""
    source = random.Random(seed)
    lengths = [0, 1, 55, 56, 63, 64, 119, 120, *(source.randrange(longest) for _ in range(count))]
    messages = [source.randbytes(length) for length in lengths]
    return (
        [(initial, padded(message)) for message in messages],
        [int.from_bytes(function(message).digest(), "big") for message in messages],
    )


async def in_two_parts(dut, initial, function):
    """A message may start from any state: each is hashed up to a block boundary, then from there."""
    source = random.Random(5)
    messages = [source.randbytes(source.randrange(64, 400)) for _ in range(20)]
    cuts = [64 * source.randrange(1, len(message) // 64 + 1) for message in messages]
    states, _ = await hashes(dut, [(initial, message[:cut]) for message, cut in zip(messages, cuts)])
    rest = [(begun, padded(message[cut:], cut)) for begun, message, cut in zip(states, messages, cuts)]
    results, _ = await hashes(dut, rest, idle=0.3)
    assert results == [int.from_bytes(function(message).digest(), "big") for message in messages]


async def cycles_a_block(dut, initial):
    """How much longer a message takes for each block more."""
    _, few = await hashes(dut, [(initial, bytes(64 * 3))])
    _, many = await hashes(dut, [(initial, bytes(64 * 13))])
    return (many - few) / 10
