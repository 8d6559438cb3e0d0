"""How many operands an instruction has, and of what kinds: checked once, at load, so that handlers may rely on it.

The operands of an operation are written as a text of one letter each, first what it writes, then what it reads: ``r`` a
register, ``p`` a predicate or its negation, ``_`` nothing, ``c`` an integer, ``f`` a float, ``s`` an address or a
special register, ``m`` memory, ``t`` memory with coordinates, ``g`` and a number a group of so many. A row of the table
has regular expressions for both texts, with capitals for what ``_WORDS`` and ``_words_of`` say.
"""

from __future__ import annotations

import functools
import re

from cujit.devices.cpu.emit.registry import types_of
from cujit.devices.cpu.program import FloatConstant, Group, IntConstant, Memory, Negation, Op, Operand, Reg, Special

__all__ = ["fits", "number_out_of_range"]

_PAIRS = "f16x2|bf16x2|e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2|ue8m0x2|s2f6x2"
# Opcodes; the modifiers that an instruction of the row has (``|`` separates choices); what it writes | reads. The first
# row that an instruction is of counts. Source: PTX ISA 9.1, chapter 9.7, the syntax of each.
_TABLE = (
    ("add sub", "cc", "rp|SS"),
    ("addc subc", "", "rp?|SSp"),
    ("min max", "f32", "r|SSS?"),
    ("and or xor", "", "[rp]|SS|PP"),
    ("add sub mul mul24 div rem min max copysign shl shr szext bmsk mapa redux", "", "r|SS"),
    ("not", "", "[rp]|S|P"),
    ("mad", "cc", "rp|SSS"),
    ("madc", "", "rp?|SSSp"),
    ("mad mad24 fma sad dp4a dp2a bfe prmt shf fns slct", "", "r|SSS"),
    ("bfi", "", "r|SSSS"),
    ("abs neg cnot popc clz brev bfind rcp sqrt rsqrt sin cos lg2 ex2 tanh cvta getctarank", "", "r|S"),
    ("testp isspacep", "", "p|S"),
    ("selp", "", "r|SSP"),
    ("set", "", "r|SSB"),
    ("setp", "", "[p_]{1,2}|SSB"),
    ("lop3", "and|or", "[r_][p_]|SSScP"),
    ("lop3", "", "[r_]|SSSc"),
    ("cvt", "pack b32", "r|SSS"),
    ("cvt", "pack", "r|SS"),
    ("cvt", "rs f16x2|bf16x2", "r|SSS"),
    ("cvt", "rs", "r|g4S"),
    ("cvt", f"f32 {_PAIRS}", "r|SSK"),
    ("cvt", "", "r|SK"),
    ("mov", "", "[rp_]+|S|P|N"),
    ("vadd vsub vabsdiff vmin vmax vshl vshr vset", "add|min|max", "r|SSS"),
    ("vadd vsub vabsdiff vmin vmax vshl vshr vset", "", "r|SSS?"),
    ("vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4", "", "r|SSS"),
    ("vmad", "", "r|SSS"),
    ("ld ldu", "", "[r_]V|mH"),
    ("st red", "mbarrier::complete_tx::bytes", "|mGm"),
    ("st", "bulk", "|mSS"),
    ("st red", "", "|mGH"),
    ("atom", "cas", "[r_]V|mGGH"),
    ("atom", "", "[r_]V|mGH"),
    ("prefetch prefetchu", "", "|m"),
    ("applypriority discard", "", "|mS"),
    ("createpolicy", "cvt", "r|S"),
    ("createpolicy", "range", "r|mSS"),
    ("createpolicy", "", "r|S?"),
    ("fence", "tensormap::generic acquire", "|mS"),
    ("fence membar griddepcontrol trap brkpt", "", "|"),
    ("bar barrier", "red", "[rp]|S{1,2}P"),
    ("bar barrier", "cluster", "|"),
    ("bar barrier", "warp", "|S"),
    ("bar barrier", "arrive", "|SS"),
    ("bar barrier", "", "|S{1,2}"),
    ("mbarrier", "inval", "|m"),
    ("mbarrier", "arrive|arrive_drop expect_tx|noComplete", "[r_]|mS"),
    ("mbarrier", "arrive|arrive_drop", "[r_]|mS?"),
    ("mbarrier", "init|expect_tx|complete_tx", "|mS"),
    ("mbarrier", "pending_count", "r|S"),
    ("mbarrier", "try_wait", "p|mSS?"),
    ("mbarrier", "test_wait", "p|mS"),
    ("vote", "sync", "[rp]|PS"),
    ("vote", "", "[rp]|P"),
    ("shfl", "sync", "[r_][p_]?|SSSS"),
    ("shfl", "", "[r_][p_]?|SSS"),
    ("match", "all", "[r_][p_]?|SS"),
    ("match", "", "r|SS"),
    ("activemask stacksave", "", "r|"),
    ("elect", "", "[r_][p_]|S"),
    ("setmaxnreg pmevent", "", "|c"),
    ("nanosleep stackrestore", "", "|S"),
    ("alloca", "", "r|SS?"),
    ("cp", "mbarrier", "|m"),
    ("cp", "commit_group|wait_all", "|"),
    ("cp", "wait_group", "|c"),
    ("cp", "tensor prefetch", "|tIH"),
    ("cp", "tensor mbarrier::complete_tx::bytes", "|mtmIMH"),
    ("cp", "tensor", "|tmH"),
    ("cp", "bulk prefetch", "|mSH"),
    ("cp", "bulk mbarrier::complete_tx::bytes", "|mmSmMH"),
    ("cp", "bulk cp_mask", "|mmSHS"),
    ("cp", "bulk", "|mmSH"),
    ("cp", "", "|mmc(S|P)?H"),
    ("tensormap", "cp_fenceproxy", "|mmc"),
    ("tensormap", "box_dim|global_dim|global_stride|element_stride", "|mc[rcs]"),
    ("tensormap", "", "|m[rcs]"),
    ("tex", "level", "[r_]V[p_]?|tSN?S?"),
    ("tex", "grad", "[r_]V[p_]?|tFFN?S?"),
    ("tex tld4", "", "[r_]V[p_]?|tN?S?"),
    ("txq", "level", "r|mS"),
    ("txq suq", "", "r|m"),
    ("suld", "", "[r_]V[p_]?|t"),
    ("sust", "", "|tG"),
    ("sured", "", "|tS"),
    ("mma", "sp|sp::ordered_metadata block_scale", "[r_]+|FFFScEg2Eg2"),
    ("mma", "sp|sp::ordered_metadata", "[r_]+|FFFSc"),
    ("mma", "block_scale", "[r_]+|FFFEg2Eg2"),
    ("mma", "", "[r_]+|FFF"),
    ("wmma", "load", "[r_]+|mS?"),
    ("wmma", "store", "|mFS?"),
    ("wmma", "", "[r_]+|FFF"),
    ("wgmma", "mma_async sp", "[r_]+|NFSScPc*"),
    ("wgmma", "mma_async", "[r_]+|NFSPc*"),
    ("wgmma", "wait_group", "|c"),
    ("wgmma", "", "|"),
    ("ldmatrix", "", "[r_]+|m"),
    ("stmatrix", "", "|mF"),
    ("movmatrix", "", "r|S"),
    ("clusterlaunchcontrol", "try_cancel", "|mm"),
    ("clusterlaunchcontrol", "is_canceled", "p|S"),
    ("clusterlaunchcontrol", "", "[r_]V|S"),
)  # fmt: skip
_WORDS = {"S": "[rscf]", "P": "[pc]", "N": r"(?:g\d+)", "F": r"(?:g\d+|[rscf])", "E": "(?:g1|[rscf])"}
"""A scalar; a predicate; a group; a group or the one register that would be in it; one register, in braces or not."""


