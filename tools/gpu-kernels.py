#!/usr/bin/env python3
"""Checks the GPU kernels in crates/gpu/kernels as NVIDIA's compiler translates them, without a GPU.

- Registers: no kernel spills, and none uses more than 128 registers.
- Instructions: each kernel and each loop has as many as crates/gpu/kernels/instructions.txt says, within 5 %.
- DES: the S-boxes in des_networks.h are those of crates/crypto.
- PTX: esp.ptx and esp_tables.ptx, which CUDA's host gives to the driver, are what the compiler makes of the kernels.
- Constant time: no branch, no address and no division depends on a key, on a packet's bytes or on what is computed
  from them, and no memory is used but the buffers. PTX is checked, and the machine code of each architecture. Jobs,
  groups and the like are public.
- Tables: the kernels that the macro TABLES makes are looked at too. Those that look up are found to leak, so they
  cannot be what is built without it, and the others are constant-time.

First it shows on kernels with planted leaks that it would find one.

Usage: tools/gpu-kernels.py [--write]      --write makes the table, the S-boxes and the PTX anew
"""

import ctypes
import glob
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "crates/gpu/kernels"
TABLE = KERNELS / "instructions.txt"
NETWORKS = KERNELS / "des_networks.h"
NETWORKS_SOURCE = ROOT / "crates/crypto/src/cpu/des/networks.rs"
WHEELS = ROOT / "target/tools/gpu-kernels"
ARCHITECTURES = ["sm_75", "sm_90", "sm_100"]
# The first version of PTX with compute capability 7.5: drivers of CUDA 10.0 and later know it. The compiler gives its
# own version, which only the newest drivers know. It uses nothing of it, because these are all instructions.
PTX_VERSION = "6.3"
PTX_INSTRUCTIONS = set(
    "add and bar bfi bra cvt cvta ld lop3 mad mov mul neg not or prmt ret selp setp shf shl shr st sub xor".split()
)
REGISTERS_MAX = 128
TOLERANCE = 0.05

# The order in which the host joins the files.
FILES = re.findall(r'#include "(.*)"', (KERNELS / "plain.c").read_text())

# The names of what a kernel's parameters point to. A load from anything else yields a secret.
KEY_PARAMETERS = ["raw", "rows", "count"]
WIPE_PARAMETERS = ["slots", "rows", "count"]
PACKET_PARAMETERS = ["in", "out", "rows", "jobs", "order", "groups", "scratch", "verdicts", "direction"]
PARAMETERS = {
    "expand_keys": KEY_PARAMETERS,
    "wipe_keys": WIPE_PARAMETERS,
    "esp_cipher": PACKET_PARAMETERS,
    "esp_mac": PACKET_PARAMETERS,
    "esp_finish": PACKET_PARAMETERS,
    "esp_tdes": PACKET_PARAMETERS,
}
# The text before the source, the kernels that then look up in tables, and the file for CUDA's host.
FORMS = {
    "": ("", set(), KERNELS / "esp.ptx"),
    "tables ": ("#define TABLES\n", {"esp_cipher", "esp_finish"}, KERNELS / "esp_tables.ptx"),
}
PUBLIC = {"slots", "jobs", "order", "groups"}
# Words of a raw key that are public: its row, its cipher, its length, and the use of the powers of H.
PUBLIC_RAW = {0, 8, 12, 116}
SECRET = "secret"

# Kernels with leaks, in the parameters of esp_cipher, and the name of the leak that must be found. The last one has
# none.
LEAKS = {
    "leak_table": ("address", "out[LANE] = in[rows[8] & 0xff];"),
    "leak_store": ("address", "out[in[LANE] & 0xff] = 1;"),
    "leak_branch": ("branch", "if (rows[8] & 1) for (u32 i = 0; i < direction; i++) out[i] = in[i] * groups[i];"),
    "leak_loop": ("branch", "u32 n = 0; for (u32 x = in[LANE]; x > 1; x = x & 1 ? 3 * x + 1 : x / 2) n++; *out = n;"),
    "leak_hidden": ("branch", "scratch[LANE] = rows[9]; if (scratch[LANE ^ 1] == 7) out[LANE] = groups[in[1] * 0];"),
    "leak_division": ("division", "out[LANE] = in[LANE] / rows[8];"),
    "no_leak": (None, "u32 x = rows[jobs[LANE]]; if (order[LANE] == 3) out[jobs[LANE]] = ((0 - (x & 1)) & in[1]) ^ x;"),
}


