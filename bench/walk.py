"""Core cycles of both walks with an engine that does nothing; writes a record."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

from setups import ROOT
from tunnel import RECORDS, commit, machine, machine_name

COMMAND = ["cargo", "bench", "--locked", "--package", "esplanade-ipsec", "--bench", "walk"]


def main() -> int:
    facts = machine()
    cases = []
    with subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout:
            print(line, end="", flush=True)
            if line.startswith("{"):
                cases.append(json.loads(line))
    if bench.returncode != 0 or not cases:
        print(f"{' '.join(COMMAND)} failed with {bench.returncode}", file=sys.stderr)
        return 1
    date = datetime.date.today().isoformat()
    record = {
        "what": "core cycles a packet without crypto: parse, policy, SA, sequence number, headers, batch, finish; one core",
        "date": date,
        "commit": commit(),
        "command": " ".join(COMMAND),
        "machine": facts,
        "cases": cases,
    }
    file = RECORDS / f"{date}-walk-{machine_name(facts)}.json"
    RECORDS.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    print(f"record: {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
