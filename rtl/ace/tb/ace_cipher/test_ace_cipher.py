"""The five AES finalists behind ace_port: known answers, and traffic against Crypto++ (or the model where it is missing)."""

import json
import os
import random
import sys
from collections import deque
from pathlib import Path

import bench
import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

sys.path.insert(0, str(bench.VECTORS))
import ace_ciphers  # noqa: E402
import ace_oracle  # noqa: E402

LENGTHS = (16, 24, 32)
ORACLE = os.environ.get("ACE_ORACLE") == "1" and ace_oracle.load(bench.BUILD)

# Cycles by variant and key length, as docs/ace-cores.md has them.
#   block: from a block taken by an idle core to its result; rate: from result to result with the ring full
#   encrypt, decrypt: from the key to the first round of a block that waits for it; expand: to the next key
CYCLES_FILE = Path(__file__).with_name("cycles.json")
CYCLES = json.loads(CYCLES_FILE.read_text())


def name_of(dut):
    return ace_ciphers.NAMES[int(dut.Algorithm.value)]


def lengths_of(dut):
    return LENGTHS if int(dut.LongKeys.value) else LENGTHS[:1]


def directions_of(dut):
    return (True, False) if int(dut.Decrypts.value) else (True,)


def expected(name, key, block, encrypt):
    if ORACLE:
        return ORACLE(name, key, block, encrypt)
    return (ace_ciphers.encrypt if encrypt else ace_ciphers.decrypt)(name, key, block)


class Run:
    """Keys and blocks that are offered, and what came of them.

    `items` are keys, ("key", bytes), and blocks, ("block", bytes, encrypt). If `ordered`, each is offered when those in
    front of it were taken. Otherwise keys and blocks are offered side by side. Results are held against the oracle with
    the newest key.
    """

    key = None  # the newest that was taken, in this run or one before

    def __init__(self, dut, items, ordered=True, idle=0, back_pressure=0, seed=1):
        self.dut, self.ordered, self.name = dut, ordered, name_of(dut)
        self.lines = [deque(items)] if ordered else [deque(i for i in items if i[0] == kind) for kind in ("key", "block")]
        self.blocks = sum(item[0] == "block" for item in items)
        self.idle = bench.pauses(idle, seed)
        self.back_pressure = bench.pauses(back_pressure, seed + 1)
        self.tags = random.Random(seed + 2)
        self.offered = {"key": None, "block": None}
        self.due, self.results = deque(), []
        self.taken = {"key": [], "block": []}  # cycles
        self.given, self.trace, self.cycle = [], [], 0

    def offer(self):
        dut = self.dut
        for line in self.lines:
            if line and self.offered[line[0][0]] is None and not next(self.idle):
                if self.ordered and any(self.offered.values()):
                    continue
                item = line.popleft()
                self.offered[item[0]] = item
                if item[0] == "key":
                    dut.key_i.value = int.from_bytes(item[1].ljust(32, b"\xa5"), "big")
                    dut.key_bits_i.value = LENGTHS.index(len(item[1]))
                else:
                    self.tag = self.tags.randrange(256)
                    dut.block_i.value = int.from_bytes(item[1], "big")
                    dut.encrypt_i.value = item[2]
                    dut.tag_i.value = self.tag
        dut.key_valid_i.value = self.offered["key"] is not None
        dut.block_valid_i.value = self.offered["block"] is not None
        self.ready = not next(self.back_pressure)
        dut.out_ready_i.value = self.ready

    def sample(self):
        dut = self.dut
        handshakes = (int(dut.key_ready_o.value), int(dut.block_ready_o.value), int(dut.out_valid_o.value))
        self.trace.append(handshakes)
        key_ready, block_ready, out_valid = handshakes
        if out_valid and self.ready:
            block, tag = self.due.popleft()
            got = int(dut.block_o.value).to_bytes(16, "big")
            assert got == block and int(dut.tag_o.value) == tag, (self.name, len(self.given), got.hex(), block.hex())
            self.results.append(got)
            self.given.append(self.cycle)
        if block_ready and self.offered["block"]:
            _, block, encrypt = self.offered["block"]
            self.due.append((expected(self.name, self.key, block, encrypt), self.tag))
            self.taken["block"].append(self.cycle)
            self.offered["block"] = None
        # A key that comes with a block is for the next one.
        if key_ready and self.offered["key"]:
            Run.key = self.offered["key"][1]
            self.taken["key"].append(self.cycle)
            self.offered["key"] = None
        self.cycle += 1

    async def step(self):
        self.offer()
        await ReadOnly()
        self.sample()
        await RisingEdge(self.dut.clk_i)

    async def all(self, limit=None):
        bound = 2000 + 1500 * (self.blocks + sum(map(len, self.lines)))
        while (any(self.lines) or any(self.offered.values()) or self.due) and self.cycle != limit:
            assert self.cycle < bound, "stuck"
            await self.step()
        self.dut.key_valid_i.value = 0
        self.dut.block_valid_i.value = 0
        return self


