"""Constructs in a PTX text, and the ones that the CPU device doesn't support."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from cujit.arch.support import Version
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.cpu.implemented import Total, total
from cujit.errors import CujitError, FormatError, PtxSyntaxError, UnsupportedError
from cujit.errors.hints import Hint
from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.isa.table import special_register
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.uses import construct_needs, together
from cujit.inspection.read import inspect
from cujit.inspection.values import ImageInfo
from cujit.values import dataclass


@dataclass(frozen=True)
class Refusal:
    """A construct that the CPU device doesn't support: its first line, its name, and the reason."""

    line: int
    construct: str
    why: str


@dataclass(frozen=True)
class Use:
    """An instruction with its modifiers, a special register, or a feature, with its number of occurrences.

    ``why`` is the reason why the CPU device refuses it, or empty.
    """

    name: str
    count: int
    why: str = ""


@dataclass(frozen=True)
class PtxNeeds:
    """What one PTX text needs.

    ``version`` and ``target`` are what it declares; ``oldest`` and ``arch`` the first ISA version and architecture
    that have all its constructs (``compute_90a``). ``refusals`` is what the CPU device does not execute, by line: empty
    where it executes all. ``table`` says how much of the whole ISA the CPU device executes.
    """

    version: Version
    target: tuple[str, ...]
    oldest: Version
    arch: str
    instructions: tuple[Use, ...]
    special_registers: tuple[Use, ...]
    features: tuple[Use, ...]
    refusals: tuple[Refusal, ...]
    table: Total


def requirements(image: object) -> tuple[PtxNeeds, ...]:
    """Return the PTX version and architecture that an image requires, and any instructions in it that the CPU device
    doesn't support.

    Args:
        image: an Artifact, bytes, PTX text, the path of a file, or a loaded Module, as for ``inspect``. For a cubin,
            cujit uses the PTX in its line information.

    Raises:
        FormatError: there is no PTX, or it is damaged.
        FileError: the file can't be read.

    Example::

        (needed,) = cujit.requirements(ptx)
        print(needed.oldest, needed.arch, needed.refusals)
    """
    found = inspect(image)
    if not found.with_ptx:
        raise FormatError(
            "the image contains no PTX",
            help=Hint(
                "cujit.inspect(image) shows what the image contains",
                shell="cujit inspect FILE shows what the file contains",
            ),
        )
    return tuple(image_needs(part, found.name) for part in found.with_ptx)


def image_needs(image: ImageInfo, name: str) -> PtxNeeds:
    """Return the same for one image of an inspection.

    Raises:
        FormatError: it is damaged.
    """
    return ptx_needs(image.ptx(), name)


def ptx_needs(text: str, name: str = "<ptx>") -> PtxNeeds:
    """Return what a PTX text uses, and which of it the CPU device refuses, according to the device's loader.

    Raises:
        PtxSyntaxError: the text is not PTX.
    """
    module = parse(text, name=name)
    refusals = _refusals(text, name)
    reasons = {refusal.construct: refusal.why for refusal in reversed(refusals)}
    statements = [statement for function in module.functions for statement in ptx.flat(function.body)]
    instructions = Counter(i.name for i in statements if isinstance(i, ptx.Instruction))
    registers = Counter(n for i in statements if isinstance(i, ptx.Instruction) for n in _special_registers(i))
    oldest, arch = _oldest(module)
    return PtxNeeds(
        module.version,
        module.target,
        oldest,
        arch,
        _uses(instructions, reasons),
        _uses(registers, reasons),
        _uses(Counter(_features(module, statements)), {}),
        refusals,
        total(),
    )


