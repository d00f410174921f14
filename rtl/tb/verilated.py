"""Compiles a module with Verilator into a program: one call of the compiler for a model, and one for its link.

All C++ of a model is one file. Every file of Verilator includes the same headers, and to read them takes longer than to
compile most models. One call at a time also bounds the compilers: never more run than there are benches at once.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from sources import RTL, interface, packages, search

COVERAGE = os.environ.get("RTL_COVERAGE")  # a folder: lines and toggles are counted there
BUILD = Path(os.environ.get("RTL_BUILD_DIR", RTL.parent / "target" / "rtl"))
COMPILER = os.environ.get("CXX", "c++")
# A higher level costs the compiler more than these simulations gain.
OPTIMISE = "-O1"


@contextmanager
def locked(folder):
    """The workers of pytest-xdist may want the same build."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program(source, folder, parameters, main, prefix="Vtop", public=None, optimise=OPTIMISE, arguments=(), flags=(), libraries=()):
    """The program of the module in the file `source`, whose `main` is a C++ file. It is built in `folder`.

    What is in `public` can be read by name while the program runs: names, with wildcards, by the names of modules. If
    `public` is a dictionary, inputs of the module can be written and its outputs and parameters read as well.
    """
    folder = Path(folder)
    with locked(folder):
        for old in folder.glob(f"{prefix}*"):
            old.unlink()
        (folder / "public.vlt").write_text(public_names(source, public))
        # Outside of rtl/run there is no Verilator on PATH.
        verilator = ["verilator"] if "VERILATOR_ROOT" in os.environ else [str(RTL / "run"), "verilator"]
        verilator += [
            "--cc", "--Mdir", str(folder), "--top-module", source.stem, "--prefix", prefix, "-O3", "--assert", "--x-initial",
            "unique", *search(), "+libext+.sv", str(RTL / "lint" / "waivers.vlt"), str(folder / "public.vlt"),
            *(["--coverage-line", "--coverage-toggle"] if COVERAGE else []), *arguments,
            *(f"-G{name}={value}" for name, value in parameters.items()), *map(str, packages(source)), str(source),
        ]  # fmt: skip
        subprocess.run(verilator, check=True)
        model = folder / "model.cpp"
        model.write_text("".join(f'#include "{path}"\n' for path in (*sorted(folder.glob(f"{prefix}*.cpp")), main)))
        made = folder / source.stem
        compile_ = [COMPILER, *options(), optimise, *flags, f"-I{folder}", "-c", str(model), "-o", str(folder / "model.o")]
        link = [COMPILER, "-o", str(made), str(folder / "model.o"), str(runtime()), *libraries]
        # What Verilator makes of the same files is the same.
        digest = hashlib.sha256(repr((compile_, link)).encode())
        for path in (*sorted(folder.glob(f"{prefix}*.[ch]*")), Path(main), runtime()):
            digest.update(path.read_bytes())
        stamp = folder / "stamp"
        if not (made.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest()):
            stamp.unlink(missing_ok=True)
            subprocess.run(compile_, check=True)
            subprocess.run(link, check=True)
            stamp.write_text(digest.hexdigest())
    return made


def public_names(source, public):
    """Verilator's directives. The less is public, the more of a model is optimised away before it is compiled."""
    lines = ["`verilator_config"]
    if public is not None:
        inputs, outputs, parameters = interface(source)
        lines += [f'public_flat_rw -module "{source.stem}" -var "{name}"' for name in inputs]
        lines += [f'public_flat_rd -module "{source.stem}" -var "{name}"' for name in (*outputs, *parameters)]
        lines += [f'public_flat_rd -module "{module}" -var "{name}"' for module, names in public.items() for name in names]
    return "\n".join(lines) + "\n"


def include():
    root = os.environ.get("VERILATOR_ROOT")
    return (Path(root) if root else next((RTL / ".venv").glob("lib/python*/site-packages/verilator"))) / "include"


def options():
    """Of the compiler, for models and for the runtime."""
    without = dict.fromkeys(("VM_SC", "VM_TIMING", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_VCD", "VM_TRACE_SAIF"), 0)
    defined = {"VERILATOR": 1, "VM_COVERAGE": int(bool(COVERAGE))} | without
    return [OPTIMISE, *(f"-D{name}={value}" for name, value in defined.items()), f"-I{include()}", f"-I{include() / 'vltstd'}"]


def runtime():
    """Verilator's runtime as a library: the same for all models, and so made once."""
    folder = BUILD / ("runtime-coverage" if COVERAGE else "runtime")
    sources = [include() / f"verilated{part}.cpp" for part in ("", "_cov", "_dpi", "_threads", "_vpi")]
    library, stamp = folder / "libverilated.a", folder / "stamp"
    cache = ["ccache"] if shutil.which("ccache") else []
    files = [path.read_bytes() for path in sorted(include().glob("verilated*.[ch]*"))]
    key = hashlib.sha256(repr((COMPILER, options(), files)).encode()).hexdigest()
    with locked(folder):
        if not (library.exists() and stamp.exists() and stamp.read_text() == key):
            stamp.unlink(missing_ok=True)
            library.unlink(missing_ok=True)
            for path in sources:
                subprocess.run([*cache, COMPILER, *options(), "-c", str(path), "-o", str(folder / f"{path.stem}.o")], check=True)
            subprocess.run(["ar", "-rcs", str(library), *(str(folder / f"{path.stem}.o") for path in sources)], check=True)
            stamp.write_text(key)
    return library
