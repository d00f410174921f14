"""esp_regs: the map that software sees, with a master we did not write and a model of what it should find."""

import random
import re
import subprocess
import sys
from collections import Counter

import bench
import cocotb
import sources
from cocotb.triggers import ReadOnly, RisingEdge
from registers import Host, idle, load_map, refuses_unaligned, watch_bus, with_pins

POLICIES, SAS, UNITS = 48, 512, 3
REASONS = 22
SNAPSHOT_OUT, SNAPSHOT_IN = 0x112233445566778899AABBCCDDEEFF00 << 64 | 5, 0xFEDC << 100 | 7
generate, MAP, ADDRESS = load_map("esp")
OUT, IN = ADDRESS["out_counters"], ADDRESS["in_counters"]


def rows_of(table):
    """Rows that the core under test has of a table."""
    rows = table.array_dimensions[0]
    return min(rows, POLICIES if "policies" in table.inst_name else SAS)


async def begin(dut, pause=0.0, master=True):
    for name in ("out_count_valid_i", "in_count_valid_i", "event_valid_i", "out_count_reason_i", "in_count_reason_i",
                 "out_count_bytes_i", "in_count_bytes_i", "event_kind_i", "event_lane_i", "event_row_i"):
        getattr(dut, name).value = 0
    dut.cfg_ready_i.value = 1
    dut.out_snapshot_i.value = SNAPSHOT_OUT
    dut.in_snapshot_i.value = SNAPSHOT_IN
    host = Host(dut, pause) if master else idle(dut)
    await bench.start(dut)
    for _ in range(34):
        await RisingEdge(dut.clk_i)
    return host


@cocotb.test()
async def registers(dut):
    host = await begin(dut)
    assert await host.value(ADDRESS["id"]) == int.from_bytes(b"ESP1", "little")
    assert await host.value(ADDRESS["version"]) == 2 << 16 | 1
    assert await host.value(ADDRESS["capabilities"]) == SAS << 16 | POLICIES
    assert await host.value(ADDRESS["units"]) == int(dut.Gcm.value) << 8 | int(dut.HmacUnits.value)
    for value in (3, 1, 2, 0, 0xFFFFFFFF):
        assert await host.write(ADDRESS["control"], value)
        assert await host.value(ADDRESS["control"]) == value & 3
        assert (int(dut.out_enable_o.value), int(dut.in_enable_o.value)) == (value & 1, value >> 1 & 1)


@cocotb.test()
async def what_is_not_there_is_refused(dut):
    host = await begin(dut, pause=0.3)
    seen = []
    watcher = cocotb.start_soon(watch_bus(dut, seen))
    known = set(ADDRESS.values()) - {ADDRESS[group.inst_name] for group in MAP.readable}
    writable = {ADDRESS[name] for name in ("control", "irq_enable", "irq_status")}
    readable = set(known)
    for group in MAP.readable:
        readable |= {group.absolute_address + register.raw_address_offset for register in generate.registers_of(group)}
    source = random.Random(5)
    addresses = [*range(0, 0x40, 4), *range(0xE0, 0x110, 4), *range(0x130, 0x160, 4), *range(0x180, 0x190, 4), 0x318, 0x41C]
    addresses += [source.randrange(1 << 20) & ~3 for _ in range(50)]
    for address in addresses:
        assert (await host.read(address))[1] == (address in readable), f"{address:#x}"
        if address not in writable:
            assert not await host.write(address, 0xFFFFFFFF), f"{address:#x}"
    # Words and rows that a table does not have.
    refused = [0x680000, 0x7FFFFC]
    for table in MAP.tables:
        base, mask = table.raw_absolute_address, generate.word_mask(table)
        refused += [base + 4 * word for word in range(64) if not mask >> word & 1][:4]
        if table.array_dimensions[0] < 1024:
            refused.append(base + 256 * table.array_dimensions[0])
        # The map knows more than this core has.
        refused += [base + 256 * row for row in (rows_of(table), table.array_dimensions[0] - 1) if row < 1024 and rows_of(table) > 1]
        if "snapshot" in table.inst_name:
            refused.append(base)
    for address in refused:
        assert not await host.write(address, 0xFFFFFFFF), f"{address:#x}"
        assert await host.value(address) == 0
    # Parts of words.
    for address in (ADDRESS["control"], 0x580000):
        for first, count in ((0, 1), (1, 1), (3, 1), (0, 2), (2, 2), (1, 3)):
            assert not await host.write_bytes(address + first, bytes([0xFF] * count))
    assert await host.value(ADDRESS["control"]) == 0
    assert not seen
    watcher.cancel()


