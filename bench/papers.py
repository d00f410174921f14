"""Prints every table of the five papers beside our figures, from the newest committed records, and writes docs/papers.md,
and a page of HTML with pictures below target/papers.

`--live` first measures what this machine can measure; that takes long. Placing and routing is `make rtl`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import clocks
import paper_tables as papers
import sections
import zynq
from ace_software import transform
from engine import fastest_tier
from gpu import COMPARED_LOAD
from pages import MISSING, NONE, Row, Section, Table, html_page, markdown, plot, verdict
from setups import ROOT
from tunnel import RECORDS

PAGE = ROOT / "docs" / "papers.md"
OUT = ROOT / "target" / "papers"
PYTHON = ".venv/bin/python"
ROUTE = "make rtl"  # places and routes what the records have
TITLE = "Five papers beside Esplanade"
INTRO = [
    "`make papers` writes this page from the records in `bench/records`; a test compares them. The papers' figures are in "
    "`bench/paper_tables.py`. Each row names its record, whose name begins with its date, and where the record was made.", "",
    "*Computed* is a figure that nobody timed: bits of the inner packet ÷ cycles × clock, as three of the papers have it. Cycles a packet "
    "come first, since they do not depend on the technology; then throughput at the paper's clock, then at the clock of our placed and routed "
    "design. *Better* is `yes`, `no`, or `partly` where some of our parts or clocks are above the paper's figure and others are not. "
    "An equal figure is not better. † marks a figure that is wrong in the paper; it is compared as it was printed.", "",
    "How many comparisons came out in which way:",
]  # fmt: skip
# The benches that fill the tables, and their minutes without compiling: by the times that they are set to, or as noted in
# bench/README.md.
LIVE = (
    ("vpn_ab", "1 minute or more, by its settings"), ("walk", "minutes not noted"), ("sections", "5 minutes on two idle cores"),
    ("zynq", "minutes not noted"), ("gpu", "7 minutes or more, by its settings"), ("ace_cores", "minutes not noted"),
    ("ace_software", "1 minute"), ("ace", "minutes not noted"),
)  # fmt: skip


class Records:
    """The newest records of each kind, and those that the tables have used."""

    def __init__(self, folder: Path = RECORDS):
        self.folder, self.used = folder, {}

    def all(self, kind: str) -> list[dict]:
        """The records whose names have this after the date, newest first."""
        paths = sorted(self.folder.glob(f"????-??-??-{kind}.json"), reverse=True)
        return [json.loads(path.read_text()) | {"file": path.stem} for path in paths]

    def newest(self, kind: str, *keys: str) -> dict | None:
        return next((record for record in self.all(kind) if all(key in record for key in keys)), None)

    def cite(self, record: dict) -> str:
        self.used[record["file"]] = record
        return f"[{record['file']}.json](../bench/records/{record['file']}.json), {made(record)}"

    def listed(self) -> list[str]:
        rows = [f"- {self.cite(self.used[name])}: {self.used[name]['date']}, commit {self.used[name]['commit']}" for name in sorted(self.used)]
        return ["## Records", "", *rows]


def made(record: dict) -> str:
    """Where a record was made."""
    if machine := record.get("machine"):
        return f"{machine['cores']} × {machine['cpu']}" + (f", device {record['device']}" if "device" in record else "")
    return ("placed and routed" if record["routed"] else "synthesised") if "routed" in record else "simulated"


def script(name: str) -> str:
    return f"{PYTHON} bench/{name}"


def by_part(rates: dict[str, float], digits: int, mhz: dict[str, float] | None = None) -> str:
    """A figure for each part, with the clock that it was computed for."""
    return ", ".join(f"{rate:.{digits}f} ({part}{f', {mhz[part]:g} MHz' if mhz else ''})" for part, rate in rates.items())


# VPN-AB


TIERS = ("portable", "aesni", "avx512")
OTHER_MACHINE = "The cycles of the packet path are those of another machine of this name, with other instructions."


def engine_cores(record: dict, suite: str, size: str, cores: int) -> tuple[str, list[tuple[float, float]]] | None:
    """The fastest tier, and for each core its cycles a packet and the clock in GHz."""
    wanted = (suite, size, "seal", papers.VPN_AB_TUNNELS, cores)
    found = [case for case in record["cases"] if (case["suite"], case["size"], case["direction"], case["keys"], case.get("cores", 1)) == wanted]
    largest = max((case["batch"] for case in found), default=0)
    each = [case["contenders"] for case in found if case["batch"] == largest]
    if len(each) != cores:
        return None
    name = fastest_tier(list(each[0]))
    return name.removeprefix("Esplanade "), [(contenders[name]["median"], contenders[name]["ghz"]) for contenders in each]


def walk_cycles(walks: list[dict], machine: dict) -> tuple[float, dict] | None:
    """The cycles of the outbound packet path without crypto, for as many SAs as the paper has tunnels, on such a machine.

    Machines of one name may have other instructions: a walk of a machine that has the same ones is taken first.
    """
    wanted = ("outbound", papers.VPN_AB_TUNNELS, papers.VPN_AB_TUNNELS, 64)
    found = [
        (case["cycles_median"], record)
        for record in walks
        for case in record["cases"]
        if record["machine"]["cpu"] == machine["cpu"] and (case["direction"], case["sas"], case["policies"], case["bytes"]) == wanted
    ]
    return next((one for one in found if is_like(one[1]["machine"], machine)), found[0] if found else None)


def is_like(one: dict, other: dict) -> bool:
    return one.get("flags") == other.get("flags")


def mean_bytes(size: str) -> float:
    return sum(map(int, size.split("-"))) / len(size.split("-"))


def vpn_ab_engine(records: Records) -> tuple[Table, float | None]:
    """Table II, and our best Gbit/s where the paper has its own."""
    table = Table(
        "II", "performance of VPN-AB", "Section IV.B, Gbit/s at the load that was offered",
        ("policy, tunnel ESP", "bytes", "our cores", "paper, Gbit/s", "our tier", "ours, cycles in the engine", "clock, GHz", "engine alone, Gbit/s, computed",
         "with the packet path, Gbit/s, computed"), 3, ("with the packet path",),
        ("The bytes of ours are payload and trailer, sealed by the fastest tier of the CPU engine with 10,000 keys in random order. The packet path is our "
         "outbound walk with 10,000 SAs and as many policies, whose cycles come on top; network cards are in the paper's figures and not in ours. "
         "Not every machine has the tier avx512: a row is of the best tier that a record has for it.",),
        unit="Gbit/s",
    )  # fmt: skip
    best, walks = None, records.all("walk-*")
    candidates = [*records.all("vpn-ab-*"), *records.all("engine-*")]
    for suite, printed in papers.VPN_AB.items():
        for size, load, paper in zip(papers.VPN_AB_SIZES, papers.VPN_AB_LOADS, printed):
            for cores in (1, 2):
                name = f"random {size}" if "-" in size else size
                shown = table.erratum(f"{paper} ({load} %)", papers.VPN_AB_ERRATA.get((suite, size)))
                row = Row([papers.VPN_AB_NAMES[suite], name, str(cores), shown], [MISSING], [], {"paper": paper})
                table.rows.append(row)
                measured = [(TIERS.index(found[0]), one, found) for one in candidates if (found := engine_cores(one, suite, size, cores))]
                if not measured:
                    row.cells += [table.missing(script("vpn_ab.py"))] * 5
                    row.sources.append(table.missing(script("vpn_ab.py")))
                    continue
                _, record, (tier, each) = max(measured, key=lambda one: one[0])
                bits = 8 * mean_bytes(size)
                row.cells += [tier, f"{statistics.mean(cycles for cycles, _ in each):.0f}", f"{statistics.mean(ghz for _, ghz in each):.2f}"]
                row.cells.append(f"{sum(bits / cycles * ghz for cycles, ghz in each):.2f}")
                row.sources.append(records.cite(record))
                if walked := walk_cycles(walks, record["machine"]):
                    rate = sum(bits / (cycles + walked[0]) * ghz for cycles, ghz in each)
                    row.cells.append(f"{rate:.2f}")
                    if not is_like(walked[1]["machine"], record["machine"]):
                        row.cells[-1] += f" {table.label(OTHER_MACHINE)}"
                    row.sources.append(records.cite(walked[1]))
                    row.verdicts = [verdict(rate, paper)]
                    row.bars[f"ours, {'one core' if cores == 1 else 'two cores'}"] = rate
                    if (suite, size) == ("3DES/HMAC_MD5_96", "1024"):
                        best = max(best or 0, rate)
                else:
                    row.cells.append(table.missing(script("walk.py")))
    return table, best


def vpn_ab_compared(records: Records, best: float | None) -> Table:
    table = Table("III", "VPN-AB beside other equipment, its own column", "Section IV.B", ("item", "VPN-AB", "ours"), 3, ("",))
    table.rows += [
        Row(["variable cryptographies", "√", "every algorithm of RFC 8221"], [NONE], ["[features](features.md)"]),
        Row(["compatibility", "FreeS/WAN", "strongSwan, libreswan"], [NONE], ["[interop](../interop/README.md)"]),
    ]  # fmt: skip
    table.rows.append(Row(
        ["performance (3DES/MD5)", f"{papers.VPN_AB_GBIT_S} Gbit/s", f"{best:.2f} Gbit/s at 1024 bytes" if best else table.missing(script("vpn_ab.py"))],
        [verdict(best, papers.VPN_AB_GBIT_S)], ["[table II](#table-ii-performance-of-vpn-ab)"],
    ))  # fmt: skip
    held = records.newest("sa-memory-*", "results")
    most = max((one["pairs"] for one in held["results"]), default=None) if held else None
    command = "cargo run --locked --release -p esplanade-ipsec --example sa_memory -- 1000000"
    table.rows.append(Row(
        ["tunnels", f"{papers.VPN_AB_TUNNELS:,}", f"{most:,} pairs of SAs held in memory" if held else table.missing(command)],
        [verdict(most, papers.VPN_AB_TUNNELS)], [records.cite(held) if held else table.missing(command)],
    ))  # fmt: skip
    return table


def vpn_ab(records: Records) -> list[Table]:
    table, best = vpn_ab_engine(records)
    return [table, vpn_ab_compared(records, best)]


# Gateway 2.0

UNITS_NOTE = "Units are those for policy, SAD, ciphering and HMAC."


def route(cipher: str, units: str, *more: str) -> str:
    """The command that places and routes a configuration."""
    counts = [int(count) for count in units.split("/")]
    configuration = papers.Configuration(cipher, *counts, 0, 0, {})
    settings = " ".join(f"--set {key}={value}" for key, value in sections.parameters(configuration, 1).items() if key != "Ports")
    return " ".join([f"rtl/run python rtl/syn/ecp5.py --top esp_sections --name esp_sections-{cipher[:3].lower()}-{units.replace('/', '-')}", settings, *more])


def unrouted(table: Table, configuration: papers.Configuration) -> tuple[str, str]:
    """Why a configuration has no clock of ours, and the verdict on it."""
    found = sections.built(configuration)
    if found["record"] and found["why"] == "does not fit":
        memory = found["cells"]["DP16KD"] / sections.BLOCK_RAMS
        why = table.label(f"{configuration.cipher} {configuration.name} takes {found['share']:.0%} of the LUTs and {memory:.0%} of the block RAMs.")
        return f"does not fit an LFE5U-85F {why}", "no"
    more = [] if found["record"] else ["--synthesis-only"]
    return table.missing(route(configuration.cipher, configuration.name, *more)), MISSING


def gateway_prototype(records: Records, record: dict | None) -> Table:
    table = Table(
        "I", "performance of the prototype", f"Section III.B, {papers.PROTOTYPE_MHZ} MHz on a Cyclone II",
        ("bytes", "paper, cycles", "ours, cycles", "paper, Mbit/s", "ours at the paper's clock, Mbit/s, computed", "ours at our clock, Mbit/s, computed"), 1,
        ("cycles", "the paper's clock", "our clock"),
        ("Ours has one unit of each kind; its cycles are from packet to packet.",), unit="Mbit/s",
    )  # fmt: skip
    ours = sections.prototype_cycles(record) if record else {}
    for size, cycles, printed in papers.PROTOTYPE:
        right = papers.PROTOTYPE_CORRECTED.get(size, (cycles, printed))
        error = papers.PROTOTYPE_ERRATA.get(size)
        row = Row([str(size), table.erratum(cycles, error if right[0] != cycles else None)], [], [])
        rate = papers.mbit_s(size, ours[size], papers.PROTOTYPE_MHZ) if size in ours else None
        row.cells += [f"{ours[size]:g}" if rate else table.missing(script("sections.py")), table.erratum(printed, error if right[1] != printed else None)]
        row.cells += [f"{rate:.0f}" if rate else table.missing(script("sections.py")), table.missing(route("DES-ECB", "1/1/1/1"))]
        row.verdicts = [verdict(ours.get(size), cycles, less=True), verdict(rate, printed), MISSING]
        row.sources = [records.cite(record) if record else table.missing(script("sections.py"))]
        row.bars = {"paper": printed} | ({"ours at the paper's clock": rate} if rate else {})
        table.rows.append(row)
    return table


def gateway_logic(records: Records, cipher: str) -> Table:
    table = Table(
        papers.GATEWAY_TABLES[cipher][0], f"implementation of the {cipher.split('-')[0]} configurations", "Section V; the paper's on a Stratix V, ours on an LFE5U-85F",
        ("units", "paper, logic", "ours, LUT4", "ours, flip-flops", "ours, logic", "paper, MHz", "ours, MHz"), 1, ("clock",), (UNITS_NOTE,),
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
        row.verdicts, row.sources = [judged], [records.cite(found["record"]) if found["record"] else why]
        table.rows.append(row)
    return table


def gateway_stream(records: Records, record: dict | None, cipher: str, number: str, size: int) -> Table:
    table = Table(
        number, f"throughput of {cipher.split('-')[0]} for {size}-byte packets", "Section V",
        ("units", "packets", "paper, cycles, computed", "ours, one port", "ours, a port for each policy unit", "paper, Mbit/s",
         "ours at the paper's clock, one port, computed", "ours at the paper's clock, a port each, computed", "ours at our clock, one port, computed"), 2,
        ("one port", "a port each", "our clock"), (UNITS_NOTE,), unit="Mbit/s",
    )  # fmt: skip
    measured = {(row["cipher"], row["units"], row["ports"], row["bytes"], row["packets"]): row for row in record["rows"]} if record else {}
    for each in papers.CONFIGURATIONS:
        for packets, printed in zip(papers.STREAMS, each.paper.get(size, ()) if each.cipher == cipher else ()):
            ours = [measured.get((cipher, each.name, ports, size, packets)) for ports in (1, each.policies)]
            row = Row([each.name, str(packets), str(round(8 * size * packets / printed * each.clock_mhz))], [], [], {"paper": printed})
            row.cells += [str(one["cycles"]) if one else table.missing(script("sections.py")) for one in ours]
            rates = [papers.mbit_s(size * packets, one["cycles"], each.clock_mhz) if one else None for one in ours]
            row.cells += [str(printed), *(f"{rate:.0f} ({each.clock_mhz} MHz)" if rate else table.missing(script("sections.py")) for rate in rates)]
            row.verdicts = [verdict(rate, printed) for rate in rates]
            reached = sections.our_mbit_s(ours[0], "cycles", packets) if ours[0] else {}
            mhz = sections.built(each)["mhz"]
            why, judged = (by_part(reached, 0, mhz), verdict(reached, printed)) if reached else unrouted(table, each)
            row.cells.append(why)
            row.verdicts.append(judged)
            row.sources = [records.cite(record) if record else table.missing(script("sections.py"))]
            if built := sections.built(each)["record"]:
                row.sources.append(records.cite(built))
            row.bars |= {name: rate for name, rate in zip(("ours at the paper's clock, one port", "ours, a port each"), rates) if rate}
            table.rows.append(row)
    return table


def gateway(records: Records) -> list[Table]:
    record = records.newest("sections", "rows", "units")
    tables = [gateway_prototype(records, record)]
    for cipher, (number, streams) in papers.GATEWAY_TABLES.items():
        tables.append(gateway_logic(records, cipher))
        tables += [gateway_stream(records, record, cipher, name, size) for name, size in zip(streams, papers.SIZES)]
    return tables


# The Zynq core


def zynq_fields() -> Table:
    table = Table("1", "sizes of ESP's header, trailer and ICV", "Section 4", ("field", "paper", "ours"), 3, ("",))
    ours = {"Padding": "0 to 3 bytes, to a multiple of four"}
    table.rows = [Row([name, size, ours.get(name, "the same")], [NONE], ["[the RTL](../rtl/README.md)"]) for name, size in papers.ZYNQ_FIELDS]
    return table


def zynq_parts(records: Records) -> Table:
    table = Table(
        "2", "AES-256, SHA-256 and GHASH alone", "Section 4; the paper's on a Zynq-7000, ours on ECP5",
        ("part", "paper, cycles a block", "ours", "paper, logic", "ours, LUT4", "paper, MHz", "ours, MHz", "paper, Gbit/s", "ours, Gbit/s, computed"), 1,
        ("cycles", "clock", "Gbit/s"),
        ("A block of SHA-256 has 512 bits, one of the others 128. A slice has four LUTs of six inputs; ours have four inputs.",), unit="Gbit/s",
    )  # fmt: skip
    for part in papers.ZYNQ_PARTS:
        ours = zynq.built(part, part.module)
        missing = None if ours["record"] else table.missing(ROUTE)
        row = Row([part.name, str(part.paper_cycles), str(part.cycles), f"{part.slices} slices"], [], [], {"paper": part.gbit_s})
        row.cells.append(missing or str(ours["cells"]["LUT4"]))
        row.cells += [str(part.mhz), by_part(ours["mhz"], 1) or table.missing(ROUTE)]
        row.cells += [f"{part.gbit_s:g}", by_part(ours["gbit_s"], 2, ours["mhz"]) or table.missing(ROUTE)]
        row.verdicts = [verdict(part.cycles, part.paper_cycles, less=True), verdict(ours["mhz"], part.mhz), verdict(ours["gbit_s"], part.gbit_s)]
        row.sources = [records.cite(ours["record"])] if ours["record"] else [missing]
        row.bars |= ours["gbit_s"]
        table.rows.append(row)
    return table


def cited_clocks(records: Records, routed: dict[str, dict]) -> list[str]:
    """Cites the records of place and route that clocks come from, as `clocks.routed` names them."""
    files = dict.fromkeys(one["file"] for one in routed.values())
    return [records.cite(json.loads((RECORDS / f"{file}.json").read_text()) | {"file": file}) for file in files]


def zynq_logic(records: Records) -> Table:
    table = Table(
        "3", "logic of the core", "Section 6, on an XC7Z045; ours on an LFE5U-85F", ("lane", "paper", "ours, LUT4", "ours, flip-flops"), 2, ("LUTs",),
        ("The paper's LUTs have six inputs, ours four. The paper's core has both suites; our lanes are without hash units.",),
    )  # fmt: skip
    for lane in zynq.LANES:
        ours = zynq.built(None, lane)
        counts = [ours["cells"].get(kind) for kind in ("LUT4", "TRELLIS_FF")]
        source = records.cite(ours["record"]) if ours["record"] else table.missing(ROUTE)
        cells = [str(count) if count else table.missing(ROUTE) for count in counts]
        table.rows.append(Row([lane, f"{papers.ZYNQ_LUTS} LUT", *cells], [verdict(counts[0], papers.ZYNQ_LUTS, less=True)], [source]))
    return table


def zynq_clock(records: Records) -> Table:
    table = Table("4", "highest clock of the core", "Section 6", ("suite", "lane", "paper, MHz", "ours, MHz", "our hash units"), 2, ("clock",))
    for suite, paper in sorted(papers.ZYNQ_MHZ.items(), reverse=True):
        for lane in zynq.LANES:
            units = (0,) if suite == papers.GCM else zynq.UNITS
            count, found = next(((n, found) for n in units if (found := clocks.routed(lane, HmacUnits=n))), (units[0], {}))
            best = {part: one["mhz"] for part, one in found.items()}
            cited = cited_clocks(records, found)
            cells = [papers.SUITES[suite], lane, str(paper), by_part(best, 1) or table.missing(ROUTE), str(count)]
            table.rows.append(Row(cells, [verdict(best, paper)], cited or [table.missing(ROUTE)]))
    return table


def zynq_packets(records: Records, record: dict | None, number: int) -> Table:
    rows = [paper for paper in papers.ZYNQ if paper.table == number]
    table = Table(
        str(number), f"{'NAT' if rows[0].udp else 'non-NAT'} mode with {rows[0].bytes}-byte packets", "Section 6",
        ("suite", "lane", "paper, cycles", "ours, interval", "the same with one hash unit", "ours, latency", "paper, Gbit/s",
         "ours at the paper's clock, Gbit/s, computed", "ours at our clock, Gbit/s, computed"), 2,
        ("interval", "interval, one hash unit", "latency", "the paper's clock", "our clock"),
        (f"The lanes have {zynq.FULL} hash units, but for the rates at our clock that say otherwise.",), unit="Gbit/s",
    )  # fmt: skip
    measured = {(row["suite"], row["lane"]): row for row in record["rows"] if row["table"] == number} if record else {}
    single = {(row["module"], row["bytes"], row["udp"]): row["interval"] for row in record["units"] if row["units"] == 1} if record else {}
    for paper in rows:
        for lane in zynq.LANES:
            ours = measured.get((papers.SUITES[paper.suite], lane))
            missing = None if ours else table.missing(script("zynq.py"))
            row = Row([papers.SUITES[paper.suite], lane, str(paper.cycles)], [], [], {"paper": paper.gbit_s})
            rates = ours["routed"] if ours else {}
            some = ours and rates and ours["routed_units"] not in (0, zynq.FULL)
            one = single.get((lane, paper.bytes, paper.udp)) if paper.suite == papers.CTR else None
            row.cells += [f"{ours['interval']:g}", f"{one:g}" if one else missing or NONE, str(ours["latency"])] if ours else [missing] * 3
            row.cells += [f"{paper.gbit_s:.3f}", f"{ours['gbit_s']:.3f} ({papers.ZYNQ_MHZ[paper.suite]} MHz)" if ours else missing]
            found = clocks.routed(lane, HmacUnits=ours["routed_units"]) if ours else {}
            at_ours = by_part(rates, 2, {part: best["mhz"] for part, best in found.items()}) or missing or table.missing(ROUTE)
            row.cells.append(at_ours + (f", {ours['routed_units']} hash units" if some else ""))
            row.verdicts = [verdict(ours and ours[key], paper.cycles, less=True) for key in ("interval", "latency")]
            row.verdicts.insert(1, verdict(one, paper.cycles, less=True) if paper.suite == papers.CTR else NONE)
            row.verdicts += [verdict(ours and ours["gbit_s"], paper.gbit_s), verdict(rates, paper.gbit_s)]
            row.sources = [records.cite(record), *cited_clocks(records, found)] if ours else [missing]
            row.bars |= ({"ours at the paper's clock": ours["gbit_s"]} if ours else {}) | {f"ours, {part}": rate for part, rate in rates.items()}
            table.rows.append(row)
    return table


def zynq_core(records: Records) -> list[Table]:
    record = records.newest("zynq", "rows", "units")
    if record:
        zynq.at_our_clock(record)
    numbers = dict.fromkeys(row.table for row in papers.ZYNQ)
    return [zynq_fields(), zynq_parts(records), zynq_logic(records), zynq_clock(records), *(zynq_packets(records, record, number) for number in numbers)]


# ACE


def ace_core(record: dict | None, cipher: str) -> dict | None:
    """Our core with the paper's keys of 128 bits, for encryption only."""
    name = f"ace-{cipher.lower()}-128"
    return next((row for row in record["rows"] if row["core"] == name), None) if record else None


