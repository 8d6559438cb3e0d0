"""``mbarrier`` objects: 64 bits in shared memory that count arrivals and transactions.

Layout of an object, and of a state that ``arrive`` returns (the object before the arrival):

    =========  ==========================================================
    bits       meaning
    =========  ==========================================================
    0 to 19    arrivals that the current phase still waits for
    20 to 39   arrivals that the next phase will wait for
    40 to 60   bytes of transactions that are outstanding, signed
    61 to 63   number of the phase, modulo 8
    =========  ==========================================================

Source: PTX ISA 9.1, 9.7.13.15.2 "Contents of the mbarrier object": both counts are at most 2**20 - 1, and so is the
magnitude of the bytes.

Shared memory belongs to one thread of this process, so no operation needs to be atomic. A program waits in a loop
around ``test_wait`` or ``try_wait``, which both return immediately. If the phase is not over, the asynchronous copies
that the phase waits for are done first.
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import each_lane
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.instructions.pending import own_queue, passing
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.native.structures import (
    MBARRIER_BYTES,
    MBARRIER_BYTES_AT,
    MBARRIER_COUNT,
    MBARRIER_NEXT_AT,
    MBARRIER_PHASE_AT,
)

_COUNT_BITS, _BYTES_BITS = MBARRIER_COUNT.bit_length(), MBARRIER_BYTES.bit_length()


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("mbarrier .init", _init)
    rules.on("mbarrier .arrive|arrive_drop", _arrive)
    rules.on("mbarrier .arrive|arrive_drop .expect_tx", _arrive)
    rules.on("mbarrier .expect_tx|complete_tx", _count_bytes)
    rules.on("mbarrier .test_wait|try_wait", _test)
    rules.on("mbarrier .pending_count", _pending_count)
    # Every object here has the layout that one has which ``init`` names no layout for.
    rules.on("mbarrier .check_layout", lambda e, op: e.put(op, e.builder.integer(1, 1)))


def _address(e: WarpEmitter, op: Op) -> Value:
    return address_in(e, op.memory, op.space)


# -- the object -------------------------------------------------------------------------------------------


def _field(f: Builder, word: Value, at: int, bits: int) -> Value:
    """Extract a count from an object."""
    return f.binary("and", f.binary("lshr", word, f.integer(at, 64)), f.integer((1 << bits) - 1, 64))


def _load(f: Builder, address: Value) -> tuple[Value, Value]:
    """Return the pointer to an object, and the object."""
    pointer = f.cast("inttoptr", address, "ptr")
    return pointer, f.load("i64", pointer, align=8)


def _update(f: Builder, address: Value, arrivals: Value, drops: Value, bytes_: Value) -> Value:
    """Count arrivals and bytes, remove ``drops`` from the arrivals of later phases, and start the next phase if
    complete.

    The values are i64. Return the object before the update.

    Source: PTX ISA 9.1, 9.7.13.15.6 "Phase Completion of the mbarrier object".
    """
    pointer, word = _load(f, address)
    count = (1 << _COUNT_BITS) - 1
    pending = f.binary("and", f.binary("sub", word, arrivals), f.integer(count, 64))
    next_ = f.binary(
        "and", f.binary("sub", _field(f, word, MBARRIER_NEXT_AT, _COUNT_BITS), drops), f.integer(count, 64)
    )
    left = f.binary("add", _field(f, word, MBARRIER_BYTES_AT, _BYTES_BITS), bytes_)
    left = f.binary("and", left, f.integer((1 << _BYTES_BITS) - 1, 64))
    complete = f.compare("icmp eq", f.binary("or", pending, left), f.integer(0, 64))
    phase = f.binary("add", f.binary("lshr", word, f.integer(MBARRIER_PHASE_AT, 64)), f.cast("zext", complete, "i64"))
    new = f.select(complete, next_, pending)
    for part, at in ((next_, MBARRIER_NEXT_AT), (left, MBARRIER_BYTES_AT), (phase, MBARRIER_PHASE_AT)):
        new = f.binary("or", new, f.binary("shl", part, f.integer(at, 64)))
    f.store(new, pointer, align=8)
    return word


def complete_bytes(f: Builder, address: Value, bytes_: Value) -> None:
    """Report to an mbarrier, at an address of this process, that transactions of ``bytes_`` bytes (i64) are done."""
    zero = f.integer(0, 64)
    _update(f, address, zero, zero, f.binary("sub", zero, bytes_))


# -- instructions -----------------------------------------------------------------------------------------


def _init(e: WarpEmitter, op: Op) -> None:
    def init(f: Builder, v: Sequence[Value]) -> None:
        pointer = f.cast("inttoptr", v[0], "ptr")
        count = f.binary("and", f.cast("zext", v[1], "i64"), f.integer((1 << _COUNT_BITS) - 1, 64))
        word = f.binary("or", count, f.binary("shl", count, f.integer(MBARRIER_NEXT_AT, 64)))
        f.store(word, pointer, align=8)

    each_lane(e, op, "mbarrier.init", [_address(e, op), e.source(op, 1, "i32")], init)


def _count_bytes(e: WarpEmitter, op: Op) -> None:
    """Emit ``expect_tx`` or ``complete_tx``, which add to or subtract from the outstanding bytes."""
    expects = "expect_tx" in op.modifiers

    def count(f: Builder, v: Sequence[Value]) -> None:
        bytes_ = f.cast("zext", v[1], "i64")
        complete_bytes(f, v[0], f.binary("sub", f.integer(0, 64), bytes_) if expects else bytes_)

    name = "mbarrier.expect" if expects else "mbarrier.complete"
    each_lane(e, op, name, [_address(e, op), e.source(op, 1, "i32")], count)


def _arrive(e: WarpEmitter, op: Op) -> None:
    """``arrive`` and ``arrive_drop``: with a count, or once and the bytes to expect."""
    drops, expects = "arrive_drop" in op.modifiers, "expect_tx" in op.modifiers

    def arrive(f: Builder, v: Sequence[Value]) -> Value:
        number = f.cast("zext", v[1], "i64")
        zero, one = f.integer(0, 64), f.integer(1, 64)
        arrivals = one if expects else number
        return _update(f, v[0], arrivals, arrivals if drops else zero, number if expects else zero)

    number = e.source(op, 1, "i32") if len(op.sources) > 1 else e.builder.integer(1, 32)
    wanted = op.result is not None
    name = f"mbarrier.arrive{'.drop' * drops}{'.expect' * expects}{'.state' * wanted}"
    state = each_lane(e, op, name, [_address(e, op), number], arrive, "i64" if wanted else None)
    if state is not None:
        e.put(op, state)


def _test(e: WarpEmitter, op: Op) -> None:
    """``test_wait`` and ``try_wait``: whether the phase of a state, or of a parity, is over."""
    by_parity = "parity" in op.modifiers

    b, phase = e.builder, e.source(op, 1, "i32" if by_parity else "i64")
    operands = [_address(e, op), phase, *own_queue(e)]

    def test(f: Builder, v: Sequence[Value]) -> Value:
        def is_over() -> Value:
            _, word = _load(f, v[0])
            now = f.binary("lshr", word, f.integer(MBARRIER_PHASE_AT, 64))
            then = (
                f.cast("zext", v[1], "i64") if by_parity else f.binary("lshr", v[1], f.integer(MBARRIER_PHASE_AT, 64))
            )
            other = f.binary("xor", now, then)
            if by_parity:
                other = f.binary("and", other, f.integer(1, 64))
            return f.compare("icmp ne", other, f.integer(0, 64))

        def after_copies() -> list[Value]:
            f.call("cujit_pending_test", "i32", *v[2:], v[0], passing(e))
            return [f.cast("zext", is_over(), "i8")]

        return f.either(is_over(), lambda: [f.integer(1, 8)], after_copies, "over")[0]

    if not any(v.lanes for v in operands[:2]):
        some = b.compare("icmp ne", b.word(e.lanes(op)), b.integer(0, 32))
        done = b.either(some, lambda: [test(b, operands)], lambda: [b.integer(0, 8)], "test")[0]
        e.put(op, b.compare("icmp ne", done, b.integer(0, 8)))
        return
    found = each_lane(e, op, f"mbarrier.test{'.parity' * by_parity}", operands, test, "i8")
    assert found is not None
    e.put(op, b.compare("icmp ne", found, b.integer(0, 8)))


def _pending_count(e: WarpEmitter, op: Op) -> None:
    """``pending_count``: the arrivals that were waited for before the arrival that gave the state."""
    b = e.builder
    e.put(op, b.resize(_field(b, e.source(op, 0, "i64"), 0, _COUNT_BITS), 32, signed=False))