class Failure(Exception):
    """A check failed, or a tool did."""


# ---------------------------------------------------------------------------- compiling


@dataclass
class Kernel:
    registers: int
    spills: int
    ptx: list["Instruction"] = field(default_factory=list)
    sass: list["Instruction"] = field(default_factory=list)

    def forms(self) -> dict[str, list["Instruction"]]:
        return {"PTX": self.ptx, "machine code": self.sass}


class Compiler:
    """NVRTC and nvdisasm, out of their wheels."""

    def __init__(self, library: str, disassembler: str):
        self.library = ctypes.CDLL(library)
        self.disassembler = disassembler

    @classmethod
    def find(cls) -> "Compiler | None":
        folder = f"{WHEELS}/lib/python3*/site-packages/nvidia"
        library = glob.glob(f"{folder}/*/lib/libnvrtc.so.*")
        disassembler = glob.glob(f"{folder}/*/bin/nvdisasm")
        return cls(library[0], disassembler[0]) if library and disassembler else None

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"NVRTC {major.value}.{minor.value}"

    def _text(self, program, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw

    def _program(self, source: str, architecture: str, *more: bytes) -> tuple[ctypes.c_void_p, str]:
        """Returns what is compiled, and the compiler's remarks."""
        options = [f"--gpu-architecture={architecture}".encode(), *more]
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"esp.cu", 0, None, None)
        array = (ctypes.c_char_p * len(options))(*options)
        code = self.library.nvrtcCompileProgram(program, len(options), array)
        log = self._text(program, "ProgramLog").decode().rstrip("\0")
        if code != 0:
            raise Failure(f"{architecture}: NVRTC error {code}\n{log}")
        return program, log

    def ptx(self, before: str) -> str:
        """The kernels for the oldest architecture. Only the target's name would differ for others."""
        program, _ = self._program(before + source(), "compute_75")
        text = self._text(program, "PTX").decode().rstrip("\0")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        head = f"// Kernels: {fnv1a(''.join((KERNELS / name).read_text() for name in FILES))}\n"
        return head + re.sub(r"(?m)^\.version .*", f".version {PTX_VERSION}", text, count=1)

    def compile(self, source: str, architecture: str) -> dict[str, Kernel]:
        program, log = self._program(source, architecture, b"--ptxas-options=-v")
        kernels = kernels_of_log(log)
        ptx = functions_of_ptx(self._text(program, "PTX").decode().rstrip("\0"))
        sass = functions_of_sass(self._disassembled(self._text(program, "CUBIN")), architecture)
        for name, kernel in kernels.items():
            kernel.ptx, kernel.sass = ptx[name], sass[name]
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return kernels

    def _disassembled(self, cubin: bytes) -> str:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            command = [self.disassembler, "-c", file.name]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernels_of_log(log: str) -> dict[str, Kernel]:
    """Reads registers, spills and stack from the assembler's remarks."""
    kernels = {}
    for part in log.split("Compiling entry function '")[1:]:
        name = part.split("'")[0]
        stack = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", part).groups())
        kernels[name] = Kernel(int(re.search(r"Used (\d+) registers", part)[1]), sum(stack))
    return kernels


def source(extra: str = "") -> str:
    return "".join((KERNELS / name).read_text() + "\n" for name in FILES) + extra


