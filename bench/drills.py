"""Measures how long traffic stays away when peers crash, boot or move: see README.md.

Both daemons have their own default timers. A connects by itself (`start_action = start`), B only answers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from commit import commit
from setups import ROOT, release_program
from tunnel import RECORDS, machine, machine_name
from harness.charon import Charon
from harness.charon import missing as charon_missing
from harness.control import Control
from harness.esplanade import Esplanade
from harness.namespaces import Topology
from harness.process import HarnessError, wait_until
from harness.settings import pair
from harness.traffic import ping

# What both programs do where nothing is configured (seconds, tries).
DEFAULT_TIMERS = {"retransmit_timeout": 4.0, "retransmit_tries": 5}
PAIRS = {"esplanade": ("esplanade", "esplanade"), "strongswan": ("charon", "charon"),
         "esplanade-to-strongswan": ("esplanade", "charon"), "strongswan-to-esplanade": ("charon", "esplanade")}
LABELS = {"esplanade": "two Esplanades", "strongswan": "two strongSwans",
          "esplanade-to-strongswan": "Esplanade to strongSwan", "strongswan-to-esplanade": "strongSwan to Esplanade"}
MOVED_TO = "172.16.1.77"


class Drill:
    """Two gateways in namespaces of their own."""

    def __init__(self, kinds: tuple[str, str], patience: float):
        self.patience = patience
        self.folder = Path(tempfile.mkdtemp(prefix="esd-"))
        self.topology = Topology()
        self.settings = pair(self.topology, inner=4)
        # A moving peer needs this, and the default of both programs is `yes`.
        for one in self.settings:
            del one.connections["site"]["mobike"]
        self.settings[0].child()["start_action"] = "start"
        self.a, self.b = (self._daemon(kind, end) for kind, end in zip(kinds, "ab"))

    def _daemon(self, kind: str, end: str) -> Control:
        space = self.topology.gw_a if end == "a" else self.topology.gw_b
        if kind == "charon":
            return Charon(end, space, self.folder / end, **DEFAULT_TIMERS)
        daemon = Esplanade(end, space, self.folder / end, export_keys=False)
        daemon.program = release_program()
        state = self.folder / f"state-{end}"
        state.mkdir(mode=0o700)
        daemon.gateway = {"socket": daemon.gateway["socket"], "state_directory": str(state)}
        return daemon

    def close(self) -> None:
        for one in (self.a, self.b):
            one.stop()
        self.topology.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        self.b.start(self.settings[1])
        self.a.start(self.settings[0])
        self.a.wait_installed()
        self.b.wait_installed()
        wait_until("traffic", self._passes, 10)

    def _passes(self) -> bool:
        return bool(ping(self.topology.host_a, self.topology.b.host4, count=1, timeout=0.2))

    def outage(self, begun: float | None = None) -> float | None:
        """The time until a packet comes through, or None if none does."""
        begun = begun or time.monotonic()
        try:
            wait_until("traffic", self._passes, self.patience)
        except HarnessError:
            return None
        return round(time.monotonic() - begun, 2)


def restarted(drill: Drill) -> float | None:
    """B is killed and started again at once."""
    drill.start()
    drill.b.kill()
    drill.b.start(drill.settings[1])
    return drill.outage()


def initiator_restarted(drill: Drill) -> float | None:
    """A is killed and started again at once."""
    drill.start()
    drill.a.kill()
    drill.a.start(drill.settings[0])
    return drill.outage()


def away(drill: Drill) -> float | None:
    """B is killed and comes back after a minute."""
    drill.start()
    drill.b.kill()
    time.sleep(60)
    drill.b.start(drill.settings[1])
    return drill.outage()


def late_network(drill: Drill) -> float | None:
    """Both boot, and A's link comes up ten seconds later."""
    space = drill.topology.gw_a
    routes = space.run(["ip", "route", "show", "dev", "wan"]).stdout.splitlines()
    space.run(["ip", "link", "set", "wan", "down"])
    drill.b.start(drill.settings[1])
    drill.a.start(drill.settings[0])
    time.sleep(10)
    space.run(["ip", "link", "set", "wan", "up"])
    # The kernel takes away a route whose link goes down, but for those of addresses.
    for route in routes:
        space.run(["ip", "route", "replace", *route.split(), "dev", "wan"], check=False)
    return drill.outage()


