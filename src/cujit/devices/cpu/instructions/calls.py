"""Calls of functions in the program, calls of functions that every kernel may use without defining them, traps, and the
stack.

A call arrives as ``Op("call.extern", (name,), results, sources)``, with one source for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import Handler, WarpEmitter
from cujit.devices.cpu.instructions.blocks import to_process
from cujit.devices.cpu.instructions.memory import local_base
from cujit.devices.cpu.ir.program import CLEAR, IntConstant, Op, SymbolAddress
from cujit.devices.cpu.ir.refusals import UNLINKED
from cujit.devices.cpu.native.library import address_of
from cujit.devices.cpu.native.structures import FaultKind

_LANE = list(range(WARP))
_ALIGNMENT = 16
"""Bytes that memory of ``alloca`` is aligned to, at the least. Source: PTX ISA 9.1, "alloca": 8."""

_LAUNCHES = "kernels that launch kernels"
_GRAPHS = "conditional nodes of graphs"

# Functions of NVIDIA's that PTX may declare and that do not run here. Source: cuda_device_runtime_api.h, CUDA 13.0,
# which has all of the run-time of devices also by names that begin with ``_RUNTIME``.
_RUNTIME = "__cudaCDP2"
_REFUSED = {
    **dict.fromkeys(("cudaGetParameterBuffer", "cudaGetParameterBufferV2"), _LAUNCHES),
    **dict.fromkeys(("cudaLaunchDevice", "cudaLaunchDeviceV2", "cudaDeviceSynchronize"), _LAUNCHES),
    **dict.fromkeys(("cudaGraphSetConditional", "__cudaGraphSetConditional"), _GRAPHS),
}


def refusal_of(name: str) -> str:
    """Return why a call of a function without a body is refused."""
    return _LAUNCHES if name.startswith(_RUNTIME) else _REFUSED.get(name, f"a function {UNLINKED}")


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("trap", _trap(FaultKind.TRAP))
    rules.on("brkpt", _trap(FaultKind.BREAKPOINT))
    for name, handler in EXTERNS.items():
        rules.on(f"call.extern .{name}", handler)
    rules.on("call.function", _call_function)
    rules.on("call.arguments", _arguments)
    rules.on("call.exit", _exit)
    rules.on(CLEAR, _clear)
    rules.on("alloca", _allocate)
    rules.on("stacksave", _save)
    rules.on("stackrestore", _restore)


# -- traps ------------------------------------------------------------------------------------------------


def _trap(kind: FaultKind) -> Handler:
    """Return the handler of an instruction that ends the launch if a lane reaches it.

    Source: PTX ISA 9.1, "trap", "brkpt": without a debugger, a breakpoint also ends a kernel on a GPU.
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
    """If any lane runs the operation, call ``end`` with the thread and lane of the first. The code of ``end`` never
    returns.
    """
    b = e.builder
    word = _word(e, op)
    with b.when(b.compare("icmp ne", word, b.integer(0, 32)), "trap"):
        lane = b.lowest_bit(word)
        end(b.binary("add", FIRST_THREAD, lane), lane)
        b.unreachable()


# -- functions of the host --------------------------------------------------------------------------------------------


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
    """Store a vector in array ``number`` of the frame, for native code to read or write. Return the address of the
    array.
    """
    b, value = e.builder, e.builder.vector(value)
    b.reserve(f"%extern.{number}", f"[{WARP} x i64]")
    b.store(value, f"%extern.{number}")
    return Value(f"%extern.{number}", "ptr")


def _put(e: WarpEmitter, op: Op, type_: str) -> None:
    """Write the values that native code stored in the array of results."""
    if op.results:
        e.put(op, e.builder.load(type_, "%extern.2", lanes=WARP))


def _call(e: WarpEmitter, name: str, *arguments: Value) -> None:
    """Emit a call of native code in cujit, which must exist when the emitted code is compiled."""
    address_of(name)
    e.builder.call(name, "void", *arguments)


# -- functions of the program -----------------------------------------------------------------------------

# A function that is not inlined is LLVM code of its own: it gets the lanes that call it and where their parameters lie,
# and gives the lanes that have exited inside.


def symbol_of(name: str) -> str:
    """Return the name of a function in LLVM IR, without the ``@``."""
    return f'"function {name}"'


def _arguments(e: WarpEmitter, op: Op) -> None:
    """Emit the address of each lane's parameters."""
    b = e.builder
    offsets = b.binary("mul", b.lanes(_LANE, 64), Value("%arguments.stride", "i64"))
    e.put(op, b.binary("add", Value("%arguments", "i64"), offsets))


def _exit(e: WarpEmitter, op: Op) -> None:
    """A thread that ends inside a function."""
    b = e.builder
    lanes = e.lanes_of(op)
    word = b.word(lanes)
    b.write("exited", b.binary("or", b.read("exited", "i32"), word))
    b.call("cujit_exit", "void", STATE, WARP_NUMBER, word)


