"""Full IKE_SA_INIT + IKE_AUTH handshakes per second and core, in process; writes a record."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys

from setups import ROOT
from tunnel import RECORDS, commit, machine, machine_name

COMMAND = ["cargo", "bench", "--locked", "--package", "esplanade-ike", "--bench", "handshake"]


def main() -> int:
    facts = machine()
    done = subprocess.run(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    found = re.search(r"median (\d+), best (\d+)", done.stdout)
    if done.returncode != 0 or not found:
        print(f"{' '.join(COMMAND)} failed: {done.stdout[-500:]}", file=sys.stderr)
        return 1
    date = datetime.date.today().isoformat()
    record = {
        "what": "IKE_SA_INIT + IKE_AUTH per second, PSK, X25519, AES-GCM-128; initiator and responder on one core",
        "date": date,
        "commit": commit(),
        "command": " ".join(COMMAND),
        "machine": facts,
        "handshakes_s": {"median": int(found[1]), "best": int(found[2]), "rounds": 5},
    }
    file = RECORDS / f"{date}-handshake-{machine_name(facts)}.json"
    RECORDS.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=2) + "\n")
    print(done.stdout.strip())
    print(f"record: {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
