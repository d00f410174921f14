#!/usr/bin/env python3
"""Finds queues whose `ready_o` is left open although they do not set `NeverFull`: a word could be lost there unseen.

    rtl/run lint        runs it over every module
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tb"))
import sources  # noqa: E402

INSTANCE = re.compile(r"\b(\w+) #\((?P<parameters>[^;]*?)\)\s+(?P<name>u_\w+) \((?P<pins>[^;]*?)\);", re.DOTALL)


def open_queues(text):
    """Names of the instances in a module's text that can lose words."""
    for instance in INSTANCE.finditer(text):
        if re.search(r"\.ready_o\s*\(\s*\)", instance["pins"]) and not re.search(r"\.NeverFull\s*\(1'b1\)", instance["parameters"]):
            yield instance["name"]


def main():
    found = [f"{path.name}: {name}" for path in sources.modules().values() for name in open_queues(path.read_text())]
    for line in found:
        print(f"{line} leaves ready_o open without NeverFull")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
