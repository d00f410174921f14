"""What a module is made of: its files, its packages, its ports and parameters.

    python sources.py MODULE...   the packages of each module, a line a module, for rtl/run lint
"""

import re
import sys
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent


def code(source):
    """The text of a file without its comments, which name other modules too."""
    return re.sub(r" *//.*", "", source.read_text())


def files(source):
    """The file `source` and those of all modules and packages that it names, or that these name."""
    known, reached, waiting = {path.stem: path for path in RTL.glob("*.sv")}, {source}, [source]
    while waiting:
        named = set(re.findall(r"\w+", code(waiting.pop()))) & known.keys()
        waiting += (new := {known[name] for name in named} - reached)
        reached |= new
    return reached


def packages(source):
    """The packages among `files(source)`: Verilator looks for modules by itself, but not for packages."""
    return sorted(path for path in files(source) if path.stem.endswith("_pkg"))


def interface(source):
    """The inputs, the outputs and the parameters, local ones too, of the module in the file `source`."""
    text = code(source)
    head = re.match(r".*?\n\);\n", text, re.DOTALL)[0]
    ports = re.findall(r"^ *(input|output)\b.*?(\w+) *(?:\[[^\]]*\] *)*,?$", head, re.MULTILINE)
    assert len(ports) == len(re.findall(r"^ *(?:input|output|inout)\b", head, re.MULTILINE)), f"{source} has a port of another form"
    inputs, outputs = ([name for way, name in ports if way == wanted] for wanted in ("input", "output"))
    return inputs, outputs, re.findall(r"\b(?:parameter|localparam)\b.*?(\w+) *=", text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}:", *packages(RTL / f"{name}.sv"))
