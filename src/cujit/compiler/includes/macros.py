"""``#include MACRO``: every header that the tokens could name, given every definition seen anywhere.

Conditions are not evaluated, so a macro has all its definitions at once, and none. Source of the rules of expansion:
ISO C++ [cpp.replace], [cpp.include].
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cujit.compiler.includes.has_include import HAS_INCLUDE
from cujit.errors import CujitError
from cujit.values import dataclass

_CANDIDATES = 1024
_DEPTH = 32
_HEAD = re.compile(r"([^\W\d][\w$]*)(\(([^()]*)\))?")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\W\d][\w$]*|\d[\w.]*|\s+|##|.', re.DOTALL)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
# Names that the compiler itself defines, with values that are not known here. Source: ISO C++ [lex.name], measured.
_PREDEFINED = re.compile(r"__\w+__|_[A-Z]\w*|__[A-Z]\w*|__cplusplus")


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro definition. ``parameters`` is None for an object-like macro."""

    parameters: tuple[str, ...] | None
    body: str


Macros = Mapping[str, frozenset[Macro]]


class UnresolvedError(CujitError):
    """The tokens may name a header that cannot be known; caught within this package."""


def read_macro(text: str) -> tuple[str, Macro] | None:
    """Parse the text after ``#define``, or return None if it isn't a definition."""
    match = _HEAD.match(text)
    if match is None:
        return None
    parameters = None if match[2] is None else tuple(p.strip() for p in match[3].split(",") if p.strip())
    return match[1], Macro(parameters, text[match.end() :].strip())


def headers_named(tokens: str, macros: Macros) -> list[tuple[str, str]]:
    """Return (``<`` or ``"``, name) of every possible expansion of the tokens after ``#include``.

    Raises:
        UnresolvedError: an expansion can't be determined.
    """
    return _named(_expand(tokens, macros, frozenset()), macros)


def tested_headers(call: str, macros: Macros) -> list[tuple[str, str]]:
    """Return (``<`` or ``"``, name) of every header that a macro call may test with ``__has_include``.

    Raises:
        UnresolvedError: it may ask for something that is not known.
    """
    operands: list[str] = []
    for text in _expand(call, macros, frozenset()):
        tokens = _TOKEN.findall(text)
        for at, token in enumerate(tokens):
            if token == HAS_INCLUDE:
                arguments, _ = _arguments(tokens[at + 1 :])
                if arguments is None or len(arguments) != 1:
                    raise UnresolvedError(f"{HAS_INCLUDE} is used without a header name")
                operands += arguments
    return _named(operands, macros)


def _named(texts: Iterable[str], macros: Macros) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for text in texts:
        for spelled in (text.strip(), re.sub(r"\s+", "", text)):
            form, end = (spelled[:1], ">" if spelled[:1] == "<" else '"')
            name, closed, _ = spelled[1:].partition(end)
            if form not in ("<", '"') or not closed:
                continue
            for word in _IDENTIFIER.findall(name) if form == "<" else ():
                if _PREDEFINED.fullmatch(word) and word not in macros:
                    raise UnresolvedError(f"{word} in <{name}> is a macro that the compiler defines")
            found[form, name] = None
            found[form, name.strip()] = None
    if not found:
        raise UnresolvedError("the macro doesn't expand to a header name")
    return list(found)


def _expand(text: str, macros: Macros, hidden: frozenset[str]) -> list[str]:
    """Return every text that ``text`` may expand to."""
    if len(hidden) > _DEPTH:
        raise UnresolvedError("macros are nested too deeply")
    tokens = _TOKEN.findall(text)
    at = next((i for i, token in enumerate(tokens) if token in macros and token not in hidden), None)
    if at is None:
        return [text]
    token = tokens[at]
    results: dict[str, None] = {}
    head, tail = "".join(tokens[:at]), tokens[at + 1 :]
    unexpanded = _expand("".join(tail), macros, hidden)
    choices = [(token, unexpanded)]
    for macro in sorted(macros[token], key=lambda m: (m.parameters or (), m.body)):
        choices += _replaced(token, macro, tail, macros, hidden)
    for middle, rests in choices:
        for rest in rests:
            results[head + middle + rest] = None
            if len(results) > _CANDIDATES:
                raise UnresolvedError(f"the macro has more than {_CANDIDATES} possible expansions")
    return list(results)


def _replaced(
    token: str, macro: Macro, tail: Sequence[str], macros: Macros, hidden: frozenset[str]
) -> Iterator[tuple[str, list[str]]]:
    if macro.parameters is None:
        rest = _expand("".join(tail), macros, hidden)
        yield from ((body, rest) for body in _expand(_pasted(macro.body), macros, hidden | {token}))
        return
    arguments, rest_tokens = _arguments(tail)
    if arguments is None:
        return
    given = dict(zip(macro.parameters, arguments, strict=False))
    if "..." in macro.parameters:
        given["__VA_ARGS__"] = ",".join(arguments[len(macro.parameters) - 1 :])
    rest = _expand("".join(rest_tokens), macros, hidden)
    for body in _substituted(macro.body, given, macros, hidden):
        yield from ((text, rest) for text in _expand(_pasted(body), macros, hidden | {token}))


def _arguments(tokens: Sequence[str]) -> tuple[list[str] | None, Sequence[str]]:
    """Parse ``(a, b)`` at the start of tokens. Return the arguments and the rest, or None without arguments."""
    start = next((i for i, token in enumerate(tokens) if not token.isspace()), None)
    if start is None or tokens[start] != "(":
        return None, tokens
    depth, arguments = 0, [""]
    for at in range(start, len(tokens)):
        token = tokens[at]
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return [argument.strip() for argument in arguments], tokens[at + 1 :]
        if token == "," and depth == 1:
            arguments.append("")
        elif not (token == "(" and depth == 1):
            arguments[-1] += token
    return None, tokens


def _substituted(body: str, given: Mapping[str, str], macros: Macros, hidden: frozenset[str]) -> Iterable[str]:
    """Replace parameters by arguments: as a string after ``#``, unexpanded next to ``##``, otherwise expanded."""
    body = re.sub(r"(?<!#)#\s*([^\W\d][\w$]*)", lambda m: f'"{given[m[1]]}"' if m[1] in given else m[0], body)
    tokens = _TOKEN.findall(body)
    solid = [token for token in tokens if not token.isspace()]
    pasted = {solid[i + d] for i, t in enumerate(solid) if t == "##" for d in (-1, 1) if 0 <= i + d < len(solid)}
    choices = [
        [token] if token not in given else [given[token]] if token in pasted else _expand(given[token], macros, hidden)
        for token in tokens
    ]
    for count, choice in enumerate(itertools.product(*choices)):
        if count > _CANDIDATES:
            raise UnresolvedError(f"the macro has more than {_CANDIDATES} possible expansions")
        yield "".join(choice)


def _pasted(body: str) -> str:
    return re.sub(r"\s*##\s*", "", body)
