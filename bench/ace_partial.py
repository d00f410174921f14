"""Partial streams of the adaptive cryptographic engine beside whole bitstreams: bytes, and the time at the rate of the configuration
interface, from each lane to each other one. Sizes do not depend on the machine.

    .venv/bin/python bench/ace_partial.py [--no-record]

For the lanes of the shipped library only the length is known, because nobody has published the addresses of their part's frames. For
small ciphers on an LFE5U-45F (`bench/ace_designs.py` makes them where they are missing) streams are made, with block RAMs. Ours and that
of Project Trellis (`ecppack --delta`) are put onto the former bitstream; the frames have to be the wanted ones, and Project Trellis
(`ecpunpack`) has to read what comes out as the wanted configuration. Writes a record with a table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from record import Bench

import ace
import ace_designs

WHAT = "ACE: partial streams beside whole bitstreams"
PART = "LFE5U-45F"
OUT = ace_designs.OUT / PART
DESIGNS = ("aes-cbc-seal", "des")
# `ace::simulated::INTERFACE_RATE`: eight bits at 50 MHz.
BYTES_A_SECOND = 50_000_000
NOTES = (
    "Milliseconds are the bytes at 50 MB/s, the rate of an ECP5's parallel port of eight bits at 50 MHz. Merging comes on top.",
    "Frames: those that differ. Runs: frames behind one another, which share an address. A partial stream writes all block RAMs of the wanted "
    "configuration; ecppack's writes none, and gives each frame an address.",
    "Lanes: each was placed and routed by itself, on an LFE5U-25F. Frame addresses of this part are not published; a stream of this length cannot be "
    "made yet.",
    "aes-cbc-seal: one netlist, other contents of a LUT. des: both directions, each placed and routed by itself. Both on an LFE5U-45F, packed with "
    "`ecppack --background`.",
)


def run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")


def configuration(bit: Path) -> str:
    """A bitstream's configuration as Project Trellis reads it."""
    text = bit.with_suffix(".read.config")
    run("yowasp-ecpunpack", bit, text)
    return text.read_text()


def lanes(bench: Bench) -> list[dict]:
    out = ace_designs.OUT / "shipped"
    bench.cases(["extract", str(ace.LANES), str(out)])
    files = [f"{bit.parent.name}:{bit.stem}={bit}" for bit in sorted(out.glob("*/ctr-*.bit")) if bit.stem.count(".") == 0]
    return bench.cases(["pairs", str(out / "partial"), *files])


def made(bench: Bench) -> list[dict]:
    rows = []
    for domain in (each for each in ace_designs.DOMAINS if each.name in DESIGNS):
        bits = {}
        for name, bit in ace_designs.make(domain, OUT, PART).items():
            bits[name] = bit.with_suffix(".background.bit")
            run("yowasp-ecppack", "--background", bit.with_suffix(".config"), bits[name])
        folder = OUT / domain.name
        found = bench.cases(["pairs", str(folder / "partial"), *(f"{name}={bit}" for name, bit in bits.items())])
        for row in found:
            former, wanted = row["from"], row["to"]
            ours, theirs = (folder / "partial" / f"{former}-{wanted}{end}.bit" for end in ("", ".ecppack"))
            before, after = (folder / f"{name}.config" for name in (former, wanted))
            run("yowasp-ecppack", "--background", "--delta", before, after, theirs)
            row["ecppack_bytes"] = theirs.stat().st_size
            for stream in (ours, theirs):
                applied = stream.with_suffix(".applied.bit")
                bench.run(["apply", *map(str, (bits[former], stream, bits[wanted], applied))])
                if configuration(applied) != configuration(bits[wanted]):
                    sys.exit(f"{stream}: Project Trellis reads another configuration than {bits[wanted]}")
            row |= {"from": f"{domain.name} {former}", "to": f"{domain.name} {wanted}"}
        rows += found
    return rows


def ms(count: int) -> float:
    return round(count * 1e3 / BYTES_A_SECOND, 2)


def text(record: dict[str, object]) -> str:
    lines = [f"# Partial streams, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`.", ""]
    lines += [*(f"- {note}" for note in record["notes"]), "", "## Lanes of the shipped library", ""]
    head = ("from", "to", "frames", "of", "runs", "block RAM, bytes", "partial, bytes", "whole, bytes", "%", "partial, ms", "whole, ms")
    keys = ("from", "to", "frames", "of_frames", "runs", "block_ram_bytes", "partial_bytes", "whole_bytes", "percent", "partial_ms", "whole_ms")
    lines += ace.table(head, ([row[key] for key in keys] for row in record["lanes"]), 2)
    lines += ["## Small ciphers, as streams", ""]
    lines += ace.table((*head, "ecppack --delta, bytes"), ([row[key] for key in (*keys, "ecppack_bytes")] for row in record["made"]), 2)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{ace.TOOLS / 'bin'}:{os.environ['PATH']}"
    bench = Bench("esplanade-ace", "ace", "bench/" + " ".join(sys.argv).split("/")[-1])
    bench.name = "ace-partial"
    # Nothing is timed.
    bench.command += ["--profile", "dev"]
    bench.build()
    results = {"notes": NOTES, "bytes_a_second": BYTES_A_SECOND, "lanes": lanes(bench), "made": made(bench)}
    for row in (*results["lanes"], *results["made"]):
        del row["seconds"]
        row |= {
            "percent": round(100 * row["partial_bytes"] / row["whole_bytes"], 1), "partial_ms": ms(row["partial_bytes"]), "whole_ms": ms(row["whole_bytes"]),
        }  # fmt: skip
    record = bench.record(WHAT, results)
    page = text(record)
    print(page)
    if not arguments.no_record:
        bench.keep(record, page)


if __name__ == "__main__":
    main()