def _clear(e: WarpEmitter, op: Op) -> None:
    """Make the first warp, which starts before all others, set a shared variable to zero."""
    b = e.builder
    variable = op.sources[0]
    assert isinstance(variable, SymbolAddress)
    with b.when(b.compare("icmp eq", WARP_NUMBER, b.integer(0, 32)), "clear"):
        at = to_process(e, e.symbol(variable))
        pointer = b.cast("inttoptr", at, "ptr")
        size = b.integer(variable.slot.size, 64)
        b.call("llvm.memset.p0.i64", "void", pointer, b.integer(0, 8), size, b.integer(0, 1))


def _call_function(e: WarpEmitter, op: Op) -> Value:
    """Call a function, and go on without the lanes that exited."""
    record, *rest = op.sources
    assert isinstance(record, SymbolAddress)
    lanes = e.lanes_of(op)
    exited = _call_by_address(e, op, record, lanes) if rest else _enter(e, op.targets[0], record, lanes)
    b = e.builder
    stay = b.invert(b.mask_of(exited))
    left = b.binary("and", e.mask, stay)
    b.write("live", b.binary("and", e.live(), stay))
    e.note_progress()
    return left


def _enter(e: WarpEmitter, name: str, record: SymbolAddress, lanes: Value) -> Value:
    """Call one function in some lanes. Return the lanes that exited, as a word."""
    b = e.builder
    at = b.binary("add", local_base(e, first_lane=True), e.symbol(record))
    stride = b.integer(e.program.local_size, 64)
    return b.invoke(f"@{symbol_of(name)}", "i32", STATE, WARP_NUMBER, lanes, at, stride)


def _call_by_address(e: WarpEmitter, op: Op, record: SymbolAddress, lanes: Value) -> Value:
    """Call each function that is the target of at least one lane. Return the lanes that exited, as a word."""
    b = e.builder
    b.write("called.exited", b.integer(0, 32))
    target = b.vector(e.source(op, 1, "i64"))
    left = lanes
    for name, address in zip(op.targets, op.sources[2:], strict=True):
        mine = b.binary("and", lanes, b.compare("icmp eq", target, e.read(address, "i64")))
        with b.when(b.any_lane(mine), "call"):
            exited = _enter(e, name, record, mine)
            b.write("called.exited", b.binary("or", exited, b.read("called.exited", "i32")))
        left = b.binary("and", left, b.invert(mine))
    with b.when(b.any_lane(left), "nobody"):
        lane = b.first_lane(left)
        e.fault(FaultKind.ILLEGAL_CALL, b.integer(op.line, 32), b.extract(target, lane), lane)
    return b.read("called.exited", "i32")


# -- the stack --------------------------------------------------------------------------------------------


def _allocate(e: WarpEmitter, op: Op) -> None:
    """Allocate, for each lane, the largest size that any lane requests. Write the addresses in the local space."""
    b = e.builder
    bits = 64 if "u64" in op.modifiers else 32
    size = b.resize(e.source(op, 0, f"i{bits}"), 64, signed=False)
    if size.lanes:
        size = b.reduce("umax", b.select(e.lanes_of(op), size, b.integer(0, 64)))
    align = op.sources[1].value if len(op.sources) > 1 and isinstance(op.sources[1], IntConstant) else 0
    align = max(align, _ALIGNMENT)
    size = b.binary("and", b.binary("add", size, b.integer(align - 1, 64)), b.integer(-align, 64))
    whole = b.binary("mul", size, b.integer(WARP, 64))
    memory = b.cast("ptrtoint", b.allocate("i8", size=whole, align=align), "i64")
    own = b.binary("add", memory, b.binary("mul", b.lanes(_LANE, 64), size))
    e.put(op, b.resize(b.binary("sub", own, local_base(e, first_lane=False)), bits, signed=False))


def _save(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    address = b.cast("ptrtoint", b.call("llvm.stacksave.p0", "ptr"), "i64")
    if "u64" not in op.modifiers:
        address = b.resize(b.binary("sub", address, local_base(e, first_lane=True)), 32, signed=False)
    e.put(op, address)


def _restore(e: WarpEmitter, op: Op) -> None:
    """Restore the stack, which all lanes share, to the address that the first lane saved.

    The stack does not change unless all lanes that have not exited take part.
    """
    b = e.builder
    bits = 64 if "u64" in op.modifiers else 32
    saved = e.source(op, 0, f"i{bits}")
    if saved.lanes:
        saved = b.extract(saved, b.first_lane(e.lanes_of(op)))
    address = b.resize(saved, 64, signed=True)
    if bits == 32:
        address = b.binary("add", address, local_base(e, first_lane=True))
    missing = b.any_lane(b.binary("and", e.live(), b.invert(e.lanes_of(op))))
    with b.when(missing, "restore", holds=False):
        b.call("llvm.stackrestore.p0", "void", b.cast("inttoptr", address, "ptr"))