def ace_software(record: dict | None, cipher: str) -> dict | None:
    """The longest packets of the cipher on the CPU."""
    found = [case for case in record["cases"] if case["transform"] == transform(cipher)] if record else []
    return max(found, key=lambda case: case["inner"], default=None)


def ace_speed(records: Records) -> list[Table]:
    """Tables 1 and 2."""
    record = records.newest("ace-cores", "rows")
    software = records.newest("ace-software-*", "cases")
    latency = Table(
        "1", "latency of key set-up", "Section 4.2",
        ("cipher", "paper's software, µs", "our software, µs", "paper, µs", "paper, block times", "ours, cycles", "ours, block times", "ours at our clock, µs, computed"), 1,
        ("block times", "µs"), ("From the key to the first round. The paper gives no clock. A block time of ours is that of a block alone. Our software "
                                "expands the keys of an SA: of the cipher and of HMAC-SHA2-256.",), unit="µs",
    )  # fmt: skip
    rate = Table(
        "2", "throughput", "Section 4.2",
        ("cipher", "paper's software, Mbit/s", "our software, Mbit/s", "paper, Mbit/s", "paper, speed-up", "ours, cycles a block alone", "ours, cycles, ring full",
         "a block alone, Mbit/s, computed", "ring full, Mbit/s, computed"), 1, ("a block alone", "ring full"),
        ("The paper gives no clock, so there are no cycles to compare. A full ring has blocks that do not wait for each other. Our software seals one "
         "packet of 1,446 bytes after the other on one core: counter mode with HMAC-SHA2-256.",), unit="Mbit/s",
    )  # fmt: skip
    for cipher in papers.CIPHERS:
        ours = ace_core(record, cipher.name)
        reached = ours["routed"] if ours else {}
        mhz = {part: one["mhz"] for part, one in reached.items()}
        figures = {key: {part: one[key] for part, one in reached.items()} for key in ("latency_us", "one_mbit_s", "mbit_s")}
        blocks = ours["cycles"]["encrypt"] / ours["cycles"]["block"] if ours else None
        for table in (latency, rate):
            missing = None if reached else table.missing(ROUTE) if ours else absent(table, "ace_cores.py")
            sources = [records.cite(record)] if ours else [missing]
            by_cpu = ace_software(software, cipher.name)
            sources.append(records.cite(software) if by_cpu else table.missing(script("ace_software.py")))
            if reached and "record" in ours:
                sources += cited_clocks(records, {cipher.name: {"file": ours["record"]}})
            if table is latency:
                error = papers.ACE_LATENCY_ERRATA.get(cipher.name)
                cells = [f"{cipher.latency_us[0]}", f"{by_cpu['key'] / by_cpu['ghz'] / 1000:.2f}" if by_cpu else sources[1], f"{cipher.latency_us[1]}", table.erratum(cipher.latency_blocks[1], error)]
                cells += [str(ours["cycles"]["encrypt"]), f"{blocks:.2f}"] if ours else [missing] * 2
                cells.append(by_part(figures["latency_us"], 2, mhz) or missing)
                judged = [verdict(blocks, cipher.latency_blocks[1], less=True), verdict(figures["latency_us"], cipher.latency_us[1], less=True)]
                bars = {"paper": cipher.latency_us[1]} | {f"ours, {part}": value for part, value in figures["latency_us"].items()}
            else:
                rate_by_cpu = f"{8 * by_cpu['inner'] * by_cpu['ghz'] * 1000 / by_cpu['seal']:.0f}" if by_cpu else sources[1]
                cells = [f"{cipher.mbit_s[0]}", rate_by_cpu, f"{cipher.mbit_s[1]}", f"{cipher.speed_up}"]
                cells += [str(ours["cycles"]["block"]), f"{ours['cycles']['rate']:g}"] if ours else [missing] * 2
                cells += [by_part(figures[key], 0, mhz) or missing for key in ("one_mbit_s", "mbit_s")]
                judged = [verdict(figures[key], cipher.mbit_s[1]) for key in ("one_mbit_s", "mbit_s")]
                bars = {"paper": cipher.mbit_s[1]} | {f"ours, {part}, a block alone": value for part, value in figures["one_mbit_s"].items()}
            table.rows.append(Row([cipher.name, *cells], judged, sources, bars))
    return [latency, rate]


