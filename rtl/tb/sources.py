"""Where the modules are, and what a module is made of: its files, its packages, its ports and parameters.

    python sources.py lint [MODULE...]   what Verilator reads for each module, a line a module, for rtl/run lint
    python sources.py proof NAME         the files of a proof, as SymbiYosys wants them, for rtl/run formal
    python sources.py list               all modules and packages
"""

import re
import sys
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent


class Duplicate(Exception):
    """Two files have one name. A tool that looks for a module by its name would take either."""


def folders(root=RTL):
    """The folders of the modules, in which every tool looks for a module by its name."""
    return [root / name for name in (root / "folders").read_text().split()]


def by_name(paths):
    """The paths by their names without the ending."""
    found = {}
    for path in paths:
        if found.setdefault(path.stem, path) != path:
            raise Duplicate(f"{path} has the name of {found[path.stem]}")
    return found


def modules(root=RTL):
    """The files of all modules and packages by name."""
    return by_name(path for folder in folders(root) for path in sorted(folder.glob("*.sv")))


def module(name):
    """The file of a module or package."""
    return modules().get(name) or sys.exit(f"there is no module {name}")


def proofs():
    return by_name(path for folder in folders() for path in sorted(folder.glob("formal/*.sby")))


def benches():
    """The folders of the benches by name: those beside the modules, and those of the tools in rtl/tb."""
    places = [folder / "tb" for folder in folders()] + [RTL / "tb"]
    return by_name(path.parent for place in places for path in sorted(place.glob("*/test_*.py")))


def python_path():
    """Where the Python is that benches share: what all of them share, and what those of one folder do."""
    return [RTL / "tb", *(folder / "tb" for folder in folders())]


def search():
    """How Verilator and slang are told where modules are."""
    return [word for folder in folders() for word in ("-y", str(folder))]


def code(source):
    """The text of a file without its comments, which name other modules too."""
    return re.sub(r" *//.*", "", source.read_text())


def files(source):
    """The file `source` and those of all modules and packages that it names, or that these name."""
    known, reached, waiting = modules(), {source}, [source]
    while waiting:
        named = set(re.findall(r"\w+", code(waiting.pop()))) & known.keys()
        waiting += (new := {known[name] for name in named} - reached)
        reached |= new
    return reached


def packages(source):
    """The packages among `files(source)`: Verilator looks for modules by itself, but not for packages."""
    return sorted((path for path in files(source) if path.stem.endswith("_pkg")), key=lambda path: path.name)


def interface(source):
    """The inputs, the outputs and the parameters, local ones too, of the module in the file `source`."""
    text = code(source)
    head = re.match(r".*?\n\);\n", text, re.DOTALL)[0]
    ports = re.findall(r"^ *(input|output)\b.*?(\w+) *(?:\[[^\]]*\] *)*,?$", head, re.MULTILINE)
    assert len(ports) == len(re.findall(r"^ *(?:input|output|inout)\b", head, re.MULTILINE)), f"{source} has a port of another form"
    inputs, outputs = ([name for way, name in ports if way == wanted] for wanted in ("input", "output"))
    return inputs, outputs, re.findall(r"\b(?:parameter|localparam)\b.*?(\w+) *=", text)


def main(command, *names):
    if command == "list":
        lines = modules().values()
    elif command == "lint":
        chosen = map(module, names or (name for name in modules() if not name.endswith("_pkg")))
        lines = (" ".join(map(str, (f"{file.stem}:", *search(), *packages(file), file))) for file in chosen)
    else:
        [name] = names
        proof = proofs()[name].with_name(f"{name}_proof.sv")
        lines = (f"{path.name} {path}" for path in sorted(files(proof)))
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