def fnv1a(text: str) -> str:
    """FNV-1a of 64 bits: a unit test of crates/gpu sees by it that the PTX is old, without a compiler."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def check_ptx(file: Path, ptx: str) -> list[str]:
    """Instructions that a driver of PTX_VERSION may not know, and a difference from the file."""
    opcodes = {instruction.opcode for body in functions_of_ptx(ptx).values() for instruction in body}
    # Modifiers with colons came later.
    unknown = {code for code in opcodes if code.split(".")[0] not in PTX_INSTRUCTIONS or "::" in code}
    failures = [f"{file.name}: has PTX {PTX_VERSION} {code}? Then add it to the list" for code in sorted(unknown)]
    if not file.exists() or file.read_text() != ptx:
        failures.append(f"{file.name} is not what the compiler makes of the kernels: run with --write")
    return failures


# ---------------------------------------------------------------------------- reading PTX and machine code


@dataclass
class Instruction:
    """An instruction of either form. Registers are names; a wide register of the machine is two names or four."""

    text: str
    guard: str
    opcode: str
    operands: list[str]
    targets: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    # Registers in the address of a load, of a store, or of an element of a constant bank.
    address: list[str] = field(default_factory=list)
    # Parameters whose value is read.
    parameters: set[int] = field(default_factory=set)
    # Numbers of the instructions that the operands' labels name, and of those that may follow.
    jumps: list[int] = field(default_factory=list)
    follows: list[int] = field(default_factory=list)
    # True if this is a load of a public word of a raw key, provided that it is a load from `raw`.
    public_raw: bool = False

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]


def follow(instructions: list[Instruction], ends) -> None:
    """Sets which instructions may follow each one. `ends` says that the next one does not follow."""
    for at, instruction in enumerate(instructions):
        instruction.follows += instruction.jumps
        if at + 1 < len(instructions) and (instruction.guard or not ends(instruction)):
            instruction.follows.append(at + 1)


def functions_of_ptx(text: str) -> dict[str, list[Instruction]]:
    found = {}
    for part in text.split(".entry ")[1:]:
        name = re.match(r"\w+", part)[0]
        body = part[part.index("{") + 1 : part.rindex("}")]
        found[name] = instructions_of_ptx(re.split(r"[;\n]", body))
    return found


def instructions_of_ptx(lines: list[str]) -> list[Instruction]:
    found: list[Instruction] = []
    labels = {}
    for line in filter(None, map(str.strip, lines)):
        if label := re.fullmatch(r"(\$\w+):", line):
            labels[label[1]] = len(found)
        if line.startswith((".", "//", "$", "{", "}")):
            continue
        guard, opcode, rest = re.match(r"(?:@(!?%p\d+)\s+)?(\S+)\s*(.*)", line).groups()
        operands = re.split(r",\s*(?![^{]*})", rest) if rest else []
        found.append(Instruction(line, guard or "", opcode, operands))
    definitions: dict[str, list[Instruction]] = {}
    for instruction in found:
        operands = instruction.operands
        if instruction.name not in ("st", "bra", "brx", "ret", "exit", "bar", "call"):
            instruction.targets = re.findall(r"%\w+", operands[0])
            operands = operands[1:]
            for register in instruction.targets:
                definitions.setdefault(register, []).append(instruction)
        for operand in operands:
            kind = instruction.address if operand.startswith("[") else instruction.sources
            kind += re.findall(r"%\w+", operand)
            instruction.parameters |= {int(number) for number in re.findall(r"_param_(\d+)", operand)}
        instruction.jumps = [labels[operand] for operand in operands if operand in labels]
        if instruction.name == "brx":
            instruction.jumps = list(labels.values())
    follow(found, lambda instruction: instruction.name in ("bra", "brx", "ret", "exit"))
    for instruction in found:
        if instruction.name == "ld" and instruction.address:
            register, offset = re.match(r"\[(%\w+)\+?(-?\d*)\]", instruction.operands[1]).groups()
            start = first_lane_value(definitions, register)
            instruction.public_raw = start is not None and start + int(offset or 0) in PUBLIC_RAW
    return found


def first_lane_value(definitions: dict[str, list[Instruction]], operand: str) -> int | None:
    """Computes a register for the first lane and buffers that begin at zero, if no loop changes it."""
    if re.fullmatch(r"-?\d+", operand):
        return int(operand)
    if re.fullmatch(r"%(tid|ctaid)\.x|\[\w+_param_\d+\]", operand):
        return 0
    known = definitions.get(operand, [])
    if len(known) != 1 or known[0].opcode.startswith("ld.global"):
        return None
    values = [first_lane_value(definitions, operand) for operand in known[0].operands[1:]]
    if None in values:
        return None
    match known[0].name, values:
        case "ld" | "cvta" | "cvt" | "mov", [value]:
            return value
        case "add" | "or", [a, b]:
            return a + b
        case "mul", [a, b]:
            return a * b
        case "shl", [a, b]:
            return a << b
        case "mad", [a, b, c]:
            return a * b + c
    return None


# Where the parameters begin in constant bank 0.
PARAMETER_BASE = {"sm_75": 0x160, "sm_90": 0x210, "sm_100": 0x380}
WITHOUT_TARGET = re.compile(
    r"(ST\w*|BRA|BRX|JMP|JMX|EXIT|NOP|BSSY|BSYNC|BREAK|WARPSYNC|YIELD|RET|BAR|DEPBAR|MEMBAR|ERRBAR|CCTL\w*|KILL|BPT)$"
)
REGISTER = re.compile(r"\b(UR|UP|R|P)(\d+)(?:\.reuse)?(\.64|\.U32)?")


def functions_of_sass(text: str, architecture: str) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if start := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            instructions = found.setdefault(start[1], [])
        elif (label := re.match(r"(\.\w+):", line)) and found:
            labels[label[1]] = len(instructions)
        elif part := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", line):
            guard, opcode, rest = part.groups()
            operands = re.split(r",\s*(?![^(]*\))", rest) if rest else []
            instructions.append(Instruction(f"{guard or ''} {opcode} {rest}".strip(), guard or "", opcode, operands))
    for instructions in found.values():
        complete_sass(instructions, labels, PARAMETER_BASE[architecture])
    return found


def complete_sass(instructions: list[Instruction], labels: dict[str, int], base: int) -> None:
    looped = set()
    barriers = {}
    for at, instruction in enumerate(instructions):
        registers_of_sass(instruction)
        offsets = [int(text, 16) - base for text in re.findall(r"c\[0x0\]\[(0x[0-9a-f]+)\]", instruction.text)]
        instruction.parameters = {offset // 8 for offset in offsets if 0 <= offset}
        names = re.findall(r"\.L_\w+", " ".join(instruction.operands))
        if instruction.name == "BSSY":
            barriers[at] = labels[names[0]]
        else:
            instruction.jumps = [labels[name] for name in names]
        looped.update(*(range(target, at + 1) for target in instruction.jumps))
    for at, instruction in enumerate(instructions):
        offset = re.search(r"\[[^\]]*?(?:\+(0x[0-9a-f]+))?\]$", instruction.text)
        instruction.public_raw = bool(offset) and at not in looped and int(offset[1] or "0", 16) in PUBLIC_RAW

    def ends(instruction: Instruction) -> bool:
        # BRA may have a condition among its operands.
        always = not instruction.sources
        return instruction.name in ("EXIT", "BRX", "RET", "BSYNC") or (instruction.name == "BRA" and always)

    follow(instructions, ends)
    follow_barriers(instructions, barriers)


def follow_barriers(instructions: list[Instruction], barriers: dict[int, int]) -> None:
    """Lets each BSYNC go on where the BSSY says that set its barrier: one from which a way leads to it."""
    changed = True
    while changed:
        changed = False
        for start, target in barriers.items():
            barrier = instructions[start].operands[0]
            waiting, seen = [start + 1], set()
            while waiting:
                at = waiting.pop()
                if at in seen:
                    continue
                seen.add(at)
                instruction = instructions[at]
                if instruction.operands[:1] == [barrier] and instruction.name == "BSSY":
                    continue
                if instruction.operands[:1] == [barrier] and instruction.name == "BSYNC":
                    if target not in instruction.follows:
                        instruction.jumps.append(target)
                        instruction.follows.append(target)
                        changed = True
                    continue
                waiting += instruction.follows


def registers_of_sass(instruction: Instruction) -> None:
    """Finds the registers that are written, that are read, and that are part of an address."""
    parts, operands = instruction.opcode.split("."), instruction.operands
    size = 4 if "128" in parts else 2 if "64" in parts or "WIDE" in parts else 1
    if instruction.name == "CS2R" and "32" not in parts:
        size = 2

    def names(text: str, size: int) -> list[str]:
        # PR is all predicates at once, of which a mask behind it selects some.
        selected = [n for n in range(7) if int(operands[-1], 16) >> n & 1] if text == "PR" else []
        found = [f"P{n}" for n in selected]
        for kind, number, suffix in REGISTER.findall(text):
            width = 1 if kind in ("P", "UP") or suffix == ".U32" else max(size, 2 if suffix == ".64" else 1)
            found += [f"{kind}{int(number) + n}" for n in range(width)]
        return found

    count = 0
    if operands and not WITHOUT_TARGET.match(instruction.name):
        # One or two predicates follow the first target, or a predicate of LOP3 stands before it.
        count = 1
        most = 2 if re.match(r"U?P", operands[0]) else 3
        while count < min(len(operands), most) and re.fullmatch(r"U?P(\d|T)", operands[count]):
            count += 1
        if re.match(r"U?LOP3", instruction.name) and re.match(r"U?P", operands[0]):
            count = 2
    for operand in operands[:count]:
        instruction.targets += names(operand, size)
    for at, operand in enumerate(operands[count:]):
        brackets = re.findall(r"\[([^\]]*)\]", operand)
        if brackets:
            # Global addresses have 64 bits, indices of constant banks 32.
            instruction.address += names(brackets[-1], 1 if re.match(r"-?\|?c", operand) else 2)
        elif "WIDE" in parts:
            instruction.sources += names(operand, 2 if at == 2 else 1)
        else:
            instruction.sources += names(operand, size)


def loops(instructions: list[Instruction]) -> list[int]:
    """The lengths of the loops' bodies. The endless jump behind a kernel's end is none."""
    found = []
    for at, instruction in enumerate(instructions):
        for target in instruction.jumps if instruction.name in ("BRA", "BRX") else []:
            if target < at:
                found.append(sum(inner.name != "NOP" for inner in instructions[target : at + 1]))
    return found


# ---------------------------------------------------------------------------- constant time

Labels = frozenset[str]

NONE: Labels = frozenset()
LOAD = re.compile(r"(ld|LD(?!C)\w*)$")
CONTROL = re.compile(r"(bra|brx|ret|exit|BRA|BRX|JMP|JMX|EXIT|BREAK|BSYNC|WARPSYNC|RET)$")
STORE = re.compile(r"(st|ST\w*)$")
DIVISION = re.compile(r"(div|rem)$")
FORBIDDEN = re.compile(
    r"((ld|st)\.(local|shared)|(LDL|STL|LDS|STS|LDSM|LDGSTS|LD|ST|CALL|ATOM|ATOMG|ATOMS|RED|BAR|call|atom|red|bar)\b)"
)


class State:
    """The labels of registers at one place.

    A register may be written and then read under the same guard: `guarded` has what it holds where the guard does.
    """

    def __init__(self, labels: dict[str, Labels] | None = None, guarded: dict[tuple[str, str], Labels] | None = None):
        self.labels = dict(labels or {})
        self.guarded = dict(guarded or {})

    def copy(self) -> "State":
        return State(self.labels, self.guarded)

    def of(self, registers: list[str], guard: str = "") -> Labels:
        return NONE.union(*(self.guarded.get((name, guard), self.labels.get(name, NONE)) for name in registers))

    def write(self, registers: list[str], guard: str, labels: Labels) -> None:
        opposite = guard[1:] if guard.startswith("!") else "!" + guard
        for key in list(self.guarded):
            register, condition = key
            if condition.lstrip("!") in registers or (register in registers and condition not in (guard, opposite)):
                del self.guarded[key]
        for register in registers:
            if guard:
                condition = self.labels.get(guard.lstrip("!"), NONE) & {SECRET}
                self.guarded[register, guard] = labels
                self.labels[register] = self.labels.get(register, NONE) | labels | condition
            else:
                self.labels[register] = labels

    def join(self, other: "State") -> bool:
        """Adds what another way to this place brings. Returns true if this changes anything."""
        # Labels that a guard keeps on one way alone do not hold here.
        lost = self.guarded.keys() - other.guarded.keys()
        for key in lost:
            del self.guarded[key]
        changed = bool(lost)
        for mine, theirs in ((self.labels, other.labels), (self.guarded, other.guarded)):
            for key, labels in theirs.items():
                known = mine.get(key)
                if known is None and mine is self.guarded:
                    continue
                if not labels <= (known or NONE):
                    mine[key] = (known or NONE) | labels
                    changed = True
        return changed


class Taint:
    """The possible content of each register at each place: names of parameters that it points into, and SECRET."""

    def __init__(self, name: str, instructions: list[Instruction]):
        self.parameters = PARAMETERS.get(name, PACKET_PARAMETERS)
        self.instructions = instructions
        self.joins = {at for instruction in instructions if len(instruction.follows) > 1 for at in instruction.follows}
        self.joins |= {at for instruction in instructions for at in instruction.jumps}
        # The states where blocks of instructions begin.
        self.states = {0: State()}
        waiting = {0}
        while waiting:
            start = min(waiting)
            waiting.remove(start)
            for at, state in self._block(start):
                pass
            self._apply(instructions[at], state)
            for follower in instructions[at].follows:
                known = self.states.get(follower)
                if known is None:
                    self.states[follower] = state.copy()
                    waiting.add(follower)
                elif known.join(state):
                    waiting.add(follower)

    def _block(self, at: int):
        """Yields each instruction of a block with the state before it."""
        state = self.states[at].copy()
        while True:
            yield at, state
            instruction = self.instructions[at]
            if instruction.follows != [at + 1] or at + 1 in self.joins:
                return
            self._apply(instruction, state)
            at += 1

    def _apply(self, instruction: Instruction, state: State) -> None:
        if not instruction.targets:
            return
        guard = instruction.guard
        labels = state.of(instruction.sources + instruction.address, guard)
        if LOAD.match(instruction.name) and not instruction.opcode.startswith("ld.param"):
            is_public = self._is_public(instruction, state.of(instruction.address, guard))
            labels = NONE if is_public else frozenset([SECRET])
        pointers = {self.parameters[n] for n in instruction.parameters if n < len(self.parameters)}
        state.write(instruction.targets, guard, labels | pointers)

    def _is_public(self, instruction: Instruction, labels: Labels) -> bool:
        buffers = labels & set(self.parameters)
        if buffers == {"raw"}:
            return instruction.public_raw
        return bool(buffers) and buffers <= PUBLIC

    def leaks(self) -> list[tuple[str, str]]:
        found = []
        for start in sorted(self.states):
            for at, state in self._block(start):
                instruction = self.instructions[at]
                name, guard = instruction.name, instruction.guard
                control = instruction.sources if CONTROL.match(name) else []
                if guard and (CONTROL.match(name) or LOAD.match(name) or STORE.match(name)):
                    control = control + [guard.lstrip("!")]
                if SECRET in state.of(control):
                    found.append(("branch", instruction.text))
                if SECRET in state.of(instruction.address, guard):
                    found.append(("address", instruction.text))
                if DIVISION.match(name) and SECRET in state.of(instruction.sources, guard):
                    found.append(("division", instruction.text))
                if FORBIDDEN.match(instruction.opcode):
                    found.append(("memory", instruction.text))
        return found


# ---------------------------------------------------------------------------- the checks


def self_test(compiler: Compiler, architecture: str) -> list[str]:
    """Both analyses must find each planted leak, and none where there is none."""
    prologue = "GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows, GLOBAL const u32 *jobs, " \
        "GLOBAL const u32 *order, GLOBAL const u32 *groups, GLOBAL u32 *scratch, GLOBAL u32 *verdicts, u32 direction"
    planted = "".join(f"ENTRY {name}({prologue}) {{ {body} }}\n" for name, (_, body) in LEAKS.items())
    shim = "".join((KERNELS / name).read_text() for name in ("abi.h", "shim.h"))
    kernels = compiler.compile(shim + planted, architecture)
    failures = []
    for name, (leak, _) in LEAKS.items():
        kernel = kernels[name]
        found = {form: Taint(name, code).leaks() for form, code in kernel.forms().items()}
        for form, leaks in found.items():
            # The machine has no instruction for division; its routine shows as branches or not at all.
            wanted = None if leak == "division" and form == "machine code" else leak
            names = {what for what, _ in leaks}
            if wanted not in names and wanted is not None:
                failures.append(f"{architecture}: the planted {leak} of {name} is not found in {form}: {leaks}")
            if leak is None and leaks:
                failures.append(f"{architecture}: {name} has no leak, but {form} is said to have {leaks}")
    return failures


def check_architecture(architecture: str) -> tuple[dict[str, str], list[str]]:
    """Returns the table's line of each kernel, and the failures."""
    compiler = Compiler.find()
    failures = self_test(compiler, architecture)
    lines = {}
    for form, (before, looking_up, _) in FORMS.items():
        kernels = compiler.compile(before + source(), architecture)
        failures += check_kernels(kernels, f"{architecture} {form}", looking_up, lines)
    return lines, failures