def absent(table: Table, name: str) -> str:
    """A cell without a record; its bench may not be in this checkout."""
    if (ROOT / "bench" / name).exists():
        return table.missing(script(name))
    return f"{MISSING} {table.label(f'bench/{name} measures it, which is not in this checkout.')}"


def ace_phase(record: dict | None, cipher: str, phase: str) -> tuple[dict, dict] | None:
    """Our compression of the bitstream of that cipher: its bytes, and a character for each bit."""
    if not record:
        return None
    mine = [case for case in record["phases"] if case["phase"] == phase and case["bitstream"] == f"{cipher.lower()} lane"]
    both = {case["input"]: case for case in mine}
    return (both["A"], both["B"]) if both else None


def ace_size(records: Records) -> list[Table]:
    """Tables 3 and 4."""
    record = records.newest("ace-lanes-*", "phases")
    inputs = (
        "A: the bytes of the bitstream, a size in bits. B: a character for each bit, a size in characters. The paper's sizes are those of B; its "
        "numbers of codewords and phrases are like those of A.",
        "Ours are ESP lanes with the cipher in counter mode and HMAC-SHA-256, on an LFE5U-25F.",
    )
    memory = Table(
        "3", "memory of the bitstreams", "Section 5.2",
        ("cipher", "paper, size", "paper, redundancy", "ours, bits (A)", "ours, redundancy (A)", "ours, characters (B)", "ours, redundancy (B)"), 1, ("",),
        ("Redundancy is the index of LZW ÷ size; less is more redundant.", *inputs),
    )  # fmt: skip
    ratio = Table(
        "4", "compression", "Section 5.2",
        ("cipher", "by", "paper, index", "paper, dictionary", "paper, %", "ours, index (A)", "ours, dictionary (A)", "ours, % (A)", "ours, % (B)"), 2,
        ("A", "B"), inputs, unit="%",
    )  # fmt: skip
    for cipher in papers.CIPHERS:
        ours = ace_phase(record, cipher.name, "LZW")
        missing = None if ours else absent(memory, "ace.py")
        cells = [str(cipher.size), f"{cipher.redundancy:.4f}"]
        for case in ours or (None, None):
            cells += [str(case["size"]), f"{case['index_bits'] / case['size']:.4f}"] if case else [missing] * 2
        memory.rows.append(Row([cipher.name, *cells], [NONE if ours else MISSING], [records.cite(record) if ours else missing]))
    for paper in papers.COMPRESSED:
        ours = ace_phase(record, paper.cipher, paper.phase)
        missing = None if ours else absent(ratio, "ace.py")
        by = "LZW" if paper.phase == "LZW" else f"phase {paper.phase}"
        error = papers.COMPRESSED_ERRATA.get((paper.cipher, paper.phase))
        bits = error and papers.COMPRESSED_CORRECTED[paper.cipher, paper.phase] > 1000
        cells = [str(paper.index), ratio.erratum(paper.dictionary, error if bits else None)]
        cells.append(ratio.erratum(f"{paper.percent:.2f}", None if bits else error))
        cells += [str(ours[0]["index_bits"]), str(ours[0]["dictionary_bits"]), *(f"{case['percent']:.2f}" for case in ours)] if ours else [missing] * 4
        bars = {"paper": paper.percent} | ({f"ours, {case['input']}": case["percent"] for case in ours} if ours else {})
        judged = [verdict(case and case["percent"], paper.percent, less=True) for case in ours or (None, None)]
        ratio.rows.append(Row([paper.cipher, by, *cells], judged, [records.cite(record) if ours else missing], bars))
    return [memory, ratio]


