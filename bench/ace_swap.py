"""Lanes of the adaptive cryptographic engine exchanged under traffic: what a load costs, what of it is hidden, and what the
CPU carries meanwhile. Writes a record with a table.

The fabric is simulated: its lanes are slow, and its configuration interface has the rate of an ECP5's parallel port. What
merging takes is this machine's time.
"""

from __future__ import annotations

import argparse

from record import Bench

WHAT = "ACE: two SAs with different ciphers take turns on one simulated fabric"
CASES = {
    "announced": "one SA after the other; the next is announced 60 ms before its first packet, as by its negotiation",
    "at once": "one SA after the other; the first packet comes with the announcement",
    "both": "both SAs are there all the time, and bursts of their packets alternate",
}


def text(record: dict) -> str:
    lines = [f"# {WHAT}, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`, {record['machine']['cpu']}.", ""]
    lines += [f"- *{case}*: {what}." for case, what in CASES.items()]
    lines += ["", "|case|packets|lost|reordered|wrong bytes|by lanes|by the CPU|of these while loading|loads|hidden|load, ms|wanted meanwhile, ms|merge, ms|",
              "|---|" + "---:|" * 12]
    for case in record["cases"]:
        loads = max(case["loads"], 1)
        means = (f"{case[key] / loads:.1f}" for key in ("load_ms", "wanted_ms", "merge_ms"))
        cells = [case["case"], *(case[key] for key in ("packets", "lost", "reordered", "wrong", "by_lanes", "by_cpu", "while_loading", "loads", "hidden")), *means]
        lines.append("|" + "|".join(map(str, cells)) + "|")
    lines += ["", "Times are means of a load. The CPU's cost, by which fabrics are given away, in nanoseconds for a thousand bytes:", ""]
    lines += [f"- {need}: {cost}" for need, cost in record["cases"][0]["cpu_ns_per_kilobyte"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    bench = Bench("esplanade-ace", "swap", "bench/ace_swap.py")
    bench.build()
    cases = bench.cases()
    wrong = [case["case"] for case in cases if case["lost"] or case["reordered"] or case["wrong"] or case["failed"]]
    record = bench.record(WHAT, {"cases": cases})
    page = text(record)
    print(page)
    if wrong:
        raise SystemExit(f"packets were lost, overtaken or wrong in: {', '.join(wrong)}")
    if not arguments.no_record:
        bench.name = "ace-swap"
        bench.keep(record, page)


if __name__ == "__main__":
    main()