async def start(dut):
    """After reset the memories are wiped."""
    for name in ("key_valid_i", "block_valid_i", "out_ready_i", "wipe_i"):
        getattr(dut, name).value = 0
    await bench.start(dut)


def traffic(dut, seed, blocks, keys):
    """Random keys and blocks, with a key in front and the others anywhere between the blocks."""
    source = random.Random(seed)
    items = [("block", source.randbytes(16), source.choice(directions_of(dut))) for _ in range(blocks)]
    for _ in range(keys - 1):
        items.insert(source.randrange(blocks), ("key", source.randbytes(source.choice(lengths_of(dut)))))
    return [("key", source.randbytes(source.choice(lengths_of(dut)))), *items]


@cocotb.test()
async def known_answers(dut):
    """Every case; decrypted again where the core decrypts."""
    await start(dut)
    cases = json.loads((bench.VECTORS / "ace" / f"{name_of(dut)}.json").read_text())["cases"]
    # A core of the long build sees them all, the short one only published ones.
    everything = len(lengths_of(dut)) > 1
    items, answers, last = [], [], None
    for case in cases:
        key, text, cipher = (bytes.fromhex(case[field]) for field in ("key", "input", "output"))
        if len(key) not in lengths_of(dut) or "chain" in case or not (everything or "source" in case):
            continue
        if key != last:
            items.append(("key", key))
            last = key
        for encrypt in directions_of(dut):
            items.append(("block", text if encrypt else cipher, encrypt))
            answers.append(cipher if encrypt else text)
    assert len(answers) >= 2
    assert (await Run(dut, items).all()).results == answers


@cocotb.test()
async def chains(dut):
    """A short Monte Carlo: each result is the next block."""
    await start(dut)
    for case in json.loads((bench.VECTORS / "ace" / f"{name_of(dut)}.json").read_text())["cases"]:
        key = bytes.fromhex(case["key"])
        if "chain" not in case or len(key) not in lengths_of(dut):
            continue
        for encrypt in directions_of(dut):
            first, last = (bytes.fromhex(case[field]) for field in (("input", "output") if encrypt else ("output", "input")))
            await Run(dut, [("key", key)]).all()
            block = first
            for _ in range(case["chain"]):
                [block] = (await Run(dut, [("block", block, encrypt)]).all()).results
            assert block == last


@cocotb.test()
async def random_traffic(dut):
    await start(dut)
    for seed, idle, back_pressure in ((1, 0, 0), (2, 0.6, 0), (3, 0, 0.9), (4, 0.5, 0.5)):
        for ordered in (True, False):
            await Run(dut, traffic(dut, seed, 40, 6), ordered, idle, back_pressure, seed).all()


@cocotb.test()
async def key_with_a_block(dut):
    """A key and a block are taken in the same cycle: the block is under the former key, the next one under the new."""
    await start(dut)
    source = random.Random(5)
    keys = [source.randbytes(lengths_of(dut)[-1]) for _ in range(3)]
    block = ("block", source.randbytes(16), True)
    await Run(dut, [("key", keys[0]), block]).all()
    for former, key in zip(keys, keys[1:]):
        run = await Run(dut, [("key", key), block], ordered=False).all()
        assert run.taken["key"] == run.taken["block"]
        assert run.results == [expected(run.name, former, block[1], True)]
        await Run(dut, [block]).all()


@cocotb.test()
async def reset_in_the_middle(dut):
    await start(dut)
    for cycles in (1, 5, 70, 90, 131, 222, 350):
        run = Run(dut, traffic(dut, cycles, 30, 3))
        await run.all(limit=cycles)
        await bench.reset(dut)
        await Run(dut, traffic(dut, cycles + 1, 4, 2)).all()


def registers(dut):
    """Every flip-flop and memory inside, by path."""
    found = {}

    def walk(handle):
        for child in handle:
            kind = type(child).__name__
            if kind in ("HierarchyObject", "HierarchyArrayObject"):
                walk(child)
            elif child._name.endswith("_q"):
                found[child._path] = child

    walk(dut)
    return found


def value(handle):
    return str(handle.value)


@cocotb.test()
async def wipe(dut):
    """Nothing is taken or given while it wipes, nothing of former blocks comes, and no register remembers key or block."""
    await start(dut)
    names, states = None, []
    for seed, after in ((1, 3), (2, 40), (3, 75), (4, 150), (5, 700)):
        run = Run(dut, traffic(dut, seed, 60, 4), back_pressure=0.7)
        await run.all(limit=after)
        dut.wipe_i.value = 1
        dut.key_valid_i.value = dut.block_valid_i.value = dut.out_ready_i.value = 1
        cycles = 0
        while True:
            await ReadOnly()
            assert dut.block_ready_o.value == 0 and dut.out_valid_o.value == 0
            if dut.key_ready_o.value == 1:
                break
            await RisingEdge(dut.clk_i)
            dut.wipe_i.value = 0
            # The key that is offered must not be taken, so that what is inside can be looked at.
            dut.key_valid_i.value = cycles < 40
            cycles += 1
        assert cycles == 1 + max(64, int(dut.u_port.Depth.value))
        await RisingEdge(dut.clk_i)
        dut.block_valid_i.value = 0
        for _ in range(20):
            await RisingEdge(dut.clk_i)
            assert dut.out_valid_o.value == 0
        names = names or registers(dut)
        assert len(names) > 20
        states.append({path: value(handle) for path, handle in names.items()})
        differ = [path for path in names if states[0][path] != states[-1][path]]
        assert not differ, differ
        await Run(dut, traffic(dut, seed + 10, 3, 1)).all()