def ace(records: Records) -> list[Table]:
    return ace_speed(records) + ace_size(records)


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
        ("packets", "suite", "our row, device", "paper, Gbit/s", "ours, launches back to back", "one core of our CPU engine", "paper, ms", "ours, ms",
         "at a load of, Gbit/s"), 3, ("Gbit/s", "latency"),
        ("Ours are from host memory to host memory, without network cards; the latency is the mean at the paper's load. A device that does not "
         "reach that load has the latency at three quarters of its own highest, which counts as `no`. The rows are described in `bench/gpu.py`.",), unit="Gbit/s",
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
                judged[1] = "no"
            bars = {"paper": headline.gbit_s} | ({"ours": full["gbits"]} if full else {})
            table.rows.append(Row(cells, judged, [records.cite(record) if record else missing], bars))
    return [table]


NOTES = {
    "vpn-ab": [
        "The paper measured a board with a security processor between two network testers; its figures have the cards in them.",
        "Its 1024-byte rows were offered 95 % of the line, those beside them 90 %, the smallest 55 %.",
    ],
    "gateway": [*sections.NOTES, "What does not fit an LFE5U-85F, the largest ECP5, counts as `no` at our clock."],
    "zynq": list(zynq.NOTES[:3]) + ["If the paper's cycles are a latency, the column *latency* is the one that counts."],
    "ace": [
        "Ours are small ciphers on ECP5 with open tools; the paper's were placed and routed for Virtex, speed grade 6.",
        "Errata: in table 1 one ratio is twice what its row gives; in table 4 four figures do not follow from the others.",
    ],
    "pipsea": ["The paper does not name its six algorithms. Ours are the row R3 of the bench: AES-CBC, AES-CTR and NULL, each with HMAC-MD5 and HMAC-SHA1."],
}  # fmt: skip
BUILDERS = {"vpn-ab": vpn_ab, "gateway": gateway, "zynq": zynq_core, "ace": ace, "pipsea": pipsea}