def check_kernels(kernels: dict[str, Kernel], prefix: str, looking_up: set[str], lines: dict[str, str]) -> list[str]:
    """Adds the table's line of each kernel, and returns the failures."""
    failures = []
    for name in PARAMETERS:
        kernel = kernels[name]
        place = f"{prefix}{name}"
        instructions = sum(instruction.name != "NOP" for instruction in kernel.sass)
        counts = " ".join(map(str, loops(kernel.sass)))
        lines[place] = f"{instructions} loops {counts}"
        print(f"{place}: {kernel.registers} registers, {kernel.spills} bytes spilled, {instructions} instructions")
        if kernel.spills or kernel.registers > REGISTERS_MAX:
            failures.append(f"{place}: {kernel.registers} registers, {kernel.spills} bytes of stack and spills")
        for form, code in kernel.forms().items():
            leaks = Taint(name, code).leaks()
            if name not in looking_up:
                failures += [f"{place}: {what} that depends on a secret in {form}: {text}" for what, text in leaks]
            elif not {"address", "memory"} <= {what for what, _ in leaks}:
                failures.append(f"{place}: the lookups in local memory are not found in {form}")
    return failures


def gate_of_two(table: int, a: str, b: str) -> str:
    """A function of two bits, whose table has bit 2a + b, as C with at most two operators."""
    forms = [
        "0", f"~({a} | {b})", f"~{a} & {b}", f"~{a}", f"{a} & ~{b}", f"~{b}", f"{a} ^ {b}", f"~({a} & {b})",
        f"{a} & {b}", f"~({a} ^ {b})", b, f"~{a} | {b}", a, f"{a} | ~{b}", f"{a} | {b}", "~0u",
    ]
    return forms[table]