# Opcodes; the modifiers that an instruction has (``!``: has not); which of the operands that it reads; the numbers that
# may stand there. Source: what ptxas 13.0 takes of 31 numbers from -1 to 2^32.
_NUMBERS: tuple[tuple[str, str, int, range | tuple[int, ...]], ...] = (
    ("cp", "ca", 2, (4, 8, 16)),
    ("cp", "cg", 2, (16,)),
    ("cp", "ca|cg", 3, range(17)),
    ("setmaxnreg", "", 0, range(24, 257, 8)),
    ("pmevent", "", 0, range(1 << 16)),
    ("bar barrier", "sync|arrive|red !warp", 0, range(16)),
    ("bar barrier", "sync|arrive|red !warp", 1, range(0, 1 << 32, 32)),
    ("discard applypriority fence", "", 1, (128,)),
    ("tensormap", "cp_fenceproxy", 2, (128,)),
    ("mma", "sp|sp::ordered_metadata", 4, range(4)),
    ("wgmma", "mma_async f16|bf16|tf32|e4m3|e5m2", 4, (-1, 1)),
    ("wgmma", "mma_async f16|bf16|tf32|e4m3|e5m2", 5, (-1, 1)),
    ("wgmma", "mma_async f16|bf16", 6, (0, 1)),
    ("wgmma", "mma_async f16|bf16", 7, (0, 1)),
    ("bfe bfi", "", -1, range(256)),
    ("bfe bfi", "", -2, range(256)),
)