def _uses(counts: Counter[str], reasons: dict[str, str]) -> tuple[Use, ...]:
    """Sort uses by their number of occurrences and their names."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Use(name, count, reasons.get(name, "")) for name, count in ordered)


def _oldest(module: ptx.PtxModule) -> tuple[Version, str]:
    """Return the version and target that all constructs together need. If no target has all of them, return the
    declared ones.
    """
    needed = together(construct_needs(module))
    least = needed.least or module.target[0].removeprefix("sm_")
    return needed.of(least) or module.version, f"compute_{least}"


def _refusals(text: str, name: str) -> tuple[Refusal, ...]:
    """Load the text on the CPU device. Kernels are compiled only when they are launched."""
    try:
        module = CpuBackend(1).load(Artifact(ImageKind.PTX, text.encode(), name=name))
    except UnsupportedError as e:
        return tuple(Refusal(*item) for item in sorted(e.items))
    except PtxSyntaxError as e:
        return (Refusal(e.line, "the module", e.diagnostic.message),)
    except CujitError as e:
        return (Refusal(0, "the module", e.message),)
    with contextlib.closing(module):
        return tuple(Refusal(*item) for item in sorted({i for kernel in module.refused.values() for i in kernel.items}))


def _special_registers(instruction: ptx.Instruction) -> Iterator[str]:
    """Return the special registers among operands, including operands in brackets and braces."""
    names = (operand.name for operand in ptx.within(instruction.operands) if isinstance(operand, ptx.Register))
    return (name for name in names if special_register(name) is not None)


# -- features ---------------------------------------------------------------------------------------------


def _has(opcodes: str, *words: str, lacks: str = "") -> Callable[[ptx.Instruction], bool]:
    """Return a predicate for instructions: one of these opcodes (any, if empty), and one modifier of each text."""
    names, groups, absent = set(opcodes.split()), [set(group.split()) for group in words], set(lacks.split())

    def test(i: ptx.Instruction) -> bool:
        given = set(i.modifiers)
        return (not names or i.opcode in names) and all(group & given for group in groups) and not absent & given

    return test


def _calls(*names: str) -> Callable[[ptx.Instruction], bool]:
    def test(i: ptx.Instruction) -> bool:
        return i.opcode == "call" and any(_called(operand) in names for operand in i.operands)

    return test


def _called(operand: ptx.Operand) -> str:
    return operand.name if isinstance(operand, (ptx.SymbolRef, ptx.Register, ptx.LabelRef)) else ""


_FEATURES: dict[str, Callable[[ptx.Instruction], bool]] = {
    "calls of functions": _has("call"),
    "printing": _calls("vprintf"),
    "assertions": _calls("__assertfail", "__assert_fail"),
    "the device heap": _calls("malloc", "free"),
    "barriers of a block": _has("bar barrier", lacks="warp cluster"),
    "barriers of a cluster": _has("barrier", "cluster"),
    "exchange between the lanes of a warp": _has("shfl vote match redux activemask elect"),
    "barriers of a warp": _has("bar", "warp"),
    "atomics": _has("atom red", lacks="async"),
    "fences": _has("fence membar"),
    "ordered or volatile accesses": _has("ld st", "acquire release relaxed volatile"),
    "mbarriers": _has("mbarrier"),
    "asynchronous copies": _has("cp", "async", lacks="bulk tensor"),
    "bulk copies": _has("cp", "bulk", lacks="tensor"),
    "tensor copies (TMA)": _has("cp", "tensor"),
    "tensor maps": _has("tensormap"),
    "distributed shared memory": _has("", "shared::cluster"),
    "textures": _has("tex tld4 txq"),
    "surfaces": _has("suld sust sured suq"),
    "matrices of a warp": _has("mma wmma ldmatrix stmatrix movmatrix"),
    "matrices of a warpgroup": _has("wgmma"),
    "tensor memory": _has("tcgen05"),
    "multicast memory": _has("multimem"),
    "f64": _has("", "f64"),
    "f16": _has("", "f16 f16x2"),
    "bf16": _has("", "bf16 bf16x2"),
    "tf32": _has("", "tf32"),
    "floats of 8 bits and less": _has(
        "", "e4m3 e5m2 e4m3x2 e5m2x2 e4m3x4 e5m2x4 e2m3x2 e3m2x2 e2m1x2 e2m3x4 e3m2x4 e2m1x4 ue8m0x2"
    ),
    "carry chains": lambda i: i.opcode in ("addc", "subc", "madc") or "cc" in i.modifiers,
    "memory on the stack": _has("alloca stacksave stackrestore"),
    "jump tables": _has("brx"),
    "dependent launches": _has("griddepcontrol"),
    "traps": _has("trap brkpt"),
}
"""Features by name, and which instructions are a use of each."""


def _features(module: ptx.PtxModule, statements: list[ptx.Statement]) -> Iterator[str]:
    """Name each feature once for every use."""
    for statement in statements:
        if isinstance(statement, ptx.Instruction):
            yield from (name for name, test in _FEATURES.items() if test(statement))
    variables = [v for v in (*module.variables, *statements) if isinstance(v, ptx.Variable)]
    yield from (kind for variable in variables if (kind := _kind(variable)))


def _kind(variable: ptx.Variable) -> str:
    """Return the kind of memory that a variable requires. Call parameters require none."""
    if variable.space == "shared":
        is_dynamic = variable.shape == (0,) and variable.linkage == "extern"  # with a size it is another image's
        return "dynamic shared memory" if is_dynamic else "static shared memory"
    names = {"global": "global variables", "const": "constant variables", "local": "local variables"}
    return names.get(variable.space, "")