@cocotb.test()
async def no_cycle_depends_on_secrets(dut):
    """The same course with other keys and blocks, some of them extreme, takes the same cycles."""
    await start(dut)
    shape = traffic(dut, 7, 24, 5)
    traces = []
    for seed in range(8):
        source = random.Random(seed)
        fill = {2: lambda n: bytes(n), 3: lambda n: bytes(n), 4: lambda n: b"\xff" * n}.get(seed, source.randbytes)
        items = [(item[0], fill(len(item[1])), *item[2:]) for item in shape]
        run = await Run(dut, items, ordered=seed % 2 == 0, idle=0.3, back_pressure=0.4, seed=3).all()
        traces.append(run.trace)
        for _ in range(300):  # the last key is expanded
            await RisingEdge(dut.clk_i)
    # The first two begin without a key of the same length.
    assert traces[2] == traces[4] == traces[6]
    assert traces[3] == traces[5] == traces[7]


async def measured(dut):
    """The counts of CYCLES."""
    name, source = name_of(dut), random.Random(11)
    found = {}
    for length in lengths_of(dut):
        key = source.randbytes(length)

        def block(encrypt=True):
            return "block", source.randbytes(16), encrypt

        await Run(dut, [("key", key)]).all()
        for _ in range(600):
            await RisingEdge(dut.clk_i)
        alone = await Run(dut, [block()]).all()
        many = await Run(dut, [block() for _ in range(140)]).all()
        last = many.given[-97:]  # a multiple of the stages of every ring
        entry = {"block": alone.given[0] - alone.taken["block"][0], "rate": (last[-1] - last[0]) / 96}
        # With the block there as soon as it can be taken: its result comes so much later because of the key.
        for encrypt in directions_of(dut):
            run = await Run(dut, [("key", source.randbytes(length)), block(encrypt)]).all()
            # The block enters the ring one cycle after it was taken, if it has not to wait.
            entry["encrypt" if encrypt else "decrypt"] = run.given[0] - run.taken["key"][0] - (entry["block"] - 1)
            for _ in range(600):
                await RisingEdge(dut.clk_i)
        run = await Run(dut, [("key", source.randbytes(length)), ("key", source.randbytes(length))]).all()
        entry["expand"] = run.taken["key"][1] - run.taken["key"][0]
        found[str(8 * length)] = entry
        dut._log.info("%s, %d bits: %s", name, 8 * length, json.dumps(entry))
    return found


@cocotb.test()
async def cycles(dut):
    await start(dut)
    found = await measured(dut)
    variant = os.environ["ACE_VARIANT"]
    if os.environ.get("ACE_WRITE"):
        # RTL_ACE_WRITE=1 rtl/run test -n0 -k ace_cipher writes the file again.
        CYCLES[variant] = found
        CYCLES_FILE.write_text(json.dumps(CYCLES, indent=1, sort_keys=True) + "\n")
    assert found == CYCLES[variant]


SHORT = {"Decrypts": 0, "LongKeys": 0}
VARIANTS = [(name, {}) for name in ace_ciphers.NAMES]
VARIANTS += [("rijndael", SHORT | {"Unroll": 10}), ("serpent", SHORT | {"Unroll": 32})]
# Those of RC6 and MARS take the cycles of the long ones; they are tested in the lane, whose keys are short there.
VARIANTS += [("twofish", SHORT)]


def variant_of(name, parameters):
    return "-".join([name, *(f"{key}{value}" for key, value in sorted(parameters.items()))])


@bench.parameter_sets(("name", "parameters"), VARIANTS, always=len(ace_ciphers.NAMES), ids=[variant_of(*variant) for variant in VARIANTS])
def test_ace_cipher(name, parameters):
    oracle = ace_oracle.load(bench.BUILD) is not None
    variant = variant_of(name, parameters)
    bench.run(
        "ace_cipher", {"Algorithm": ace_ciphers.NAMES.index(name), **parameters}, {"*": ["*_q"], "ace_port": ["Depth"]},
        ACE_ORACLE=int(oracle), ACE_VARIANT=variant, ACE_WRITE=os.environ.get("RTL_ACE_WRITE", ""),
    )  # fmt: skip


def test_ace_vectors():
    """The files, and the model that made them, against Crypto++."""
    import generate_ace

    oracle = ace_oracle.load(bench.BUILD)
    if oracle is None:
        pytest.skip("no Crypto++")
    generate_ace.check(oracle)
