"""Functions for loads and stores with a separate address in each lane, and for 64-bit quotients.

Gather and scatter instructions are no faster on most processors. Without these instructions, or if only some lanes are
active, LLVM emits a branch per lane. Therefore, inactive lanes access memory that nothing else uses.

Quotients are also computed lane by lane, because no processor divides vectors of integers.

These functions were half of each kernel's code, so they are compiled only once. They pass vectors in registers, as
kernels do. C can't express this without naming the processor, so they are not in C, unlike the rest of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cujit.devices.shapes import WARP

KINDS = ("gather", "scatter")
WIDTHS = (8, 16, 32, 64, 128)
"""Bits of the elements that there are functions for."""

DIVISIONS = ("udiv", "sdiv")
"""What there is for 64 bits alone, by LLVM's names: no divisor is 0, nor -1 that of the least number."""


def name_of(kind: str, bits: int) -> str:
    """Return the name of the function of this kind for elements of a width in bits."""
    return f"cujit_{kind}_{bits}"


def _head(kind: str, bits: int) -> str:
    name, lanes, addresses = name_of(kind, bits), f"<{WARP} x i{bits}>", f"<{WARP} x i64> %addresses"
    if kind == "scatter":
        return f"void @{name}({addresses}, {lanes} %values) nounwind willreturn"
    operands = addresses if kind == "gather" else f"{lanes} %x, {lanes} %y"
    return f"{lanes} @{name}({operands}) nounwind willreturn memory(read)"


def declared(kind: str, bits: int) -> str:
    """Declare a function, in LLVM IR."""
    return f"declare {_head(kind, bits)}"


def defined(bits: int) -> str:
    """Write the functions that gather and scatter for a width in bits, in LLVM IR."""
    scatter = [line for k in range(WARP) for line in _store(k, bits)]
    bodies = {"gather": _giving(bits, loads(f"i{bits}", _pointer)), "scatter": [*scatter, "  ret void"]}
    return "\n".join(line for kind in KINDS for line in _written(kind, bits, bodies[kind]))


def divisions() -> str:
    """Write the functions that divide, in LLVM IR."""
    bodies = {kind: _giving(64, [f"  %found.{WARP} = {kind} <{WARP} x i64> %x, %y"]) for kind in DIVISIONS}
    return "\n".join(line for kind in DIVISIONS for line in _written(kind, 64, bodies[kind]))


def _giving(bits: int, lines: Iterable[str]) -> list[str]:
    return [*lines, f"  ret <{WARP} x i{bits}> %found.{WARP}"]


def _written(kind: str, bits: int, body: Iterable[str]) -> list[str]:
    return [f"define {_head(kind, bits)} {{", *body, "}"]


def loads(element: str, place: Callable[[int], Iterable[str]]) -> list[str]:
    """Return IR that loads an element for each lane ``k`` from ``%at.k``, and collects the elements in ``%found.32``.

    ``place`` returns the IR that computes ``%at.k``.
    """
    align = {"float": 4, "double": 8, "half": 2}.get(element) or int(element[1:]) // 8
    text = [f"  %found.0 = insertelement <{WARP} x {element}> poison, {element} zeroinitializer, i32 0"]
    for k in range(WARP):
        text += [
            *place(k),
            f"  %one.{k} = load {element}, ptr %at.{k}, align {align}",
            f"  %found.{k + 1} = insertelement <{WARP} x {element}> %found.{k}, {element} %one.{k}, i32 {k}",
        ]
    return text


def _pointer(k: int) -> list[str]:
    """Return IR that computes ``%at.k`` from lane ``k`` of ``%addresses``."""
    return [
        _one(k, "address", 64, "addresses"),
        f"  %at.{k} = inttoptr i64 %address.{k} to ptr",
    ]


def _store(k: int, bits: int) -> list[str]:
    return [
        *_pointer(k),
        _one(k, "one", bits, "values"),
        f"  store i{bits} %one.{k}, ptr %at.{k}, align {bits // 8}",
    ]


def _one(k: int, name: str, bits: int, values: str) -> str:
    return f"  %{name}.{k} = extractelement <{WARP} x i{bits}> %{values}, i32 {k}"
