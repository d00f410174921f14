"""packet_switch: every packet comes out once, whole, at an output of its type; those of one input and one type are sent in
their order."""

import random
from collections import deque

import bench
import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

NOBODY = 3  # a type that no output has


class Harness:
    """Drives all ports cycle by cycle and keeps the model: what is expected of each input and type."""

    def __init__(self, dut, seed, idle=0.0, back_pressure=0.0, busy=0.0, turn=1.0, types=(0, 1, 2), lengths=(1, 9)):
        self.dut, self.random = dut, random.Random(seed)
        self.inputs, self.outputs = int(dut.Inputs.value), int(dut.Outputs.value)
        self.out_types = [m % 3 for m in range(self.outputs)]
        self.types, self.lengths = types, lengths
        self.idle = [bench.pauses(idle, seed + i) for i in range(self.inputs)]
        self.pressure = [bench.pauses(back_pressure, seed + 50 + m) for m in range(self.outputs)]
        self.busy = [bench.pauses(busy, seed + 90 + m) for m in range(self.outputs)]
        self.turns = bench.pauses(1 - turn, seed + 7)
        self.clear()

    def clear(self):
        self.sending = [deque() for _ in range(self.inputs)]  # beats: (data, keep, last, user, type)
        self.receiving = [[] for _ in range(self.outputs)]
        self.expected = {}  # (input, type) -> packets in their order
        self.connected, self.came = [], [deque() for _ in range(self.outputs)]
        self.offered, self.registered, self.arrived, self.dropped = 0, 0, 0, 0
        self.expect_dropped = 0
        self.stalled = [False] * self.inputs
        self.turn = 0

    def offer(self, source):
        type_ = self.random.choice(self.types)
        beats = self.random.randint(*self.lengths)
        user = (self.offered << 4 | source) & 0xFFFF
        keep = (1 << self.random.randint(1, 16)) - 1
        packet = [(self.random.getrandbits(128), keep if b == beats - 1 else 0xFFFF) for b in range(beats)]
        for b, (data, keep) in enumerate(packet):
            # Header and type count with the first beat only.
            other = self.random.getrandbits(16)
            self.sending[source].append((data, keep, b == beats - 1, other if b else user, self.random.randrange(4) if b else type_))
        if type_ == NOBODY:
            self.expect_dropped += 1
        else:
            self.expected.setdefault((source, type_), deque()).append((user, packet))
        self.offered += 1

    def drive(self):
        dut, pack = self.dut, lambda values, width: sum(v << width * i for i, v in enumerate(values))
        heads = []
        for i in range(self.inputs):
            if self.sending[i] and (self.stalled[i] or not next(self.idle[i])):
                heads.append(self.sending[i][0])
                self.stalled[i] = True
            else:
                heads.append(None)
        beats = [h and h[0] << 17 | h[1] << 1 | h[2] or 0 for h in heads]
        dut.s_valid_i.value = pack([h is not None for h in heads], 1)
        dut.s_beat_i.value = pack(beats, 145)
        dut.s_user_i.value = pack([h[3] if h else 0 for h in heads], 16)
        dut.s_type_i.value = pack([h[4] if h else 0 for h in heads], 2)
        self.readies = [not next(p) for p in self.pressure]
        dut.m_ready_i.value = pack(self.readies, 1)
        dut.m_busy_i.value = pack([next(b) for b in self.busy], 1)
        # Who has the turn keeps it until it was registered.
        self.turn |= (1 << self.inputs) - 1 if not next(self.turns) else 0
        dut.s_turn_i.value = self.turn

    def watch(self):
        dut = self.dut
        taken = int(dut.s_ready_o.value) & int(dut.s_valid_i.value)
        for i in range(self.inputs):
            if taken >> i & 1:
                self.sending[i].popleft()
                self.stalled[i] = False
        registered = int(dut.s_registered_o.value)
        assert registered & ~self.turn == 0
        self.turn &= ~registered
        self.registered += registered.bit_count()
        if dut.sent_valid_o.value == 1:
            self.connected.append(int(dut.sent_output_o.value))
        self.dropped += int(dut.dropped_o.value)
        valid = int(dut.m_valid_o.value)
        if not valid:
            return
        beats, user = int(dut.m_beat_o.value), int(dut.m_user_o.value)
        for m in range(self.outputs):
            if valid >> m & 1 and self.readies[m]:
                beat = beats >> 145 * m
                self.receiving[m].append((beat >> 17 & (1 << 128) - 1, beat >> 1 & 0xFFFF, user >> 16 * m & 0xFFFF))
                if beat & 1:
                    self.arrive(m)

    def arrive(self, m):
        beats, self.receiving[m] = self.receiving[m], []
        user = beats[0][2]
        assert all(beat[2] == user for beat in beats), "the header changed within a packet"
        self.came[m].append((user, [beat[:2] for beat in beats]))
        self.arrived += 1

    def check(self):
        """Goes through the connections in their order; an output gives packets in the order of its connections."""
        assert len(self.connected) == self.arrived
        for m in self.connected:
            user, beats = self.came[m].popleft()
            assert (user, beats) == self.expected[user & 15, self.out_types[m]].popleft()
        assert not any(self.came) and not any(self.expected.values())

    async def cycle(self):
        self.drive()
        await ReadOnly()
        self.watch()
        await RisingEdge(self.dut.clk_i)

    async def drain(self, most):
        cycles = 0
        while self.arrived + self.dropped < self.offered:
            assert cycles < most, "stuck"
            await self.cycle()
            cycles += 1
        assert self.dropped == self.expect_dropped and self.registered == self.offered
        self.check()
        return cycles


