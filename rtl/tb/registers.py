"""A register map as rtl/regs/generate.py reads it, and software that works with it over AXI4-Lite."""

import importlib.util
import re

import bench
import sources
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp


def load_map(name):
    """The generator, the map, and the addresses of what is not a table."""
    path = bench.RTL / "regs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.Map(name)
    return module, found, {node.inst_name: node.absolute_address for node in (*found.registers, *found.readable)}


def with_pins(module):
    """A wrapper around a register module, whose bus has a pin each for what the structures of axil_pkg hold: a master needs those."""
    header = re.match(r".*?\n\);\n", sources.module(module).read_text(), re.DOTALL)[0]
    core = sources.module("esp_core").read_text()
    pins = "\n".join(re.findall(r"^  (?:input |output) logic.* s_axil_\w+,$", core, re.MULTILINE))
    joins = re.search(r"  axil_pkg::axil_req_t axil_req;\n.*?\n\n", core, re.DOTALL)[0]
    header = re.sub(rf"\bmodule {module}\b", f"module {module}_pins", header)
    header = re.sub(r"^  input  axil_req_t.*\n  output axil_rsp_t.*$", lambda _: pins, header, flags=re.MULTILINE)
    parameters = ", ".join(f".{name}({name})" for name in re.findall(r"parameter .*?(\w+) +=", header))
    wrapper = bench.BUILD / f"{module}_pins.sv"
    bench.BUILD.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(
        f"{header}{joins}  {module} #({parameters}) u_regs (.*, .axil_i(axil_req), .axil_o(axil_rsp));\nendmodule\n"
    )
    return wrapper


def idle(dut):
    """The channels without a master: its queues would fill with answers to what is driven by hand."""
    for name in ("awvalid", "wvalid", "arvalid"):
        getattr(dut, f"s_axil_{name}").value = 0
    dut.s_axil_bready.value = dut.s_axil_rready.value = 1


class Host:
    """Software: words in and out, and whether they were refused."""

    def __init__(self, dut, pause=0.0):
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk_i, dut.rst_ni, reset_active_level=False)
        if pause:
            write, read = self.master.write_if, self.master.read_if
            for seed, channel in enumerate((write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)):
                channel.set_pause_generator(bench.pauses(pause, seed))

    async def write(self, address, data):
        response = await self.master.write(address, data.to_bytes(4, "little"))
        return response.resp == AxiResp.OKAY

    async def write_bytes(self, address, data):
        response = await self.master.write(address, data)
        return response.resp == AxiResp.OKAY

    async def read(self, address):
        response = await self.master.read(address, 4)
        return int.from_bytes(response.data, "little"), response.resp == AxiResp.OKAY

    async def value(self, address):
        value, known = await self.read(address)
        assert known, f"{address:#x} is refused"
        return value


async def watch_bus(dut, seen, back_pressure=0.0):
    """Takes what comes on the configuration bus."""
    pauses = bench.pauses(back_pressure, 11)
    held = None
    while True:
        await RisingEdge(dut.clk_i)
        dut.cfg_ready_i.value = not next(pauses)
        await ReadOnly()
        now = (int(dut.cfg_addr_o.value), int(dut.cfg_data_o.value)) if dut.cfg_valid_o.value == 1 else None
        assert held is None or now == held, "a write that was not taken has changed"
        taken = now and dut.cfg_ready_i.value == 1
        held = None if taken else now
        if taken:
            seen.append(now)


async def refuses_unaligned(dut, addresses_):
    """Both ways; a master as careless as this one has to be made by hand, and be alone."""
    for address in addresses_:
        dut.s_axil_awaddr.value = dut.s_axil_araddr.value = address
        dut.s_axil_wdata.value = 0xFFFFFFFF
        dut.s_axil_wstrb.value = 15
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = dut.s_axil_arvalid.value = 1
        answers = {}
        for _ in range(20):
            await ReadOnly()
            assert dut.cfg_valid_o.value == 0
            taken = [channel for channel in ("aw", "w", "ar") if getattr(dut, f"s_axil_{channel}ready").value == 1]
            for channel in ("b", "r"):
                if getattr(dut, f"s_axil_{channel}valid").value == 1:
                    answers[channel] = int(getattr(dut, f"s_axil_{channel}resp").value)
            await RisingEdge(dut.clk_i)
            for channel in taken:
                getattr(dut, f"s_axil_{channel}valid").value = 0
            if len(answers) == 2:
                break
        assert answers == {"b": 2, "r": 2}, f"{address:#x}: {answers}"
