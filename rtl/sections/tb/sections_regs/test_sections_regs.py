"""sections_regs: what software sees of Gateway 2.0, and that nothing of its tables is seen."""

import random

import bench
import cocotb
import sections_model
from cocotb.triggers import ReadOnly, RisingEdge
from registers import Host, idle, load_map, refuses_unaligned, watch_bus, with_pins

SHAPE = {
    "Ports": 3, "Policies": 4, "Sads": 5, "Encaps": 6, "Aes": 7, "AesPriority": 1, "Des": 2, "TripleDes": 1, "Hmacs": 9, "HmacPriority": 8, "Rows": 64,
}  # fmt: skip
generate, MAP, ADDRESS = load_map("sections")
DROPS = ("frame", "policy", "sa", "unit", "exit")
POLICIES, SAS = (table.raw_absolute_address for table in MAP.tables)


async def begin(dut, pause=0.0, master=True):
    dut.cfg_ready_i.value = 1
    for number, name in enumerate(DROPS, 1):
        getattr(dut, f"dropped_{name}_i").value = 0x01010101 * number
    host = Host(dut, pause) if master else idle(dut)
    await bench.start(dut)
    await RisingEdge(dut.clk_i)
    return host


@cocotb.test()
async def registers(dut):
    host = await begin(dut, 0.2)
    assert await host.value(ADDRESS["id"]) == int.from_bytes(b"SEC1", "little")
    assert await host.value(ADDRESS["version"]) == 1 << 16 | 2
    assert await host.value(ADDRESS["capabilities"]) == 64 << 16 | 1 << 8 | 3
    assert await host.value(ADDRESS["units"]) == 0x09060504
    assert await host.value(ADDRESS["cipher_units"]) == 0x08020107
    for value in (1, 0, 0xFFFFFFFF, 0xFFFFFFFE):
        assert await host.write(ADDRESS["control"], value)
        assert await host.value(ADDRESS["control"]) == dut.enable_o.value == value & 1
    for number in range(len(DROPS)):
        assert await host.value(ADDRESS["dropped"] + 4 * number) == 0x01010101 * (number + 1)


@cocotb.test()
async def what_is_not_there_is_refused(dut):
    host = await begin(dut, 0.3)
    seen = []
    watcher = cocotb.start_soon(watch_bus(dut, seen))
    source = random.Random(5)
    readable = {node.absolute_address for node in MAP.registers} | {ADDRESS["dropped"] + 4 * n for n in range(len(DROPS))}
    for address in (*range(0, 0x40, 4), *range(0xF0, 0x120, 4), *(source.randrange(1 << 20) & ~3 for _ in range(40))):
        assert (await host.read(address))[1] == (address in readable), f"{address:#x}"
        if address != ADDRESS["control"]:
            assert not await host.write(address, 0xFFFFFFFF), f"{address:#x}"
    # Tables, and words of rows, that are not there.
    for address in (0x400000, 0x67FFFC, POLICIES + 0x14, POLICIES + 0xFC, SAS + 0x5C, SAS + 0xF8, SAS + 256 * 64, SAS + 256 * 1023, 0x700000, 0x7FFFFC):
        assert not await host.write(address, 0xFFFFFFFF), f"{address:#x}"
        assert await host.value(address) == 0
    for address in (ADDRESS["control"], SAS + 0x10):
        for first, count in ((0, 1), (1, 1), (3, 1), (0, 2), (2, 2), (1, 3)):
            assert not await host.write_bytes(address + first, bytes([0xFF] * count))
    assert await host.value(ADDRESS["control"]) == 0
    assert not seen
    watcher.cancel()


@cocotb.test()
async def addresses_are_aligned(dut):
    await begin(dut, master=False)
    await refuses_unaligned(dut, (ADDRESS["control"] + 1, ADDRESS["control"] + 2, POLICIES + 1, SAS + 0x12))
    assert dut.enable_o.value == 0


@cocotb.test()
async def tables_are_written_once_and_never_read(dut):
    host = await begin(dut, 0.2)
    seen, expected = [], []
    watcher = cocotb.start_soon(watch_bus(dut, seen, 0.5))
    source = random.Random(3)
    for _ in range(150):
        table = source.choice(MAP.tables)
        mask = generate.word_mask(table)
        row = source.randrange(64 if table.inst_name == "sas" else 1024)
        word = source.choice([word for word in range(64) if mask >> word & 1])
        address, data = table.raw_absolute_address + 256 * row + 4 * word, source.getrandbits(32)
        assert await host.write(address, data)
        expected.append((generate.table_index(table) << 16 | row << 6 | word, data))
        assert seen == expected
        assert await host.value(address) == 0 and int(dut.cfg_data_o.value) == 0
    watcher.cancel()


@cocotb.test()
async def reset_in_the_middle(dut):
    host = await begin(dut)
    for wait in range(1, 9):
        assert await host.write(ADDRESS["control"], 1)
        dut.cfg_ready_i.value = 0
        pending = [cocotb.start_soon(host.write(SAS + 0x10, wait)), cocotb.start_soon(host.read(ADDRESS["dropped"]))]
        for _ in range(wait):
            await RisingEdge(dut.clk_i)
        for task in pending:
            task.cancel()
        await bench.reset(dut)
        await ReadOnly()
        assert dut.cfg_valid_o.value == dut.s_axil_bvalid.value == dut.s_axil_rvalid.value == dut.enable_o.value == 0
        await RisingEdge(dut.clk_i)
        dut.cfg_ready_i.value = 1
        host = Host(dut)
        await RisingEdge(dut.clk_i)
        assert await host.value(ADDRESS["control"]) == 0
        assert await host.write(SAS, 1)


def test_sections_regs():
    bench.run(with_pins("sections_regs"), SHAPE)


def test_the_model_writes_where_the_map_says():
    sa = sections_model.Sa(5, 1, bytes(32), bytes(20))
    policy = sections_model.Policy().entry(bytes(13), sections_model.PROTECT, 5)
    for table, writes in zip(MAP.tables, (policy, sa.writes())):
        words = {address & 63 for address, _ in writes}
        assert {address >> 16 for address, _ in writes} == {generate.table_index(table)}
        assert all(generate.word_mask(table) >> word & 1 for word in words)
        names = {register.inst_name for register in generate.registers_of(table) if words & set(words_of(register))}
        assert names == {register.inst_name for register in generate.registers_of(table)} - {"wipe"}


def words_of(register):
    first = generate.offset(register) // 4
    return range(first, first + generate.words_of(register))