def gate(table: int, names: list[str]) -> str:
    """A function of three bits as C with few operators, for devices without an instruction for it."""
    found = []
    for n in range(3):
        by, (a, b) = names[n], names[:n] + names[n + 1 :]
        place = [n2 for n2 in range(3) if n2 != n]
        halves = [0, 0]
        for at in range(8):
            bits = [at >> 2 & 1, at >> 1 & 1, at & 1]
            halves[bits[n]] |= (table >> at & 1) << (2 * bits[place[0]] + bits[place[1]])
        zero, one = halves
        of = lambda t: f"({gate_of_two(t, a, b)})"
        if zero == 0 or one == 0 or zero == 15 or one == 15:
            text = {zero == 0: f"{by} & {of(one)}", one == 0: f"~{by} & {of(zero)}",
                    zero == 15: f"~{by} | {of(one)}", one == 15: f"{by} | {of(zero)}"}[True]
        elif zero == one ^ 15:
            text = f"{by} ^ {of(zero)}"
        else:
            text = f"{of(zero)} ^ ({by} & {of(zero ^ one)})"
        found.append(text)
    return min(found, key=lambda text: (len(re.findall(r"[~&|^]", text)), text))


def des_networks() -> str:
    """The S-boxes of crates/crypto as C."""
    text = NETWORKS_SOURCE.read_text()
    found = "// The S-boxes of DES as networks of gates, out of crates/crypto. tools/gpu-kernels.py makes this file.\n"
    found += "//\n// Inputs and outputs are in the standard's order, the most significant bit first.\n"
    for number, body in re.findall(r"fn s(\d)<.*?{\n(.*?)\n}", text, re.DOTALL):
        inputs = ", ".join(f"u32 v{n}" for n in range(6))
        found += f"\nINLINE void des_s{number}(u32 out[4], {inputs}) {{\n"
        for target, table, a, b, c in re.findall(r"let (\w+) = W::gate::<(\w+)>\((\w+), (\w+), (\w+)\);", body):
            found += f"    u32 {target} = GATE({table}, {a}, {b}, {c}, {gate(int(table, 16), [a, b, c])});\n"
        outputs = re.search(r"\[(.*)\]\s*$", body)[1].split(", ")
        found += "".join(f"    out[{n}] = {output};\n" for n, output in enumerate(outputs)) + "}\n"
    return found