_WITH_FLOATS = re.compile(r"(b?f|[bsu])(16|32|64)(x2)?|tf32")
"""Types whose constants may be floats."""


def fits(op: Op) -> bool:
    """Tell whether an operation has operands as its form takes them; one whose opcode is not in the table has."""
    form = _form(op.opcode, op.modifiers)
    if form is None:
        return True
    results, sources = form
    if _has_float(op.sources) and not all(map(_WITH_FLOATS.fullmatch, types_of(op))):
        return False
    written = "".join("_" if reg is None else "p" if reg.bits == 1 else "r" for reg in op.results)
    return bool(results.fullmatch(written) and sources.fullmatch("".join(map(_letter, op.sources))))


def number_out_of_range(op: Op) -> int | None:
    """Give a number among the operands that is none of those that may stand there; None if there is none."""
    more = 2 if op.opcode == "wgmma" and "sp" in op.modifiers else 0  # metadata and its selector come before
    for opcodes, words, at, allowed in _NUMBERS:
        place = at + more
        if op.opcode not in opcodes.split() or not -len(op.sources) <= place < len(op.sources):
            continue
        number = op.sources[place]
        has = all(_has_word(op.modifiers, word) for word in words.split())
        if has and isinstance(number, IntConstant) and number.value not in allowed:
            return number.value
    return None


def _has_word(modifiers: tuple[str, ...], words: str) -> bool:
    """Tell whether one of ``words`` is there (``|`` separates them); with ``!``, whether the word is not."""
    if words.startswith("!"):
        return words[1:] not in modifiers
    return not set(words.split("|")).isdisjoint(modifiers)


def _has_float(operands: tuple[Operand, ...]) -> bool:
    return any(
        isinstance(operand, FloatConstant) or (isinstance(operand, Group) and _has_float(operand.items))
        for operand in operands
    )


@functools.cache
def _rows() -> dict[str, list[tuple[list[set[str]], str]]]:
    found: dict[str, list[tuple[list[set[str]], str]]] = {}
    for opcodes, words, form in _TABLE:
        for opcode in opcodes.split():
            found.setdefault(opcode, []).append(([set(word.split("|")) for word in words.split()], form))
    return found


@functools.lru_cache(maxsize=4096)
def _form(opcode: str, modifiers: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """Find what an instruction writes and what it reads."""
    for words, form in _rows().get(opcode, ()):
        if not any(choices.isdisjoint(modifiers) for choices in words):
            every = {**_WORDS, **_words_of(modifiers)}
            texts = ("".join(every.get(letter, letter) for letter in text) for text in form.split("|", 1))
            first, second = map(re.compile, texts)
            return first, second
    return None


def _words_of(modifiers: tuple[str, ...]) -> dict[str, str]:
    """What capitals stand for that depend on the modifiers.

    ``V`` is as many as the vector has, ``G`` so many in braces, ``B`` the predicate that ``.and`` combines with, ``H``
    a cache policy, ``K`` a scale, ``M`` a mask of blocks, ``I`` the offsets of im2col mode.
    """
    has = set(modifiers)
    width = next((int(word[1]) for word in modifiers if word in ("v2", "v4", "v8")), 1)
    rank = next((int(word[0]) for word in modifiers if re.fullmatch("[1-5]d", word)), 0)
    offsets = f"g{rank - 2}" if "im2col" in has else "g2" if has & {"im2col::w", "im2col::w::128"} else ""
    return {
        "V": f"{{{width}}}",
        "G": f"(?:g{width}{'|[rscf]' if width == 1 else ''})",
        "B": "[pc]" if has & {"and", "or", "xor"} else "",
        "H": "[rscf]" if "L2::cache_hint" in has else "",
        "K": "[rscf]" if "scaled::n2::ue8m0" in has else "",
        "M": "[rscf]" if "multicast::cluster" in has else "",
        "I": offsets,
    }


def _letter(operand: Operand) -> str:
    if isinstance(operand, Reg):
        return "p" if operand.bits == 1 else "r"
    if isinstance(operand, Group):
        return f"g{len(operand.items)}" if all(_letter(item) in "rcfs_" for item in operand.items) else "?"
    if isinstance(operand, Memory):
        return "t" if operand.coords else "m"
    if isinstance(operand, Negation):
        return "p" if isinstance(operand.item, Reg) and operand.item.bits == 1 else "?"
    if isinstance(operand, Special):
        return "_" if operand.name == "_" else "s"
    return "c" if isinstance(operand, IntConstant) else "f" if isinstance(operand, FloatConstant) else "s"
