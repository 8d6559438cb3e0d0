"""Calls of the functions that every kernel may call without bringing them, and traps.

A call arrives as ``Op("call.extern", (name,), results, sources)``, with one source for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.names import BLOCK, FIRST_THREAD, LAUNCH
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.ir.refusals import UNLINKED
from cujit.devices.cpu.native.library import require
from cujit.devices.cpu.native.structures import FaultKind

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import Handler, WarpEmitter

__all__ = ["EXTERNS", "refusal_of", "register"]

_LAUNCHES = "kernels that launch kernels"
_GRAPHS = "conditional nodes of graphs"

# Functions of NVIDIA's that PTX may declare and that do not run here. Source: cuda_device_runtime_api.h, CUDA 13.0.
_REFUSED = {
    **dict.fromkeys(("cudaGetParameterBuffer", "cudaGetParameterBufferV2"), _LAUNCHES),
    **dict.fromkeys(("cudaLaunchDevice", "cudaLaunchDeviceV2", "cudaDeviceSynchronize"), _LAUNCHES),
    **dict.fromkeys(("cudaGraphSetConditional", "__cudaGraphSetConditional"), _GRAPHS),
}


def refusal_of(name: str) -> str:
    """Say why a call of a function without a body is refused."""
    return _REFUSED.get(name, f"a function {UNLINKED}")


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("trap", _trap(FaultKind.TRAP))
    rules.on("brkpt", _trap(FaultKind.BREAKPOINT))
    for name, handler in EXTERNS.items():
        rules.on(f"call.extern .{name}", handler)


# -- traps ------------------------------------------------------------------------------------------------


def _trap(kind: FaultKind) -> Handler:
    """Make the handler of an instruction that ends the launch if a lane comes to it.

    Source: PTX ISA 9.1, "trap", "brkpt": without a debugger a breakpoint ends a kernel on a GPU, too.
    """

    def emit(e: WarpEmitter, op: Op) -> None:
        b = e.builder

        def end(thread: Value, lane: Value) -> None:
            del lane
            where = (BLOCK, thread, b.integer(op.line, 32), b.integer(0, 64))
            _call(e, "cujit_fault", LAUNCH, b.integer(int(kind), 32), *where)

        _for_first_lane(e, op, end)

    return emit


def _assert(e: WarpEmitter, op: Op) -> None:
    """``__assertfail(message, file, line, function, charSize)`` and ``__assert_fail``, which has no size.

    Source: CUDA C++ Programming Guide, "Assertion"; the parameters are those of the PTX that NVRTC writes.
    """
    b = e.builder
    message, file, function = (b.vector(e.source(op, k, "i64")) for k in (0, 1, 3))
    line = b.vector(e.source(op, 2, "i32"))

    def end(thread: Value, lane: Value) -> None:
        texts = [b.cast("inttoptr", b.extract(v, lane), "ptr") for v in (message, file, function)]
        own = b.extract(line, lane)
        _call(e, "cujit_assert", LAUNCH, BLOCK, thread, b.integer(op.line, 32), texts[0], texts[1], own, texts[2])

    _for_first_lane(e, op, end)


def _for_first_lane(e: WarpEmitter, op: Op, end: Callable[[Value, Value], None]) -> None:
    """If a lane runs the operation, do ``end`` with the first one's thread and lane; it does not come back."""
    b = e.builder
    word = _word(e, op)
    with b.when(b.compare("icmp ne", word, b.integer(0, 32)), "trap"):
        lane = b.lowest_bit(word)
        end(b.binary("add", FIRST_THREAD, lane), lane)
        b.unreachable()


# -- functions --------------------------------------------------------------------------------------------


def _print(e: WarpEmitter, op: Op) -> None:
    """``vprintf(format, arguments)``. Source: CUDA C++ Programming Guide, "Formatted Output"."""
    formats, arguments = (_spilled(e, e.source(op, k, "i64"), k) for k in (0, 1))
    results = _spilled(e, e.builder.vector(e.builder.integer(0, 32)), 2)
    _call(e, "cujit_vprintf", LAUNCH, _word(e, op), formats, arguments, results, BLOCK, FIRST_THREAD)
    _put(e, op, "i32")


def _malloc(e: WarpEmitter, op: Op) -> None:
    """``malloc(bytes)``. Source: CUDA C++ Programming Guide, "Dynamic Global Memory Allocation"."""
    sizes = _spilled(e, e.source(op, 0, "i64"), 0)
    results = _spilled(e, e.builder.vector(e.builder.integer(0, 64)), 2)
    _call(e, "cujit_malloc", _word(e, op), sizes, results)
    _put(e, op, "i64")


def _free(e: WarpEmitter, op: Op) -> None:
    blocks = _spilled(e, e.source(op, 0, "i64"), 0)
    line = e.builder.integer(op.line, 32)
    _call(e, "cujit_free", LAUNCH, _word(e, op), blocks, BLOCK, FIRST_THREAD, line)


EXTERNS: dict[str, Handler] = {
    "vprintf": _print,
    "malloc": _malloc,
    "free": _free,
    "__assertfail": _assert,
    "__assert_fail": _assert,
}
"""What emits a call of each function that is there."""


def _word(e: WarpEmitter, op: Op) -> Value:
    """The lanes that run the operation, as bits."""
    return e.builder.word(e.lanes(op))


def _spilled(e: WarpEmitter, value: Value, number: int) -> Value:
    """Put a vector into the frame's array of that number, for native code to read or write; give its address."""
    b, value = e.builder, e.builder.vector(value)
    b.reserve(f"%extern.{number}", f"[{WARP} x i64]")
    b.store(value, f"%extern.{number}")
    return Value(f"%extern.{number}", "ptr")


def _put(e: WarpEmitter, op: Op, type_: str) -> None:
    """Write what native code left in the array of results."""
    if op.results:
        e.put(op, e.builder.load(type_, "%extern.2", vector=True))


def _call(e: WarpEmitter, name: str, *arguments: Value) -> None:
    """Call native code of ours, which has to be there when this code is compiled."""
    require(name)
    e.builder.call(name, "void", *arguments)