def compare(lines: dict[str, str]) -> list[str]:
    """Compares the instruction counts with the table's."""
    table = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    known = dict(line.split(": ", 1) for line in table)
    failures = [f"{place}: not in {TABLE.name}" for place in lines.keys() - known.keys()]
    failures += [f"{place}: only in {TABLE.name}" for place in known.keys() - lines.keys()]
    for place in lines.keys() & known.keys():
        old, new = (list(map(int, re.findall(r"\d+", text))) for text in (known[place], lines[place]))
        far = [pair for pair in zip(old, new) if abs(pair[1] - pair[0]) > TOLERANCE * pair[0]]
        if far or len(old) != len(new):
            failures.append(f"{place}: was {known[place]}, is {lines[place]}: run with --write if this is wanted")
    return failures


def main() -> int:
    arguments = sys.argv[1:]
    if arguments not in ([], ["--write"]):
        print(__doc__.split("\n\n")[-1], file=sys.stderr)
        return 2
    if arguments:
        NETWORKS.write_text(des_networks())
    elif NETWORKS.read_text() != des_networks():
        print(f"FAILED {NETWORKS.name} differs from {NETWORKS_SOURCE.name}: run with --write")
        return 1
    compiler = Compiler.find()
    if compiler is None:
        print("SKIP gpu-kernels: NVRTC and nvdisasm are not installed (tools/deps.sh)")
        return 0
    texts = {file: compiler.ptx(before) for before, _, file in FORMS.values()}
    for file, ptx in texts.items() if arguments else ():
        file.write_text(ptx)
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(check_architecture, ARCHITECTURES))
    lines = {place: line for found, _ in results for place, line in found.items()}
    failures = [failure for file, ptx in texts.items() for failure in check_ptx(file, ptx)]
    failures += [failure for _, found in results for failure in found]
    if arguments:
        head = f"# Instructions of each kernel and of its loops, by {compiler.version()} (tools/gpu-kernels.py)\n"
        TABLE.write_text(head + "".join(f"{place}: {line}\n" for place, line in lines.items()))
    else:
        failures += compare(lines)
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"test result: {len(lines) - len({f.split(':')[0] for f in failures})} passed; {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