@cocotb.test()
async def suites_without_units_are_refused(dut):
    host = await begin(dut)
    seen = []
    watcher = cocotb.start_soon(watch_bus(dut, seen))
    there = [bool(dut.Gcm.value)] * 2 + [int(dut.HmacUnits.value) > 0] * 2
    for table in (table for table in MAP.tables if table.inst_name in ("out_sas", "in_sas")):
        flags = table.raw_absolute_address + 256 * 5 + 4
        for suite in range(4):
            assert await host.write(flags, suite << 1 | 1) == there[suite]
            # A row that is not valid may say anything.
            assert await host.write(flags, suite << 1)
        # Bits alone mean nothing in other words.
        assert await host.write(flags + 4, 5)
    assert len(seen) == 2 * (5 + sum(there))
    watcher.cancel()


@cocotb.test()
async def addresses_are_aligned(dut):
    await begin(dut, master=False)
    await refuses_unaligned(dut, (ADDRESS["control"] + 1, ADDRESS["control"] + 2, 0x580001, 0x580002))
    assert dut.out_enable_o.value == 0 and dut.in_enable_o.value == 0


@cocotb.test()
async def tables_are_written_once_and_never_read(dut):
    host = await begin(dut, pause=0.2)
    seen, expected = [], []
    cocotb.start_soon(watch_bus(dut, seen, 0.5))
    source = random.Random(3)
    for _ in range(150):
        table = source.choice(MAP.tables)
        row = source.randrange(rows_of(table))
        mask = generate.word_mask(table)
        word = source.choice([word for word in range(64) if mask >> word & 1])
        address = table.raw_absolute_address + 256 * row + 4 * word
        data = source.randrange(SAS if "snapshot" in table.inst_name else 1 << 32)
        if table.inst_name in ("out_sas", "in_sas") and word == 1 and not (dut.HmacUnits.value if data & 4 else dut.Gcm.value):
            data ^= 4
        assert await host.write(address, data)
        expected.append((generate.table_index(table) << 16 | row << 6 | word, data))
        assert await host.value(address) == 0
        assert seen == expected
        # What was written is not kept either.
        assert int(dut.cfg_data_o.value) == 0
    for address in range(0x580000, 0x580100, 4):
        assert await host.value(address) == 0
    for group, snapshot in (("out_snapshot", SNAPSHOT_OUT), ("in_snapshot", SNAPSHOT_IN)):
        words = [await host.value(ADDRESS[group] + 4 * word) for word in range(6)]
        assert sum(word << 32 * index for index, word in enumerate(words)) == snapshot


async def end_packets(dut, cycles, seed):
    """Packets that end in both lanes; returns packets by reason and bytes of each lane."""
    source = random.Random(seed)
    packets, sent = (Counter(), Counter()), [0, 0]
    for _ in range(cycles):
        for lane, name in enumerate(("out", "in")):
            valid = source.random() < 0.8
            reason = source.choice((0, 0, 0, 1, *range(REASONS)))
            length = source.choice((20, 1446, 65535))
            getattr(dut, f"{name}_count_valid_i").value = valid
            getattr(dut, f"{name}_count_reason_i").value = reason
            getattr(dut, f"{name}_count_bytes_i").value = length
            if valid:
                packets[lane][reason] += 1
                sent[lane] += length * (reason == 0)
        await RisingEdge(dut.clk_i)
    dut.out_count_valid_i.value = dut.in_count_valid_i.value = 0
    await RisingEdge(dut.clk_i)
    return packets, sent


@cocotb.test()
async def counters(dut):
    host = await begin(dut)
    for base in (OUT, IN):
        assert [await host.value(base + 4 * reason) for reason in range(REASONS)] == [0] * REASONS
    packets, sent = await end_packets(dut, 1500, 1)
    for lane, base in enumerate((OUT, IN)):
        assert [await host.value(base + 4 * reason) for reason in range(REASONS)] == [packets[lane][reason] for reason in range(REASONS)]
        assert await host.value(base + 0x80) == sent[lane]
        assert await host.value(base + 0x84) == 0
    # Beyond 32 bits, with both halves of one moment.
    dut.out_count_valid_i.value = 1
    dut.out_count_reason_i.value = 0
    dut.out_count_bytes_i.value = 65535
    last = sent[0]
    while last < 1 << 32:
        for _ in range(8000):
            await RisingEdge(dut.clk_i)
        low = await host.value(OUT + 0x80)
        now = low | await host.value(OUT + 0x84) << 32
        assert 8000 * 65535 <= now - last < 8030 * 65535
        last = now


