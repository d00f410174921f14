"""ACE's tables beside ours."""

from __future__ import annotations

import paper_tables as papers
from ace_software import transform
from commit import ROOT
from pages import MISSING, NONE, Row, Table, Verdict, verdict
from paper_records import ROUTE, Records, by_part, clock_records, script

NOTES = [
    "Ours are small ciphers on ECP5 with open tools; the paper's were placed and routed for Virtex, speed grade 6. The technologies are years apart "
    "and the paper gives no clock, so that no cycles can be compared.",
    "Errata: in table 1 one ratio is twice what its row gives; in table 4 four figures do not follow from the others.",
]


def core(record: dict | None, cipher: str) -> dict | None:
    """Our core with the paper's keys of 128 bits, for encryption only."""
    name = f"ace-{cipher.lower()}-128"
    return next((row for row in record["rows"] if row["core"] == name), None) if record else None


def software(record: dict | None, cipher: str) -> dict | None:
    """The longest packets of the cipher on the CPU."""
    found = [case for case in record["cases"] if case["transform"] == transform(cipher)] if record else []
    return max(found, key=lambda case: case["inner"], default=None)


def absent(table: Table, name: str) -> str:
    """A cell without a record; its bench may not be in this checkout."""
    if (ROOT / "bench" / name).exists():
        return table.missing(script(name))
    return f"{MISSING} {table.label(f'bench/{name} measures it, which is not in this checkout.')}"


def route(cipher: str) -> str:
    return f"the line of {cipher.lower()} in `rtl/syn/all.sh`, then `{script('ace_cores.py')}`; `{script('ace_software.py')}` for our software."


def latency_row(table: Table, cipher: papers.Cipher, ours: dict | None, by_cpu: dict | None, missing: str | None) -> Row:
    figures = {part: one["latency_us"] for part, one in ours["routed"].items()} if ours else {}
    blocks = ours["cycles"]["encrypt"] / ours["cycles"]["block"] if ours else None
    cells = [cipher.name, f"{cipher.latency_us[0]}"]
    if by_cpu:
        cpu_us = by_cpu["key"] / by_cpu["ghz"] / 1000
        cells.append(f"{cpu_us:.2f}" + (", less than our core" if figures and cpu_us < min(figures.values()) else ""))
    else:
        cells.append(table.missing(script("ace_software.py")))
    cells += [f"{cipher.latency_us[1]}", table.erratum(cipher.latency_blocks[1], papers.ACE_LATENCY_ERRATA.get(cipher.name))]
    cells += [str(ours["cycles"]["encrypt"]), f"{blocks:.2f}"] if ours else [missing] * 2
    cells.append(by_part(figures, 2) or missing)
    return Row(cells, [verdict(blocks, cipher.latency_blocks[1], less=True), verdict(figures, cipher.latency_us[1], less=True)], [])


def rates(ours: dict | None) -> tuple[dict[str, float], dict[str, float]]:
    """Mbit/s of a block alone and of interleaved blocks, for each part."""
    routed = ours["routed"] if ours else {}
    return {part: one["one_mbit_s"] for part, one in routed.items()}, {part: one["mbit_s"] for part, one in routed.items()}


def cpu_mbit_s(by_cpu: dict) -> float:
    return 8 * by_cpu["inner"] * by_cpu["ghz"] * 1000 / by_cpu["seal"]


def beside_cpu(mbit_s: float, alone: float, full: float) -> str:
    """Where our own CPU leaves our core behind."""
    return ", more than our core" if mbit_s > max(alone, full) else ", more than a block alone" if mbit_s > alone else ""


def rate_row(table: Table, cipher: papers.Cipher, ours: dict | None, by_cpu: dict | None, missing: str | None) -> Row:
    alone, full = rates(ours)
    cells = [cipher.name, f"{cipher.mbit_s[1]}"]
    cells += [str(ours["cycles"]["block"]) if ours else missing, by_part(alone, 0) or missing]
    cells += [f"{ours['cycles']['rate']:g}" if ours else missing, by_part(full, 0) or missing]
    if by_cpu:
        mbit_s = cpu_mbit_s(by_cpu)
        cells.append(f"{mbit_s:.0f}" + (beside_cpu(mbit_s, max(alone.values()), max(full.values())) if alone else ""))
    else:
        cells.append(table.missing(script("ace_software.py")))
    return Row(cells, [verdict(alone, cipher.mbit_s[1])], [])


