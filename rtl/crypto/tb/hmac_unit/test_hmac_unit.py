"""hmac_unit against the hmac module and the vectors."""

import hmac
import json
import random
from types import SimpleNamespace

import bench
import cocotb
import streams
from hmac_states import hmac_states


class Command:
    """Both states of a command as one word for a source."""

    def __init__(self, dut):
        self.dut = dut

    @property
    def value(self):
        return None

    @value.setter
    def value(self, states):
        self.dut.inner_i.value, self.dut.outer_i.value = states


def connect(dut, idle=0, back_pressure=0):
    clk = dut.clk_i
    return SimpleNamespace(
        cmd=streams.Source(clk, dut.cmd_valid_i, dut.cmd_ready_o, Command(dut), bench.pauses(idle, 1)),
        msg=streams.Source(clk, dut.msg_valid_i, dut.msg_ready_o, dut.msg_i, bench.pauses(idle, 2)),
        icv=streams.Sink(clk, dut.icv_valid_o, dut.icv_ready_i, dut.icv_o, bench.pauses(back_pressure, 3)),
    )


def disconnect(ends):
    for end in vars(ends).values():
        end.stop()


def is_sha1(dut):
    return len(dut.icv_o) == 160


def expected(dut, messages):
    function = "sha1" if is_sha1(dut) else "sha256"
    return [int.from_bytes(hmac.digest(key, message, function), "big") for key, message in messages]


async def icvs(dut, messages, idle=0, back_pressure=0):
    """The ICVs of (key, message), and the cycles in which they came."""
    ends = connect(dut, idle, back_pressure)
    for key, message in messages:
        ends.cmd.queue.append(hmac_states(key, is_sha1(dut)))
        ends.msg.frame(message)
    blocks = sum(len(message) // 64 + 3 for _, message in messages)
    await streams.until(dut.clk_i, lambda: len(ends.icv.words) == len(messages), 200 + 200 * blocks)
    disconnect(ends)
    return list(ends.icv.words), list(ends.icv.cycles)


def random_messages(lengths, seed=1):
    source = random.Random(seed)
    return [(source.randbytes(source.choice((16, 20, 32, 64))), source.randbytes(length)) for length in lengths]


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    messages = random_messages([*range(4, 204, 4), 1, 15, 55, 56, 57, 63, 65, 119, 121, 1516])
    results, _ = await icvs(dut, messages)
    assert results == expected(dut, messages)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    source = random.Random(2)
    for idle, back_pressure in ((0.8, 0), (0, 0.99), (0.6, 0.8)):
        messages = random_messages([source.randrange(1, 200) for _ in range(15)], seed=idle)
        results, _ = await icvs(dut, messages, idle, back_pressure)
        assert results == expected(dut, messages)


@cocotb.test()
async def vectors(dut):
    await bench.start(dut)
    files = ["rfc2202-hmac-sha1", "wycheproof-hmac-sha1"] if is_sha1(dut) else ["rfc4231-hmac-sha256", "wycheproof-hmac-sha256"]
    cases = [case for file in files for case in json.loads((bench.VECTORS / "primitives" / f"{file}.json").read_text())["cases"]]
    cases = [case for case in cases if case["input"]]
    assert len(cases) > 20
    results, _ = await icvs(dut, [(bytes.fromhex(case["key"]), bytes.fromhex(case["input"])) for case in cases])
    for case, result in zip(cases, results):
        icv = bytes.fromhex(case["icv"])
        right = result.to_bytes(len(dut.icv_o) // 8, "big")[: len(icv)] == icv
        assert right == case.get("valid", True), case["name"]


@cocotb.test()
async def rate(dut):
    """Packets behind one another: the blocks of the message and one for the outer hash, and what the unit loses."""
    await bench.start(dut)
    cycles, lost = (40, 14) if is_sha1(dut) else (33, 13)
    for length in (96, 264, 1528):
        _, came = await icvs(dut, random_messages([length] * 5))
        blocks = (length + 9 + 63) // 64 + 1
        assert {later - earlier for earlier, later in zip(came[1:], came[2:])} == {blocks * cycles + lost}


@cocotb.test()
async def reset_in_the_middle(dut):
    await bench.start(dut)
    messages = random_messages([100, 40, 300])
    for cycles in (3, 20, 55, 90, 133, 170, 180, 250):
        ends = connect(dut)
        for key, message in messages:
            ends.cmd.queue.append(hmac_states(key, is_sha1(dut)))
            ends.msg.frame(message)
        await bench.ClockCycles(dut.clk_i, cycles)
        disconnect(ends)
        await bench.reset(dut)
        results, _ = await icvs(dut, messages[:2])
        assert results == expected(dut, messages[:2])


@bench.parameter_sets("sha1", (0, 1))
def test_hmac_unit(sha1):
    bench.run("hmac_unit", {"Sha1": sha1})
