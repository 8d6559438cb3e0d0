"""Instructions that only advise, or wait for what is done: cache policies, priorities, launches, register counts.

PTX ISA 9.1: "Data Movement and Conversion Instructions: createpolicy, applypriority, discard", "griddepcontrol",
"Miscellaneous Instructions". A processor has no use for them, so they do nothing.
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("createpolicy", _policy)
    rules.on("createpolicy .cvt", _policy_of_property)
    rules.on("applypriority|discard|prefetch|prefetchu|griddepcontrol|setmaxnreg|pmevent|nanosleep", _nothing)
    rules.on("cp .commit_group|wait_group|wait_all|mbarrier", _nothing)
    rules.on("cp .bulk .prefetch", _nothing)
    rules.on("wgmma .fence|commit_group|wait_group", _nothing)
    rules.on("mbarrier .inval", _nothing)


def _nothing(e: WarpEmitter, op: Op) -> None:
    """Do nothing.

    Launches follow each other; ``discard`` leaves open what is in memory then, ``mbarrier.inval`` what is done with it.
    What was issued is done, so that nobody waits for it: ``cp.async.mbarrier.arrive`` adds an arrival to the count
    before the copies that takes it away again.
    """


def _policy(e: WarpEmitter, op: Op) -> None:
    """Give the one policy that there is; it is opaque, and whoever takes it ignores it."""
    e.put(op, e.builder.integer(0, 64))


def _policy_of_property(e: WarpEmitter, op: Op) -> None:
    """Give the property itself, opaque as well."""
    e.put(op, e.source(op, 0, "i64"))
