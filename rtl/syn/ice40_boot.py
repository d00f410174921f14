"""Several configurations for a Lattice iCE40 HX8K in one image of a flash memory, from one to another by a warm boot.

    rtl/run python rtl/syn/ice40_boot.py [NAME ..] [--record] [--kept]

A name is one of those below. Each configuration has a cipher behind the pins of ecp5.py's shell, and SB_WARMBOOT behind pins of its own:
with a rising edge of boot_i the part loads the configuration whose number is at image_i, from the flash memory and as a whole.
icemulti packs the image. Its table is read here, and icepack's inverse gives each configuration's text again. `--record` writes
bench/records. With `--kept` what is there already is not placed and routed again.
"""

import argparse
import json
import re
import sys

import ecp5
import ice40

DESIGNS = {
    "twofish-seal": ("ace_cipher", {"Algorithm": 2, "Decrypts": 0, "LongKeys": 0}),
    "des-seal": ("des_core", {"Open": 0}),
    "des-open": ("des_core", {"Open": 1}),
    # Parts of ciphers, for the test.
    "twofish-h": ("ace_twofish_h", {}),
    "sbox": ("aes_sbox_rom", {}),
}
NAMES = ("twofish-seal", "des-seal", "des-open")
IMAGES_MAX = 4
PINS = ice40.PINS | {"boot_i": "R9", "image_i[0]": "T9", "image_i[1]": "P9"}
# A sector of a flash memory that can be erased by itself.
ALIGNMENT = 12
# iCE40 HX-Series data sheet of Lattice, tables 12 and 13: the internal oscillator in MHz from lowest to highest, and the longest time
# of a whole configuration with all block RAMs in ms.
OSCILLATOR = {"default": (7, 10, 230), "low": (21, 35, 110), "high": (30, 50, 50)}
SYNC = b"\x7e\xaa\x99\x7e"
ENTRY_LEN = 32


def top(module, parameters, work):
    """A shell with SB_WARMBOOT beside the module."""
    read = ecp5.shell(module, parameters, work)
    file = work / f"shell_{module}.sv"
    inner = file.read_text()
    file.write_text(
        "(* blackbox *) module SB_WARMBOOT (input logic BOOT, S1, S0); endmodule\n"
        + inner
        + f"""module boot_{module} (input logic clk_i, rst_ni, in_i, boot_i, input logic [1:0] image_i, output logic out_o);
  // The pins are asynchronous; the choice has settled when the edge has passed both registers.
  logic [1:0] boot_q, image_q;
  always_ff @(posedge clk_i) begin
    boot_q  <= {{boot_q[0], boot_i}};
    image_q <= image_i;
  end
  (* keep *) SB_WARMBOOT u_boot (.BOOT(boot_q[1]), .S1(image_q[1]), .S0(image_q[0]));
  shell_{module} u_shell (.clk_i, .rst_ni, .in_i, .out_o);
endmodule
"""
    )
    return read.replace(f"--top shell_{module}", f"--top boot_{module}")


def make(name, out, kept=False):
    """A configuration alone: its text, its bitstream, and what it takes."""
    module, parameters = DESIGNS[name]
    work = out / f"boot-{name}"
    work.mkdir(parents=True, exist_ok=True)
    facts = work / "made.json"
    if kept and facts.exists():
        return json.loads(facts.read_text())
    netlist = work / "netlist.json"
    script = [
        top(module, parameters, work), f"hierarchy -top boot_{module}", "chformal -remove", "setattr -unset ram_style",
        f"synth_ice40 -top boot_{module} -abc9 -device hx", f"write_json {netlist}", "stat",
    ]  # fmt: skip
    synthesis, _ = ecp5.yosys(script, work, "synthesis")
    routing = ice40.place_and_route(netlist, PINS, work)
    made = {"name": name, "module": module, "parameters": parameters} | ice40.pack(work)
    made["seconds"] = {"synthesis": round(synthesis), "placing and routing": round(routing)}
    facts.write_text(json.dumps(made) + "\n")
    return made


