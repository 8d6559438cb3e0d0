"""Kernels written anew: guards put before their instructions, and forms replaced by others of the same meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import Function, Instruction, Predicate, PtxModule, Scope, Statement

__all__ = ["GUARDS", "guarded", "instructions_in", "instructions_of", "rewrite"]

Change = Callable[[Instruction], Iterable[Statement]]

_HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
_ENTRY = ".visible .entry k() {{ .reg .pred the_guard, both; .reg .b32 guard32; mov.u32 guard32, {}; {} }}"
GUARDS = {
    "all, known to be alike": _ENTRY.format("%ntid.x", "setp.lt.u32 the_guard, guard32, 4096;"),
    "all": _ENTRY.format("%tid.x", "mul.lo.u32 guard32, guard32, guard32; setp.ne.u32 the_guard, guard32, 5;"),
    "none, known to be alike": _ENTRY.format("%ntid.x", "setp.gt.u32 the_guard, guard32, 4096;"),
    "none": _ENTRY.format("%tid.x", "mul.lo.u32 guard32, guard32, guard32; setp.eq.u32 the_guard, guard32, 5;"),
}
"""By the threads for which it holds, an entry that sets ``the_guard`` so, in a way that no compiler sees through.

No square is 5 modulo 8.
"""
_ENDS = frozenset({"ret", "exit", "trap", "brkpt"})
_JUMPS = frozenset({"bra", "brx"})


def instructions_of(text: str) -> Iterator[Instruction]:
    """Give every instruction of a module."""
    return instructions_in(parse(text))


def instructions_in(module: PtxModule) -> Iterator[Instruction]:
    """Give every instruction of a module that has been read."""
    return (one for function in module.functions for one in _walk(function.body or ()))


def _walk(body: Iterable[Statement]) -> Iterator[Instruction]:
    for statement in body:
        if isinstance(statement, Scope):
            yield from _walk(statement.body)
        elif isinstance(statement, Instruction):
            yield statement


def rewrite(text: str, change: Change, *, first: str = "") -> str:
    """Give a module with every instruction replaced by what ``change`` makes of it.

    ``first`` is an entry whose body comes first in every function of the module.
    """
    module = parse(text)
    before = parse(_HEAD + first).entries[0].body or () if first else ()

    def changed(body: Iterable[Statement]) -> Iterator[Statement]:
        for statement in body:
            if isinstance(statement, Scope):
                yield replace(statement, body=tuple(changed(statement.body)))
            elif isinstance(statement, Instruction):
                yield from change(statement)
            else:
                yield statement

    def whole(function: Function) -> Function:
        if function.body is None:
            return function
        return replace(function, body=(*before, *changed(function.body)))

    items = tuple(whole(item) if isinstance(item, Function) else item for item in module.items)
    return print_module(replace(module, items=items))


def guarded(text: str, guard: str) -> str:
    """Put a guard of ``GUARDS`` before every instruction; jumps keep those that they have.

    ``st.global.b32 [p], r;`` becomes ``@the_guard st.global.b32 [p], r;``, and a guard that is there is combined with
    it: it may be one that nothing has set. A change of an f32's sign stays without one that holds: under a guard, ptxas
    keeps the bits of a NaN.
    """

    def change(one: Instruction) -> Iterator[Statement]:
        own = one.predicate
        is_choice = one.opcode in ("abs", "neg") and one.modifiers == ("f32",) and guard.startswith("all")
        if one.opcode in _ENDS or (own and one.opcode in _JUMPS) or is_choice:
            yield one
            return
        if own is not None:
            yield from _both(own)
        yield replace(one, predicate=Predicate("both" if own else "the_guard"))

    return rewrite(text, change, first=GUARDS[guard])


def _both(own: Predicate) -> tuple[Statement, ...]:
    """Set ``both`` where a guard and ``the_guard`` hold."""
    way = "not" if own.negated else "mov"
    return _body(f"{way}.pred both, {own.register}; and.pred both, both, the_guard;")


@functools.cache
def _body(text: str) -> tuple[Statement, ...]:
    return tuple(parse(f"{_HEAD}.entry k() {{ {text} }}").entries[0].body or ())
