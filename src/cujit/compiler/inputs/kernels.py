"""Kernel definitions and launches in a text, as far as the text alone shows them."""

from __future__ import annotations

import re

TILES_ALONE = "Tile IR contains only tile kernels, not the __global__ kernels"
"""How the log of Tile IR starts to name kernels of its source that the image lacks."""

# Comments, string and character literals, and lines of the preprocessor with their continuations.
_NOISE = re.compile(
    r"//(?:[^\n\\]|\\.)*"
    r"|/\*.*?(?:\*/|\Z)"
    r'|R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)'"
    r"|(?m:^[ \t]*\#(?:[^\n\\]|\\.)*)",
    re.DOTALL,
)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{}()<>;]")
_ANNOTATIONS = frozenset(("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"))


def plain_kernels(text: str, mark: str = "__global__") -> tuple[str, ...]:
    """Return the kernels that a text defines and that aren't templates, with their namespaces.

    ``mark`` is the keyword before a kernel: ``__global__`` or ``__tile_global__``. Without the preprocessor, this is a
    guess: it includes a kernel that ``#if`` removes, but not a kernel that a macro creates.
    """
    if mark not in text:
        return ()
    tokens = _TOKEN.findall(_NOISE.sub(_blank, text))
    return tuple(dict.fromkeys(_scan(tokens, mark)))


def launch_lines(text: str) -> list[int]:
    """Return the lines, from 1, on which a text launches a kernel (``<<<``), as far as it shows."""
    plain = _NOISE.sub(lambda match: _blank(match) + "\n" * match[0].count("\n"), text)
    return [number for number, line in enumerate(plain.split("\n"), start=1) if "<<<" in line]


def _blank(match: re.Match[str]) -> str:
    return '""' if match[0][0] in "\"'R" else " "


def _scan(tokens: list[str], mark: str) -> list[str]:
    found: list[str] = []
    scopes: list[str] = []  # a namespace's name, or "" for any other brace
    start = 0  # where the declaration that is being read began
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token == "{":
            scopes.append(_opened(tokens[start:position]))
            start = position + 1
        elif token == "}":
            if scopes:
                scopes.pop()
            start = position + 1
        elif token == ";":
            start = position + 1
        elif token == mark and "template" not in tokens[start:position]:
            name, position = _kernel(tokens, position + 1)
            if name and "?" not in scopes and _is_definition(tokens, position):
                found.append("::".join([s for s in scopes if s] + [name]))
            continue
        position += 1
    return found


def _opened(head: list[str]) -> str:
    """Return what a brace opens: the name of a namespace, "" for ``extern "C"``, "?" for anything else."""
    if "namespace" in head:
        return "::".join(t for t in head[head.index("namespace") + 1 :] if t not in ("::", "inline"))
    return "" if head[:1] == ["extern"] and len(head) == 1 else "?"


def _kernel(tokens: list[str], position: int) -> tuple[str, int]:
    """Parse from the keyword to the parenthesis before the parameters, and return the word before it."""
    name = ""
    while position < len(tokens):
        token = tokens[position]
        if token in _ANNOTATIONS:
            position = _past_parentheses(tokens, position + 1)
            continue
        if token == "(":
            return name, position
        if token in ("{", "}", ";"):
            return "", position
        name = f"{name}::{token}" if position and tokens[position - 1] == "::" else token
        position += 1
    return "", position


def _past_parentheses(tokens: list[str], position: int) -> int:
    if position >= len(tokens) or tokens[position] != "(":
        return position
    depth = 0
    while position < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[position], 0)
        position += 1
        if not depth:
            break
    return position


def _is_definition(tokens: list[str], position: int) -> bool:
    """Return whether a body follows the parameters that open at ``position``."""
    position = _past_parentheses(tokens, position)
    return tokens[position : position + 1] == ["{"]