async def begin(dut, **how):
    harness = Harness(dut, **how)
    dut.m_type_i.value = sum(t << 2 * m for m, t in enumerate(harness.out_types))
    dut.sent_ready_i.value = 1
    for port in ("s_valid_i", "m_ready_i", "m_busy_i"):
        getattr(dut, port).value = 0
    await bench.start(dut)
    return harness


@cocotb.test()
async def random_packets(dut):
    harness = await begin(dut, seed=1, types=(0, 1, 2, NOBODY))
    for seed, (idle, pressure, busy) in enumerate(((0, 0, 0), (0.5, 0, 0), (0, 0.5, 0), (0.4, 0.4, 0.5), (0.9, 0.1, 0.1), (0, 0.9, 0))):
        harness = Harness(dut, seed, idle, pressure, busy, 1 - idle, types=(0, 1, 2, NOBODY))
        for _ in range(120):
            harness.offer(harness.random.randrange(harness.inputs))
        await harness.drain(12000)


@cocotb.test()
async def longer_than_the_fifos(dut):
    harness = await begin(dut, seed=2, back_pressure=0.3, lengths=(30, 60))
    for k in range(24):
        harness.offer(k % harness.inputs)
    await harness.drain(6000)


@cocotb.test()
async def a_cycle_between_packets(dut):
    """All on one input to one type: a cycle passes between two packets where both may be at an output."""
    harness = await begin(dut, seed=3, types=(1,), lengths=(4, 4))
    for _ in range(100):
        harness.offer(0)
    cycles = await harness.drain(4000)
    dut._log.info("%d cycles for 400 beats", cycles)
    if int(dut.OutFrames.value) == 2 or harness.outputs > 4:
        assert cycles < 520


@cocotb.test()
async def one_slow_output_does_not_stop_the_others(dut):
    """The only output of type 2 stands still: packets of other types on other inputs go on."""
    harness = await begin(dut, seed=4)
    for m, type_ in enumerate(harness.out_types):
        if type_ == 2:
            harness.pressure[m] = bench.pauses(1.0)
    harness.types = (2,)
    harness.offer(0)
    harness.types = (0, 1)
    for k in range(60):
        harness.offer(1 + k % (harness.inputs - 1))
    for _ in range(1500):
        await harness.cycle()
    assert harness.arrived == 60
    harness.pressure = [bench.pauses(0.0)] * harness.outputs
    await harness.drain(3000)


@cocotb.test()
async def reset_in_mid_frame(dut):
    harness = await begin(dut, seed=5, idle=0.2, back_pressure=0.4, busy=0.3, turn=0.6)
    for round_ in range(4):
        for _ in range(40):
            harness.offer(harness.random.randrange(harness.inputs))
        for _ in range(37 + 11 * round_):
            await harness.cycle()
        await bench.reset(dut)
        harness.clear()
    for _ in range(40):
        harness.offer(harness.random.randrange(harness.inputs))
    await harness.drain(4000)


SMALL = {"Types": 4, "UserWidth": 16, "InDepth": 16, "InFrames": 4, "OutDepth": 8}


@bench.parameter_sets(
    "shape",
    (
        {"Inputs": 4, "Outputs": 5},
        {"Inputs": 3, "Outputs": 4, "OutFrames": 2, "StoreForward": 1},
    ),
    ids=("cut_through", "store_forward"),
)
def test_packet_switch(shape):
    bench.run("packet_switch", SMALL | {name: f"1'b{value}" if name == "StoreForward" else value for name, value in shape.items()})
