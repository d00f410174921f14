"""Prints every table of the five papers beside our figures, from the newest committed records, and writes docs/papers.md with a
picture of each paper, and a page of HTML below target/papers. It needs nothing but Python.

`--live` first measures what this machine can measure; that takes long. Placing and routing is `make rtl`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import clocks
import paper_ace
import paper_tables as papers
import paper_vpn_ab
import ratios
import sections
import zynq
from commit import ROOT
from gpu import COMPARED_LOAD
from pages import FORMER, MISSING, NONE, Row, Section, Table, Verdict, html_page, markdown, verdict
from paper_records import GRADES, ROUTE, Records, by_part, clock_records, script

PAGE = ROOT / "docs" / "papers.md"
OUT = ROOT / "target" / "papers"
TITLE = "Five papers beside Esplanade"
INTRO = [
    "`make papers` writes this page from the records in `bench/records`; a test compares them. The papers' figures are in "
    "`bench/paper_tables.py`. Each row or table names its record; [the list at the end](#records) says where each was made and of which commit.", "",
    "*Computed* is a figure that nobody timed: bits of the inner packet ÷ cycles × clock, as three of the papers have it. All rates of simulated RTL "
    "are computed. Cycles a packet come first, since they do not depend on the technology; then throughput at the paper's clock, then at the clock of "
    f"our placed and routed design: {' and '.join(f'{grade} is an {part}' for part, grade in GRADES.items())}, both of 40 nm. No design ran on a board.", "",
    "Whether ours is better stands behind the figure: `yes`, `no`, or `partly` where some of our parts or clocks are above the paper's figure and others "
    f"are not. An equal figure is not better. `{FORMER}` stands for a `yes` or a `partly` of a design whose sources have changed since its record was "
    "made; a digest of the sources tells (`bench/designs.py`). † marks a figure that is wrong in the paper; it is compared as it was printed.", "",
    "How many comparisons came out in which way:",
]  # fmt: skip
# The benches that fill the tables, and their minutes without compiling: by the times that they are set to, or as noted in
# bench/README.md.
LIVE = (
    ("vpn_ab", "2 minutes"), ("random_numbers", "10 seconds"), ("handshake", "1 minute"), ("crowd", "2 minutes, as root"),
    ("sections", "5 minutes on two idle cores"), ("zynq", "minutes not noted"), ("gpu", "7 minutes or more, by its settings"),
    ("ace_cores", "none"), ("ace_software", "1 minute"), ("ace", "minutes not noted"),
)  # fmt: skip


# Gateway 2.0

UNITS_NOTE = "Units are those for policy, SAD, ciphering and HMAC."


def sections_bench(*arguments: str) -> str:
    return f"`{script('sections.py')} {' '.join(arguments)} --no-scaling --no-record`"


def route(cipher: str, units: str, *more: str) -> str:
    """The command that places and routes a configuration."""
    counts = [int(count) for count in units.split("/")]
    configuration = papers.Configuration(cipher, *counts, 0, 0, {})
    settings = " ".join(f"--set {key}={value}" for key, value in sections.parameters(configuration, 1).items() if key != "Ports")
    return " ".join([f"rtl/run python rtl/syn/ecp5.py --top esp_sections --name esp_sections-{cipher[:3].lower()}-{units.replace('/', '-')}", settings, *more])


def unrouted(table: Table, configuration: papers.Configuration) -> tuple[str, Verdict]:
    """Why a configuration has no clock of ours, and the verdict on it."""
    found = sections.built(configuration)
    if found["record"] and found["why"] == "does not fit":
        memory = found["cells"]["DP16KD"] / sections.BLOCK_RAMS
        why = table.label(f"{configuration.cipher} {configuration.name} takes {found['share']:.0%} of the LUTs and {memory:.0%} of the block RAMs of an LFE5U-85F.")
        return f"does not fit {why}", Verdict("no")
    more = [] if found["record"] else ["--synthesis-only"]
    return table.missing(route(configuration.cipher, configuration.name, *more)), Verdict(MISSING)


def gateway_prototype(records: Records, record: dict | None) -> Table:
    table = Table(
        "I", "performance of the prototype", f"Section III.B, {papers.PROTOTYPE_MHZ} MHz on a Cyclone II",
        ("bytes", "paper, cycles", "ours, cycles", "paper, Mbit/s", "ours at the paper's clock, Mbit/s", "ours at our clock, Mbit/s"), 1,
        ("cycles", "the paper's clock", "our clock"), ("Ours has one unit of each kind; its cycles are from packet to packet.",), at=(2, 4, 5),
        reproduce=f"`{script('sections.py')} --no-record`, whose last part has one unit of each kind.",
    )  # fmt: skip
    ours = sections.prototype_cycles(record) if record else {}
    for size, cycles, printed in papers.PROTOTYPE:
        right = papers.PROTOTYPE_CORRECTED.get(size, (cycles, printed))
        error = papers.PROTOTYPE_ERRATA.get(size)
        row = Row([str(size), table.erratum(cycles, error if right[0] != cycles else None)], [], [])
        rate = papers.mbit_s(size, ours[size], papers.PROTOTYPE_MHZ) if size in ours else None
        row.cells += [f"{ours[size]:g}" if rate else table.missing(script("sections.py")), table.erratum(printed, error if right[1] != printed else None)]
        row.cells += [f"{rate:.0f}" if rate else table.missing(script("sections.py")), table.missing(route("DES-ECB", "1/1/1/1"))]
        row.verdicts = [records.judge(verdict(ours.get(size), cycles, less=True), record), records.judge(verdict(rate, printed), record), Verdict(MISSING)]
        row.sources = [records.cite(record) if record else table.missing(script("sections.py"))]
        table.rows.append(row)
    return table


def gateway_logic(records: Records, cipher: str) -> Table:
    table = Table(
        papers.GATEWAY_TABLES[cipher][0], f"implementation of the {cipher.split('-')[0]} configurations", "Section V; the paper's on a Stratix V, ours on an LFE5U-85F",
        ("units", "paper, logic", "ours, LUT4", "ours, flip-flops", "ours, logic", "paper, MHz", "ours, MHz"), 1, ("clock",), (UNITS_NOTE,), at=(6,),
        reproduce="the row's line in `rtl/syn/all.sh`, which `make rtl` runs.",
    )  # fmt: skip
    for each in papers.CONFIGURATIONS:
        if each.cipher != cipher:
            continue
        found, row = sections.built(each), Row([each.name, f"{each.logic_percent} %"], [], [])
        why, judged = (by_part(found["mhz"], 1), verdict(found["mhz"], each.clock_mhz)) if found["mhz"] else unrouted(table, each)
        if found["record"]:
            row.cells += [str(found["cells"]["LUT4"]), str(found["cells"]["TRELLIS_FF"]), f"{found['share']:.0%}"]
        else:
            row.cells += [why] * 3
        row.cells += [str(each.clock_mhz), why]
        row.verdicts, row.sources = [records.judge(judged, found["record"])], [records.cite(found["record"]) if found["record"] else why]
        table.rows.append(row)
    return table


def gateway_stream(records: Records, record: dict | None, cipher: str, number: str, size: int) -> Table:
    configurations = [each for each in papers.CONFIGURATIONS if each.cipher == cipher]
    mhz = ", ".join(f"{each.clock_mhz} MHz for {each.name}" for each in configurations)
    table = Table(
        number, f"throughput of {cipher.split('-')[0]} for {size}-byte packets", "Section V",
        ("units", "packets", "paper, cycles", "one port, cycles", "a port each, cycles", "paper, Mbit/s", "one port, Mbit/s", "a port each, Mbit/s",
         "one port at our clock"), 2, ("one port", "a port each", "our clock"),
        (UNITS_NOTE, "Ours has one port, or a port for each policy unit. Both rates of ours, and the paper's cycles, are computed at the paper's clock: "
         f"{mhz}.",), at=(6, 7, 8),
        reproduce=sections_bench("--units", configurations[0].name, "--sizes", str(size), "--streams", str(papers.STREAMS[0]), "--ports", "one"),
    )  # fmt: skip
    measured = {(row["cipher"], row["units"], row["ports"], row["bytes"], row["packets"]): row for row in record["rows"]} if record else {}
    for each in configurations:
        built = sections.built(each)
        for packets, printed in zip(papers.STREAMS, each.paper.get(size, ())):
            ours = [measured.get((cipher, each.name, ports, size, packets)) for ports in (1, each.policies)]
            row = Row([each.name, str(packets), str(round(8 * size * packets / printed * each.clock_mhz))], [], [])
            row.cells += [str(one["cycles"]) if one else table.missing(script("sections.py")) for one in ours]
            rates = [papers.mbit_s(size * packets, one["cycles"], each.clock_mhz) if one else None for one in ours]
            row.cells += [str(printed), *(f"{rate:.0f}" if rate else table.missing(script("sections.py")) for rate in rates)]
            row.verdicts = [records.judge(verdict(rate, printed), record) for rate in rates]
            reached = sections.our_mbit_s(ours[0], "cycles", packets) if ours[0] else {}
            why, judged = (by_part(reached, 0), verdict(reached, printed)) if reached else unrouted(table, each)
            row.cells.append(why)
            row.verdicts.append(records.judge(judged, record, built["record"]))
            row.sources = [records.cite(record) if record else table.missing(script("sections.py"))]
            table.rows.append(row)
        if built["record"]:
            records.cite(built["record"])
    return table


def gateway(records: Records) -> list[Table]:
    record = records.newest("sections", "rows", "units")
    tables = [gateway_prototype(records, record)]
    for cipher, (number, streams) in papers.GATEWAY_TABLES.items():
        tables.append(gateway_logic(records, cipher))
        tables += [gateway_stream(records, record, cipher, name, size) for name, size in zip(streams, papers.SIZES)]
    return tables


# The Zynq core


def ecp5(arguments: str) -> str:
    return f"`rtl/run python rtl/syn/ecp5.py {arguments}`"


def zynq_fields() -> Table:
    table = Table("1", "sizes of ESP's header, trailer and ICV", "Section 4", ("field", "paper", "ours"), 3, ())
    ours = {"Padding": "0 to 3 bytes, to a multiple of four"}
    table.rows = [Row([name, size, ours.get(name, "the same")], [], ["[the RTL](../rtl/README.md)"]) for name, size in papers.ZYNQ_FIELDS]
    return table


def zynq_parts(records: Records) -> Table:
    table = Table(
        "2", "AES-256, SHA-256 and GHASH alone", "Section 4; the paper's on a Zynq-7000, ours on ECP5",
        ("part", "paper, cycles a block", "ours", "paper, slices", "ours, LUT4", "paper, MHz", "ours, MHz", "paper, Gbit/s", "ours, Gbit/s"), 1,
        ("cycles", "clock", "Gbit/s"),
        ("A block of SHA-256 has 512 bits, one of the others 128. A slice has four LUTs of six inputs; ours have four inputs.",), at=(2, 6, 8),
        reproduce=f"{ecp5('--top sha256_core --aim 250 --seeds 1,2,3')}, minutes; the others are in `rtl/syn/all.sh`.",
    )  # fmt: skip
    for part in papers.ZYNQ_PARTS:
        ours = zynq.built(part, part.module)
        missing = None if ours["record"] else table.missing(ROUTE)
        row = Row([part.name, str(part.paper_cycles), str(part.cycles), str(part.slices)], [], [])
        row.cells.append(missing or str(ours["cells"]["LUT4"]))
        row.cells += [str(part.mhz), by_part(ours["mhz"], 1) or table.missing(ROUTE)]
        row.cells += [f"{part.gbit_s:g}", by_part(ours["gbit_s"], 2) or table.missing(ROUTE)]
        row.verdicts = [verdict(part.cycles, part.paper_cycles, less=True)]
        row.verdicts += [records.judge(verdict(ours[key], paper), ours["record"]) for key, paper in (("mhz", part.mhz), ("gbit_s", part.gbit_s))]
        row.sources = [records.cite(ours["record"])] if ours["record"] else [missing]
        table.rows.append(row)
    return table


def zynq_logic(records: Records) -> Table:
    table = Table(
        "3", "logic of the core", "Section 6, on an XC7Z045; ours on an LFE5U-85F", ("lane", "paper, LUT", "ours, LUT4", "ours, flip-flops"), 1, ("LUTs",),
        ("The paper's LUTs have six inputs, ours four. The paper's core has both suites; our lanes are without hash units.",), at=(2,),
        reproduce=f"{ecp5('--top shell_esp_out --set PolicyPiece=4 --synthesis-only')}, minutes.",
    )  # fmt: skip
    for lane in zynq.LANES:
        ours = zynq.built(None, lane)
        counts = [ours["cells"].get(kind) for kind in ("LUT4", "TRELLIS_FF")]
        source = records.cite(ours["record"]) if ours["record"] else table.missing(ROUTE)
        cells = [str(count) if count else table.missing(ROUTE) for count in counts]
        judged = records.judge(verdict(counts[0], papers.ZYNQ_LUTS, less=True), ours["record"])
        table.rows.append(Row([lane, str(papers.ZYNQ_LUTS), *cells], [judged], [source]))
    return table


def zynq_clock(records: Records) -> Table:
    table = Table("4", "highest clock of the core", "Section 6", ("suite", "lane", "our hash units", "paper, MHz", "ours, MHz"), 2, ("clock",), at=(4,),
                  reproduce="the lane's line in `rtl/syn/all.sh`, about an hour for each part.")  # fmt: skip
    for suite, paper in sorted(papers.ZYNQ_MHZ.items(), reverse=True):
        for lane in zynq.LANES:
            units = (0,) if suite == papers.GCM else zynq.UNITS
            count, found = next(((n, found) for n in units if (found := clocks.routed(lane, HmacUnits=n))), (units[0], {}))
            best = {part: one["mhz"] for part, one in found.items()}
            made = clock_records(found)
            cells = [papers.SUITES[suite], lane, str(count), str(paper), by_part(best, 1) or table.missing(ROUTE)]
            table.rows.append(Row(cells, [records.judge(verdict(best, paper), *made)], [*map(records.cite, made)] or [table.missing(ROUTE)]))
    return table


def zynq_packets(records: Records, record: dict | None, number: int) -> Table:
    rows = [paper for paper in papers.ZYNQ if paper.table == number]
    table = Table(
        str(number), f"{'NAT' if rows[0].udp else 'non-NAT'} mode with {rows[0].bytes}-byte packets", "Section 6",
        ("suite", "lane", "paper, cycles", "interval", "with one hash unit", "latency", "paper, Gbit/s", "at the paper's clock", "at our clock"), 2,
        ("interval", "interval, one hash unit", "latency", "the paper's clock", "our clock"),
        (f"Ours are the interval and the latency in cycles, and Gbit/s. The lanes have {zynq.FULL} hash units, but for the rates at our clock that say "
         "otherwise. The clocks are those of table 4.",), at=(3, 4, 5, 7, 8),
        reproduce=f"`{script('zynq.py')} --units {zynq.FULL}` for the cycles, which writes no record.",
    )  # fmt: skip
    measured = {(row["suite"], row["lane"]): row for row in record["rows"] if row["table"] == number} if record else {}
    single = {(row["module"], row["bytes"], row["udp"]): row["interval"] for row in record["units"] if row["units"] == 1} if record else {}
    for paper in rows:
        for lane in zynq.LANES:
            ours = measured.get((papers.SUITES[paper.suite], lane))
            missing = None if ours else table.missing(script("zynq.py"))
            row = Row([papers.SUITES[paper.suite], lane, str(paper.cycles)], [], [])
            rates = ours["routed"] if ours else {}
            some = ours and rates and ours["routed_units"] not in (0, zynq.FULL)
            one = single.get((lane, paper.bytes, paper.udp)) if paper.suite == papers.CTR else None
            row.cells += [f"{ours['interval']:g}", f"{one:g}" if one else missing or NONE, str(ours["latency"])] if ours else [missing] * 3
            row.cells += [f"{paper.gbit_s:.3f}", f"{ours['gbit_s']:.2f}" if ours else missing]
            made = clock_records(clocks.routed(lane, HmacUnits=ours["routed_units"]) if ours else {})
            row.cells.append((by_part(rates, 2) or missing or table.missing(ROUTE)) + (f", {ours['routed_units']} hash units" if some else ""))
            judged = [verdict(ours and ours[key], paper.cycles, less=True) for key in ("interval", "latency")]
            judged.insert(1, verdict(one, paper.cycles, less=True) if paper.suite == papers.CTR else Verdict(NONE))
            row.verdicts = [records.judge(given, record) for given in (*judged, verdict(ours and ours["gbit_s"], paper.gbit_s))]
            row.verdicts.append(records.judge(verdict(rates, paper.gbit_s), record, *made))
            row.sources = [records.cite(record), *map(records.cite, made)] if ours else [missing]
            table.rows.append(row)
    return table


def zynq_core(records: Records) -> list[Table]:
    record = records.newest("zynq", "rows", "units")
    if record:
        zynq.at_our_clock(record)
    numbers = dict.fromkeys(row.table for row in papers.ZYNQ)
    return [zynq_fields(), zynq_parts(records), zynq_logic(records), zynq_clock(records), *(zynq_packets(records, record, number) for number in numbers)]


# PIPSEA


def gpu_records(records: Records) -> list[dict]:
    """The newest record of each device, in the form with parts."""
    newest: dict[str, dict] = {}
    for record in records.all("gpu-*"):
        if any(case.get("part") == "closed" for case in record["cases"]):
            newest.setdefault(record["device"], record)
    return [newest[device] for device in sorted(newest)]


def pipsea(records: Records) -> list[Table]:
    table = Table(
        "of headlines", "throughput and average latency", "Abstract and introduction; the copy that we have ends before the evaluation",
        ("packets", "suite", "our row, device", "paper, Gbit/s", "ours, Gbit/s", "one core of our CPU", "paper, ms", "ours, ms", "at a load of"), 3,
        ("Gbit/s", "latency"),
        ("Ours have launches back to back, from host memory to host memory, without network cards; the latency is the mean at the paper's load. A device that does not "
         "reach that load has the latency at three quarters of its own highest, which counts as `no`. The rows are described in `bench/gpu.py`.",), at=(4, 7), reproduce=f"`{script('gpu.py')}`, ten minutes on an idle machine.",
    )  # fmt: skip
    found = gpu_records(records)
    for headline in papers.PIPSEA:
        for record in found or [None]:
            missing = None if record else table.missing(script("gpu.py --device H100"))
            # The paper's kernels are held against the constant-time ones.
            rows = [case for case in record["cases"] if case.get("row") == headline.row and not case.get("tables")] if record else []
            full = next((case for case in rows if (case["part"], case.get("arrangement")) == ("closed", "full")), None)
            loads = [case for case in rows if case["part"] == "open"]
            # The bench measures the paper's load too where the device reaches it. Records without shares have all loads, in their order.
            paper_load = next((case for case in loads if abs(case["offered_gbits"] - headline.gbit_s) < 0.001), None)
            of_highest = next((case for case in loads if case.get("share") == COMPARED_LOAD), None)
            if loads and "share" not in loads[0]:
                of_highest = loads[2]
            open_ = paper_load or of_highest
            none = missing or table.missing(script("gpu.py"))
            cells = [headline.packets, headline.suite, f"{headline.row}, {record['device']}" if record else headline.row, f"{headline.gbit_s:.2f}"]
            core = next((case for case in rows if (case["part"], case.get("engine")) == ("closed", "cpu")), None)
            cells += [f"{case['gbits']:.2f}" if case else none for case in (full, core)] + [f"{headline.latency_ms:.2f}"]
            cells += [f"{open_['latency_us'] / 1000:.2f}", f"{open_['offered_gbits']:.2f}"] if open_ else [none] * 2
            judged = [verdict(full and full["gbits"], headline.gbit_s), verdict(open_ and open_["latency_us"] / 1000, headline.latency_ms, less=True)]
            if open_ and not paper_load:
                judged[1] = Verdict.of("no", judged[1].ratios)
            table.rows.append(Row(cells, judged, [records.cite(record) if record else missing]))
    return [table]


NOTES = {
    "vpn-ab": paper_vpn_ab.NOTES,
    "gateway": [*sections.NOTES, "What does not fit an LFE5U-85F, the largest ECP5, counts as `no` at our clock."],
    "zynq": list(zynq.NOTES[:3]) + ["If the paper's cycles are a latency, the column *latency* is the one that counts."],
    "ace": paper_ace.NOTES,
    "pipsea": ["The paper does not name its six algorithms. Ours are the row R3 of the bench: AES-CBC, AES-CTR and NULL, each with HMAC-MD5 and HMAC-SHA1."],
}  # fmt: skip
BUILDERS = {"vpn-ab": paper_vpn_ab.tables, "gateway": gateway, "zynq": zynq_core, "ace": paper_ace.tables, "pipsea": pipsea}


def picture_of(section: Section) -> Path:
    return PAGE.with_name(f"papers-{section.key}.svg")


def page(records: Records) -> tuple[str, list[Section]]:
    """The page, and its sections."""
    found = []
    for paper in papers.PAPERS:
        about = f"{paper.title}{f', by {paper.authors}' if paper.authors else ''}."
        section = Section(paper.key, paper.name, [about, *NOTES[paper.key]], BUILDERS[paper.key](records))
        section.picture = picture_of(section).name if ratios.picture(section) else ""
        found.append(section)
    return markdown(TITLE, INTRO, found, records.listed()), found


def measure() -> bool:
    """Runs every bench that fills a table. Returns true if all of them worked."""
    worked, python = True, ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        print("there is no .venv: run tools/deps.sh")
        return False
    for name, cost in LIVE:
        path = ROOT / "bench" / f"{name}.py"
        if not path.exists():
            print(f"SKIP bench/{name}.py: not in this checkout")
            continue
        print(f"bench/{name}.py: {cost}", flush=True)
        begun = time.monotonic()
        done = subprocess.run([str(python), str(path)], cwd=ROOT)
        print(f"bench/{name}.py took {(time.monotonic() - begun) / 60:.1f} minutes and ended with {done.returncode}", flush=True)
        worked = worked and done.returncode == 0
    return worked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="measure first; each bench is named with its minutes")
    options = parser.parse_args()
    worked = measure() if options.live else True
    text, found = page(Records())
    print(text)
    PAGE.write_text(text)
    for section in found:
        if section.picture:
            picture_of(section).write_text(ratios.picture(section))
    OUT.mkdir(parents=True, exist_ok=True)
    moved = text.replace("](../", "](../../").replace("](features.md)", "](../../docs/features.md)").replace("](papers-", "](../../docs/papers-")
    (OUT / "papers.html").write_text(html_page(TITLE, moved))
    print(f"written: {PAGE.relative_to(ROOT)} and its pictures, {OUT.relative_to(ROOT)}/papers.html", file=sys.stderr)
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main())
