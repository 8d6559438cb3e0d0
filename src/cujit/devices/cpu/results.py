"""Which instructions write registers: all but those named here write their first operand."""

from __future__ import annotations

from cujit.devices.cpu.program import Op

__all__ = ["has_result", "reads_its_result"]

# Opcodes that write no register, whatever their modifiers. Source: PTX ISA 9.1, chapter 9.7, the syntax of each.
_NEVER = frozenset(
    {
        "st", "red", "prefetch", "prefetchu", "discard", "applypriority", "membar", "fence", "ret", "exit",
        "bra", "brx", "call", "trap", "brkpt", "nanosleep", "pmevent", "cp", "sust", "sured", "stmatrix",
        "griddepcontrol", "setmaxnreg", "stackrestore", "tensormap",
    }
)  # fmt: skip

# Opcodes of which some forms write none: those with one of these words.
_BY_WORD = {
    "bar": frozenset({"sync", "arrive", "warp"}),
    "barrier": frozenset({"sync", "arrive", "cluster"}),
    "mbarrier": frozenset({"init", "inval", "expect_tx", "complete_tx"}),
    "wmma": frozenset({"store"}),
    "wgmma": frozenset({"fence", "commit_group", "wait_group"}),
    "multimem": frozenset({"st", "red", "cp"}),
    "clusterlaunchcontrol": frozenset({"try_cancel"}),
}


def has_result(op: Op) -> bool:
    """Tell whether the first operand of an instruction is written."""
    if op.opcode in _NEVER:
        return False
    if op.opcode == "mbarrier" and "arrive" in "".join(op.modifiers):
        return True
    words = _BY_WORD.get(op.opcode)
    return words is None or words.isdisjoint(op.modifiers)


def reads_its_result(op: Op) -> bool:
    """Tell whether the first operand is both read and written: the accumulator of ``wgmma.mma_async``."""
    return op.opcode == "wgmma"