def page(records: Records) -> tuple[str, list[Section]]:
    """The page, and its sections."""
    found = []
    for paper in papers.PAPERS:
        about = f"{paper.title}{f', by {paper.authors}' if paper.authors else ''}."
        found.append(Section(paper.key, paper.name, [about, *NOTES[paper.key]], BUILDERS[paper.key](records)))
    return markdown(TITLE, INTRO, found, records.listed()), found


def measure() -> bool:
    """Runs every bench that fills a table. Returns true if all of them worked."""
    worked = True
    for name, cost in LIVE:
        path = ROOT / "bench" / f"{name}.py"
        if not path.exists():
            print(f"SKIP bench/{name}.py: not in this checkout")
            continue
        print(f"bench/{name}.py: {cost}", flush=True)
        begun = time.monotonic()
        done = subprocess.run([sys.executable, str(path)], cwd=ROOT)
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
    OUT.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for section in found:
        for table in section.tables:
            file = OUT / f"{section.key}-{table.number.replace(' ', '-')}.svg"
            if plot(table, file):
                pictures[f"Table {table.number}: {table.title}"] = file.name
    moved = text.replace("](../", "](../../").replace("](features.md)", "](../../docs/features.md)")
    (OUT / "papers.md").write_text(moved)
    (OUT / "papers.html").write_text(html_page(TITLE, moved, pictures))
    print(f"written: {PAGE.relative_to(ROOT)}, {OUT.relative_to(ROOT)}/papers.html, papers.md, {len(pictures)} pictures", file=sys.stderr)
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main())