def table(image):
    """The addresses of an image: where the part begins at power-on, and each configuration."""
    found = []
    for at in range(0, (IMAGES_MAX + 1) * ENTRY_LEN, ENTRY_LEN):
        entry = image[at : at + ENTRY_LEN]
        match = re.match(re.escape(SYNC) + rb"\x92\x00(.)\x44\x03(...)\x82\x00\x00\x01\x08\x00", entry, re.DOTALL)
        if not match:
            sys.exit(f"no entry of a table at byte {at}: {entry.hex()}")
        found.append(int.from_bytes(match[2], "big"))
    return found


def images(names, out):
    """Packs an image, and checks what is in it. Returns its length and addresses."""
    file = out / "boot.bin"
    bits = [out / f"boot-{name}" / "routed.bin" for name in names]
    ecp5.run(["yowasp-icemulti", f"-a{ALIGNMENT}", "-p0", "-o", str(file), *map(str, bits)], out / "boot.out")
    image = file.read_bytes()
    start, *addresses = table(image)
    if start != addresses[0]:
        sys.exit(f"the part begins at {start}, and the first configuration is at {addresses[0]}")
    for name, bit, address in zip(names, bits, addresses, strict=False):
        wanted = bit.read_bytes()
        found = image[address : address + len(wanted)]
        # The file's comment is not part of a configuration; a configuration begins with the word that the part looks for.
        if found[found.index(SYNC) :] != wanted[wanted.index(SYNC) :][: len(found) - found.index(SYNC)]:
            sys.exit(f"{name}: at byte {address} of the image is something else")
        alone = out / f"boot-{name}" / "found.bin"
        alone.write_bytes(b"\xff\x00\x00\xff" + found[found.index(SYNC) :])
        again = alone.with_suffix(".asc")
        ecp5.run(["yowasp-iceunpack", str(alone), str(again)], again.with_suffix(".out"))
        texts = [configuration(path.read_text()) for path in (again, out / f"boot-{name}" / "routed.asc")]
        if texts[0] != texts[1]:
            sys.exit(f"{name}: unpacked, it is another configuration than was packed")
    return {"bytes": len(image), "starts_at": start, "addresses": dict(zip(names, addresses, strict=False))}


def configuration(text):
    """The tiles and block RAMs of a textual configuration that are not empty, without comments and names of nets."""
    found = {}
    for part in re.split(r"^\.(?=\w)", text, flags=re.MULTILINE):
        head, _, body = part.partition("\n")
        if re.match(r"(io|logic|ramb|ramt|ipcon|dsp\d)_tile |ram_data |device|extra_bit", head) and re.search("[1-9a-f]", body):
            found[head] = body.strip()
    return found


def times(made):
    """Milliseconds from one configuration to the next: its bits at the frequencies of the oscillator."""
    bits = 8 * max(row["bytes"] for row in made)
    return {
        mode: {"mhz": [low, high], "ms": [round(bits / high / 1e3, 1), round(bits / low / 1e3, 1)], "data_sheet_ms_at_most": most}
        for mode, (low, high, most) in OSCILLATOR.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"{' '.join(NAMES)} if none is given; up to four")
    parser.add_argument("--record", action="store_true", help="writes bench/records")
    parser.add_argument("--kept", action="store_true", help="takes what an earlier call made")
    options = parser.parse_args()
    names, source = options.names or NAMES, ecp5.commit()
    if len(names) > IMAGES_MAX or any(name not in DESIGNS for name in names):
        sys.exit(f"up to {IMAGES_MAX} of {', '.join(DESIGNS)}")
    ecp5.BUILD.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        made.append(make(name, ecp5.BUILD, options.kept))
        print(json.dumps(made[-1]), flush=True)
    found = images(names, ecp5.BUILD)
    print(json.dumps(found | {"switch": times(made)}))
    if options.record:
        what = f"configurations for {ice40.PART} in one image, between which a warm boot switches"
        sheet = "iCE40 HX-Series data sheet, tables 12 (internal oscillator) and 13 (configuration timing)"
        ice40.write("ice40_boot", what, options.names, source, designs=made, image=found, switch=times(made), oscillator=sheet)


if __name__ == "__main__":
    main()