def moved(drill: Drill) -> float | None:
    """A gets another address in the middle of the traffic. Its configuration names none."""
    del drill.settings[0].connections["site"]["local_addrs"]
    drill.settings[1].connections["site"]["remote_addrs"] = "%any"
    drill.start()
    space = drill.topology.gw_a
    default = space.run(["ip", "route", "show", "default"]).stdout.split("\n")[0]
    space.run(["ip", "address", "add", f"{MOVED_TO}/24", "dev", "wan"])
    space.run(["ip", "address", "del", f"{drill.topology.a.wan(4)}/24", "dev", "wan"])
    space.run(["ip", "address", "add", f"{MOVED_TO}/24", "dev", "wan"], check=False)
    space.run(["ip", "route", "replace", *default.split()], check=False)
    return drill.outage()


def both_start(drill: Drill) -> float | None:
    """Both ends connect at the same moment."""
    drill.settings[1].child()["start_action"] = "start"
    drill.b.start(drill.settings[1])
    drill.a.start(drill.settings[0])
    return drill.outage()


DRILLS: dict[str, tuple[str, Callable[[Drill], float | None]]] = {
    "restarted": ("the responder is killed and started again", restarted),
    "initiator": ("the initiator is killed and started again", initiator_restarted),
    "away": ("the responder is away for a minute", away),
    "late": ("the network comes up ten seconds after the gateways", late_network),
    "moved": ("the initiator gets another address", moved),
    "both": ("both ends connect at once", both_start),
}


def run_all(pairs: list[str], drills: list[str], rounds: int, patience: float) -> list[dict]:
    runs = []
    for number in range(rounds):
        for drill in drills:
            for name in pairs:
                one = Drill(PAIRS[name], patience)
                try:
                    seconds = DRILLS[drill][1](one)
                except HarnessError as error:
                    print(f"{drill}, {LABELS[name]}: {str(error).splitlines()[0]}", file=sys.stderr)
                    seconds = None
                finally:
                    one.close()
                shown = f"more than {patience:g}" if seconds is None else f"{seconds:.2f}"
                print(f"round {number + 1}: {DRILLS[drill][0]}, {LABELS[name]}: {shown} s", flush=True)
                runs.append({"round": number + 1, "drill": drill, "pair": name, "seconds": seconds})
    return runs


def median(runs: list[dict], drill: str, name: str) -> float | None:
    """The median. A run without an end counts as the longest."""
    times = [run["seconds"] for run in runs if (run["drill"], run["pair"]) == (drill, name)]
    return sorted(times, key=lambda one: float("inf") if one is None else one)[len(times) // 2]


def table(record: dict) -> str:
    names = record["pairs"]
    head = "| seconds without traffic | " + " | ".join(LABELS[name] for name in names) + " |\n"
    text = head + "|---|" + "---:|" * len(names) + "\n"
    for drill in record["drills"]:
        cells = (median(record["runs"], drill, name) for name in names)
        shown = ("> {:g}".format(record["patience"]) if one is None else f"{one:.1f}" for one in cells)
        text += f"| {DRILLS[drill][0]} | {' | '.join(shown)} |\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="how long traffic stays away when peers crash, boot or move")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=90, help="seconds after which a drill counts as lost")
    parser.add_argument("--pairs", default=",".join(PAIRS), help="which pairs, with commas")
    parser.add_argument("--drills", default=",".join(DRILLS), help="which drills, with commas")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    pairs, drills = options.pairs.split(","), options.drills.split(",")
    if unknown := (set(pairs) - set(PAIRS)) | (set(drills) - set(DRILLS)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if reason := charon_missing():
        pairs = [name for name in pairs if "charon" not in PAIRS[name]]
        print(f"only Esplanade: {reason}", file=sys.stderr)
    facts = machine()
    runs = run_all(pairs, drills, options.rounds, options.patience)
    record = {"what": "seconds from the event until a packet comes through, median of the rounds",
              "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
              "command": " ".join(["bench/drills.py", *sys.argv[1:]]), "commit": commit(), "machine": facts,
              "patience": options.patience, "pairs": pairs, "drills": drills, "runs": runs}
    print("\n" + table(record))
    if not options.no_record:
        RECORDS.mkdir(exist_ok=True)
        file = RECORDS / f"{record['date']}-drills-{machine_name(facts)}.json"
        file.write_text(json.dumps(record, indent=1) + "\n")
        print(f"record: {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