def speed_up_row(table: Table, cipher: papers.Cipher, ours: dict | None, by_cpu: dict | None, missing: str | None) -> Row:
    alone, _ = rates(ours)
    software = table.missing(script("ace_software.py")) if not by_cpu else f"{cpu_mbit_s(by_cpu):.0f}"
    cells = [cipher.name, f"{cipher.mbit_s[0]}", f"{cipher.mbit_s[1]}", f"{cipher.speed_up}", software, f"{max(alone.values()):.0f}" if alone else missing]
    quotient = max(alone.values()) / cpu_mbit_s(by_cpu) if alone and by_cpu else None
    cells.append(f"{quotient:.2f}" if quotient else missing or software)
    return Row(cells, [verdict(quotient, cipher.speed_up)], [])


def speed(records: Records) -> list[Table]:
    """Tables 1 and 2."""
    record, by_cpus = records.newest("ace-cores", "rows"), records.newest("ace-software-*", "cases")
    latency = Table(
        "1", "latency of key set-up", "Section 4.2",
        ("cipher", "paper's software, µs", "our software, µs", "paper, µs", "paper, block times", "ours, cycles", "ours, block times", "ours at our clock, µs"), 1,
        ("block times", "µs"), ("From the key to the first round. A block time of ours is that of a block alone. Our software expands the keys of an SA: of "
                                "the cipher and of HMAC-SHA2-256.",), at=(6, 7), reproduce=route("Rijndael"),
    )  # fmt: skip
    rate = Table(
        "2", "throughput", "Section 4.2",
        ("cipher", "paper", "cycles, a block alone", "a block alone", "cycles, interleaved blocks", "interleaved blocks", "our software"), 1, ("a block alone",),
        ("Mbit/s, and cycles. The paper has one block in flight, beside which ours is "
         "*a block alone*. *Interleaved blocks* fill our core's ring and do not wait for each other; the paper has no such figure, so they are not "
         "compared. Our software seals one packet of 1,446 bytes after the other on one core: counter mode with HMAC-SHA2-256.",), at=(3,),
        reproduce=route("Rijndael"),
    )  # fmt: skip
    faster = Table(
        "2, speed-up", "throughput beside software", "Section 4.2",
        ("cipher", "paper's software", "paper", "paper, speed-up", "our software", "ours, a block alone", "our speed-up"), 1, ("speed-up",),
        ("Mbit/s. The rates of ours are the best of the two parts and one CPU core; our software hashes too, which the core does not.",), at=(6,),
        reproduce=route("Rijndael"),
    )  # fmt: skip
    for cipher in papers.CIPHERS:
        ours, by_cpu = core(record, cipher.name), software(by_cpus, cipher.name)
        for table, make in ((latency, latency_row), (rate, rate_row), (faster, speed_up_row)):
            missing = None if ours and ours["routed"] else table.missing(ROUTE) if ours else absent(table, "ace_cores.py")
            row = make(table, cipher, ours, by_cpu, missing)
            made = clock_records({cipher.name: {"file": ours["record"]}}) if ours and ours["routed"] and "record" in ours else []
            # Block times are cycles, which do not change with the clock.
            row.verdicts = [records.judge(given, record, *(made if what != "block times" else [])) for what, given in zip(table.judged, row.verdicts)]
            row.sources = [records.cite(record) if ours else missing, records.cite(by_cpus) if by_cpu else table.missing(script("ace_software.py"))]
            row.sources += map(records.cite, made)
            table.rows.append(row)
    return [latency, rate, faster]


def phase(record: dict | None, cipher: str, name: str) -> tuple[dict, dict] | None:
    """Our compression of the bitstream of that cipher: its bytes, and a character for each bit."""
    if not record:
        return None
    mine = [case for case in record["phases"] if case["phase"] == name and case["bitstream"] == f"{cipher.lower()} lane"]
    both = {case["input"]: case for case in mine}
    return (both["A"], both["B"]) if both else None


def redundancy(record: dict | None, cipher: str) -> tuple[float, float] | None:
    found = phase(record, cipher, "LZW")
    return found and tuple(case["index_bits"] / case["size"] for case in found)


