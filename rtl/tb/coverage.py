"""Line and toggle coverage by module, merged over what the benches left in a folder: `rtl/run coverage`.

A point counts as reached when any instance of the module, with any parameters, in any bench, reached it. Toggles are bits of
signals that went up and that went down. A module is only as well reached as by the benches that the command names.
"""

import argparse
import datetime
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "bench" / "records"
sys.path.insert(0, str(ROOT / "bench"))

import sources  # noqa: E402
from commit import commit  # noqa: E402

KINDS = {"line": ("line", "branch"), "toggle": ("toggle",)}


def points(folder):
    """module -> kind -> point -> whether it was reached."""
    found = defaultdict(lambda: defaultdict(dict))
    ours = {path for path in sources.modules().values() if not path.stem.endswith("_pkg")}
    for path in sorted(Path(folder).glob("*.dat")):
        for text in path.read_text(errors="replace").splitlines():
            point = re.match(r"C '(.*)' (\d+)$", text)
            if not point:
                continue
            keys = dict(field.split("\2", 1) for field in point[1].split("\1") if "\2" in field)
            file, kind = Path(keys["f"]), keys["page"].split("/")[0].removeprefix("v_")
            if file not in ours:
                continue
            place = keys.get("l"), keys.get("n"), keys.get("o")
            reached = found[file.stem][kind]
            reached[place] = reached.get(place, False) or int(point[2]) > 0
    return found


def rows(found):
    for module in sorted(found):
        row = {"module": module}
        for name, kinds in KINDS.items():
            all_ = [reached for kind in kinds for reached in found[module].get(kind, {}).values()]
            row[name], row[f"{name}_points"] = sum(all_), len(all_)
        yield row


def percent(reached, all_):
    return f"{100 * reached / all_:.1f} %" if all_ else "–"


def table(rows_):
    whole = {"module": "all"} | {
        key: sum(row[key] for row in rows_) for name in KINDS for key in (name, f"{name}_points")
    }  # fmt: skip
    yield "|module|lines and branches|reached|toggles|reached|"
    yield "|---|---:|---:|---:|---:|"
    for row in (*rows_, whole):
        cells = [cell for name in KINDS for cell in (str(row[f"{name}_points"]), percent(row[name], row[f"{name}_points"]))]
        yield f"|{'|'.join([row['module'], *cells])}|"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--record", help="what was run; writes bench/records")
    options = parser.parse_args()
    found = points(options.folder)
    rows_ = list(rows(found))
    lines = list(table(rows_))
    print("\n".join(lines))
    missed = {
        module: sorted({int(place[0]) for kind in KINDS["line"] for place, reached in kinds.get(kind, {}).items() if not reached})
        for module, kinds in found.items()
    }  # fmt: skip
    for module, places in missed.items():
        if places:
            print(f"{module}: not reached: lines {', '.join(map(str, places))}")
    if options.record is None:
        return
    date = datetime.date.today().isoformat()
    record = {
        "what": "line and toggle coverage of the RTL benches", "date": date, "commit": commit(), "command": options.record,
        "modules": rows_, "lines_not_reached": {module: places for module, places in missed.items() if places},
    }  # fmt: skip
    (RECORDS / f"{date}-rtl-coverage.json").write_text(json.dumps(record, indent=2) + "\n")
    head = [f"# Coverage of the RTL's benches, {date}", "", f"Commit {record['commit']}, `{options.record}`, Verilator.", "",
            *__doc__.splitlines()[2:], ""]  # fmt: skip
    (RECORDS / f"{date}-rtl-coverage.md").write_text("\n".join([*head, *lines]) + "\n")
    print(f"written: bench/records/{date}-rtl-coverage")


if __name__ == "__main__":
    main()
