"""Search spaces: the values of each parameter, their use, and the combinations that are candidates."""

from __future__ import annotations

import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from cujit.compiler.options.values import Options
from cujit.errors import ArgumentError, OptionError, listed, spell
from cujit.values import dataclass

Value: TypeAlias = bool | int | float | str

_BECOMES = ("define", "launch", "option")
_MOST = 1 << 16
"""Combinations that are gone through; as many compiles of 60 ms take an hour of CPU."""

_BRACED = re.compile(r"\{(\w*)\}")
_HELP = "space={'TILE': [8, 16, 32], 'UNROLL': [1, 4]}"


@dataclass(frozen=True)
class Variant:
    """A candidate: its values by name, and the kernel, macros and options of the compiler that these become."""

    values: Mapping[str, Value]
    kernel: str | None
    define: tuple[tuple[str, str], ...]
    option: tuple[tuple[str, Value], ...]

    @property
    def text(self) -> str:
        """The variant in one line, independent of the order of names."""
        return _json([dict(self.values), self.kernel, dict(self.define), dict(self.option)])

    def options(self, base: Options) -> Options:
        """Return the options of the variant's compile, with ``base`` among them."""
        macros = base.get("define") or {}
        assert isinstance(macros, Mapping)
        return Options.of(base, {**dict(self.option), "define": {**macros, **dict(self.define)} or None})


def variants_of(
    space: object, kernel: object, becomes: object, constraint: Callable[[Mapping[str, Value]], object] | None
) -> tuple[Variant, ...]:
    """Return the candidates of a space. The last name changes fastest.

    A value is substituted in ``kernel`` if its name is in braces (``"matmul<{TILE}>"``). For other values, ``becomes``
    selects a macro (``define``, the default), a compiler ``option``, or a value for the ``launch`` only.

    Raises:
        OptionError: an argument is malformed, there are more than 65,536 combinations, or the constraint leaves none.
    """
    choices = _choices(space)
    if kernel is not None and (not isinstance(kernel, str) or not kernel.strip()):
        raise OptionError(
            f"kernel is {spell(kernel)}, expected a name", help="write, for example, kernel='matmul<{TILE}>'"
        )
    braced = set(_BRACED.findall(kernel or ""))
    ways = _ways(becomes, braced, choices)
    count = math.prod(map(len, choices.values()))
    if count > _MOST:
        raise OptionError(
            f"the space contains {count:,} combinations; the maximum is {_MOST:,}", help="use fewer values"
        )
    if constraint is not None and not callable(constraint):
        raise OptionError(f"constraint is {spell(constraint)}, expected a function of the values")
    found = []
    for combination in itertools.product(*choices.values()):
        values = MappingProxyType(dict(zip(choices, combination, strict=True)))
        if constraint is None or constraint(values):
            found.append(_variant(values, kernel, ways))
    if not found:
        raise OptionError(
            f"the constraint excludes all {count:,} combinations",
            help="write a constraint that allows at least one combination",
        )
    return tuple(found)


def _choices(space: object) -> dict[str, tuple[Value, ...]]:
    if not isinstance(space, Mapping) or not space:
        raise OptionError(f"space is {spell(space)}, expected a dict of names to lists of values", help=_HELP)
    found = {}
    for name, given in space.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise OptionError(f"{spell(name)} is not a valid name for a value in a space", help=_HELP)
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise OptionError(f"the values of {name} are {spell(given)}, expected a list", help=_HELP)
        values = tuple(_value(name, value) for value in given)
        if not values or len(set(values)) < len(values):
            raise OptionError(
                f"the values of {name} are {spell(values)}, expected at least one value and no duplicates"
            )
        found[name] = values
    return found


def _value(name: str, given: object) -> Value:
    if isinstance(given, bool | str):
        return given
    if isinstance(given, float) and math.isfinite(given):
        return float(given)
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(
            f"{name} can be {spell(given)}, but a value must be an int, a float, a bool or a str"
        ) from None


def _ways(becomes: object, braced: set[str], choices: Mapping[str, object]) -> dict[str, str]:
    if becomes is None:
        becomes = {}
    if not isinstance(becomes, Mapping):
        raise OptionError(
            f"becomes is {spell(becomes)}, expected a dict", help="write, for example, becomes={'THREADS': 'launch'}"
        )
    unknown = [name for name in [*becomes, *sorted(braced)] if name not in choices]
    if unknown:
        raise OptionError(f"{spell(unknown[0])} is not in the space, which contains {listed(choices, 9)}")
    wrong = [way for way in becomes.values() if way not in _BECOMES]
    if wrong:
        raise OptionError(f"becomes contains {spell(wrong[0])}, expected one of {', '.join(_BECOMES)}")
    twice = [name for name in becomes if name in braced]
    if twice:
        raise OptionError(
            f"{twice[0]} is part of the kernel name, so becomes can't contain it", help="remove it from becomes"
        )
    return {name: "template" if name in braced else becomes.get(name, "define") for name in choices}


def _variant(values: Mapping[str, Value], kernel: str | None, ways: Mapping[str, str]) -> Variant:
    def spelled(match: re.Match[str]) -> str:
        value = values[match[1]]
        return str(value).lower() if isinstance(value, bool) else str(value)

    def those(way: str) -> list[tuple[str, Value]]:
        return [(name, value) for name, value in values.items() if ways[name] == way]

    define = [(name, str(int(value)) if isinstance(value, bool) else str(value)) for name, value in those("define")]
    expression = None if kernel is None else _BRACED.sub(spelled, kernel)
    return Variant(values, expression, tuple(define), tuple(those("option")))


def shape_text(shape: object) -> str:
    """Return everything besides the kernel that the workload depends on as text: a number, text, or a list or dict of
    these.

    Raises:
        ArgumentError: the value is invalid.
    """
    try:
        text = _json(_plain(shape))
    except (TypeError, ValueError, RecursionError):
        text = ""
    if text in ("", "null", "[]", "{}", '""'):
        raise ArgumentError(
            f"shape is {spell(shape)}, expected the sizes and types that the workload depends on: numbers, "
            "str, or a list or dict of them",
            help="write, for example, shape=(m, n, k, 'float32'); cujit stores a result for each shape",
        )
    return text


def _plain(given: object) -> object:
    if isinstance(given, Mapping):
        return {str(name): _plain(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(value) for value in given]
    return given if isinstance(given, bool | str | float) else operator.index(given)  # type: ignore[arg-type]


_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