INPUTS = (
    "A: the bytes of the bitstream, a size in bits. B: a character for each bit, a size in characters. The paper's sizes are those of B; its "
    "numbers of codewords and phrases are like those of A.",
    "Ours are ESP lanes with the cipher in counter mode and HMAC-SHA-256, on an LFE5U-25F.",
)


def memory(records: Records, record: dict | None) -> Table:
    table = Table(
        "3", "memory of the bitstreams", "Section 5.2",
        ("cipher", "paper, size", "paper, redundancy", "ours, bits (A)", "redundancy (A)", "ours, characters (B)", "redundancy (B)"), 1, (),
        ("Redundancy is the index of LZW ÷ size; less is more redundant.", *INPUTS), reproduce=f"`{script('ace.py')}`.",
    )  # fmt: skip
    for cipher in papers.CIPHERS:
        ours = phase(record, cipher.name, "LZW")
        missing = None if ours else absent(table, "ace.py")
        cells = [cipher.name, str(cipher.size), f"{cipher.redundancy:.4f}"]
        for case, share in zip(ours or (None, None), redundancy(record, cipher.name) or (None, None)):
            cells += [str(case["size"]), f"{share:.4f}"] if case else [missing] * 2
        table.rows.append(Row(cells, [], [records.cite(record) if ours else missing]))
    return table


def compression(records: Records, record: dict | None) -> list[Table]:
    """Table 4: the bits, and what is left in percent."""
    bits = Table(
        "4, bits", "compression, index and dictionary", "Section 5.2", ("cipher", "by", "paper, index", "paper, dictionary", "ours, index (A)", "ours, dictionary (A)"),
        2, (), INPUTS, reproduce=f"`{script('ace.py')}`.",
    )  # fmt: skip
    ratio = Table(
        "4", "compression", "Section 5.2",
        ("cipher", "by", "paper, %", "÷ redundancy", "ours, % (A)", "÷ redundancy (A)", "ours, % (B)", "÷ redundancy (B)"), 2, ("A", "B"),
        ("What is left, in percent of the size. Our bitstreams are more redundant than the paper's (table 3), so the percentages of both do not compare: "
         "an emptier part is smaller by any compression. The percentage ÷ redundancy does, and less is better. Redundancy is measured with LZW, whose own "
         "quotients say nothing.", INPUTS[0]), at=(5, 7),
        reproduce=f"`{script('ace.py')}`.",
    )  # fmt: skip
    shares = {cipher.name: cipher.redundancy for cipher in papers.CIPHERS}
    for paper in papers.COMPRESSED:
        ours, own = phase(record, paper.cipher, paper.phase), redundancy(record, paper.cipher)
        name = [paper.cipher, "LZW" if paper.phase == "LZW" else f"phase {paper.phase}"]
        error = papers.COMPRESSED_ERRATA.get((paper.cipher, paper.phase))
        in_bits = error and papers.COMPRESSED_CORRECTED[paper.cipher, paper.phase] > 1000
        missing = [None if ours else absent(table, "ace.py") for table in (bits, ratio)]
        cells = [str(paper.index), bits.erratum(paper.dictionary, error if in_bits else None)]
        cells += [str(ours[0]["index_bits"]), str(ours[0]["dictionary_bits"])] if ours else [missing[0]] * 2
        bits.rows.append(Row([*name, *cells], [], [records.cite(record) if ours else missing[0]]))
        theirs = paper.percent / 100 / shares[paper.cipher]
        cells, judged = [ratio.erratum(f"{paper.percent:.2f}", None if in_bits else error), f"{theirs:.2f}"], []
        for case, share in zip(ours or (None, None), own or (None, None)):
            quotient = case["percent"] / 100 / share if case and share else None
            cells += [f"{case['percent']:.2f}", f"{quotient:.2f}" if quotient else absent(ratio, "ace.py")] if case else [missing[1]] * 2
            judged.append(Verdict(NONE) if paper.phase == "LZW" else verdict(quotient, theirs, less=True))
        ratio.rows.append(Row([*name, *cells], judged, [records.cite(record) if ours else missing[1]]))
    return [bits, ratio]


def tables(records: Records) -> list[Table]:
    record = records.newest("ace-lanes-*", "phases")
    return [*speed(records), memory(records, record), *compression(records, record)]