@cocotb.test()
async def events(dut):
    host = await begin(dut)
    status, enable, event = (ADDRESS[name] for name in ("irq_status", "irq_enable", "next_event"))
    assert await host.value(event) == 0 and await host.value(status) == 0

    async def raise_events(count, kind):
        for row in range(count):
            dut.event_valid_i.value = 1
            dut.event_kind_i.value = kind
            dut.event_lane_i.value = row & 1
            dut.event_row_i.value = 1000 + row
            await RisingEdge(dut.clk_i)
        dut.event_valid_i.value = 0

    def word(row, kind):
        return kind << 28 | (row & 1) << 27 | 1000 + row

    await raise_events(3, 2)
    assert await host.value(status) == 1
    assert dut.irq_o.value == 0, "not enabled"
    assert await host.write(enable, 1)
    assert await host.value(enable) == 1
    assert dut.irq_o.value == 1
    assert [await host.value(event) for _ in range(4)] == [word(row, 2) for row in range(3)] + [0]
    assert await host.value(status) == 0 and dut.irq_o.value == 0
    # More than there is room for: the first ones stay, the loss is known until software says so.
    await raise_events(40, 3)
    assert await host.value(status) == 3
    assert await host.write(enable, 2)
    kept = []
    while (got := await host.value(event)) != 0:
        kept.append(got)
    assert 16 <= len(kept) <= 17 and kept == [word(row, 3) for row in range(len(kept))]
    assert await host.value(status) == 2 and dut.irq_o.value == 1
    assert await host.write(status, 1) and await host.value(status) == 2
    assert await host.write(status, 2) and await host.value(status) == 0
    await raise_events(1, 1)
    assert await host.value(event) == word(0, 1)


@cocotb.test()
async def reset_in_the_middle(dut):
    host = await begin(dut)
    source = random.Random(9)
    for wait in range(1, 9):
        dut.cfg_ready_i.value = 0
        assert await host.write(ADDRESS["control"], 3)
        pending = cocotb.start_soon(host.write(0x580000, source.getrandbits(32)))
        other = cocotb.start_soon(host.read(ADDRESS["next_event"]))
        for _ in range(wait):
            await RisingEdge(dut.clk_i)
        dut.event_valid_i.value = dut.out_count_valid_i.value = 1
        await RisingEdge(dut.clk_i)
        dut.event_valid_i.value = dut.out_count_valid_i.value = 0
        pending.cancel()
        other.cancel()
        await bench.reset(dut)
        await RisingEdge(dut.clk_i)
        await ReadOnly()
        assert dut.cfg_valid_o.value == 0 and dut.s_axil_bvalid.value == 0 and dut.s_axil_rvalid.value == 0
        assert dut.out_enable_o.value == 0 and dut.irq_o.value == 0
        await RisingEdge(dut.clk_i)
        dut.cfg_ready_i.value = 1
        host = Host(dut)
        for _ in range(34):
            await RisingEdge(dut.clk_i)
        assert await host.value(ADDRESS["control"]) == 0
        assert await host.value(OUT) == 0 and await host.value(ADDRESS["next_event"]) == 0
        assert await host.write(0x580000, 1)


@bench.parameter_sets("units,gcm", ((0, 1), (UNITS, 1), (UNITS, 0)))
def test_esp_regs(units, gcm):
    bench.run(with_pins("esp_regs"), {"Policies": POLICIES, "Sas": SAS, "HmacUnits": units, "Gcm": gcm})


def test_generated_files():
    subprocess.run([sys.executable, bench.RTL / "regs" / "generate.py", "--check"], check=True)


def test_counters_are_the_reasons():
    """The map's counters stand in the order of drop_e."""
    reasons = dict(re.findall(r"\bDrop(\w+)\s*=\s*5'd(\d+)", sources.module("esp_pkg").read_text()))
    [out_counters] = [group for group in MAP.readable if group.inst_name == "out_counters"]
    counted = {
        generate.camel(register.inst_name.removeprefix("drop_")): register.raw_address_offset // 4
        for register in generate.registers_of(out_counters)
        if register.inst_name.startswith("drop_")
    }
    assert counted == {name: int(number) for name, number in reasons.items() if name != "None"}
    assert len(reasons) == REASONS
