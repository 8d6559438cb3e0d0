"""Name expressions as people write them, brought to one spelling, so that they can be compared.

The spelling is that of ``mangling.entity_name``: ``const`` in front, ``unsigned int`` for ``unsigned``,
numbers in decimal without a suffix. Names of types that a ``typedef`` made are not resolved.
"""

from __future__ import annotations

import re

_MAX_CHARS = 1 << 14
_MAX_DEPTH = 48
_TOKEN = re.compile(
    r"""\s+
    | (?P<char>'(?:[^'\\]|\\.)')
    | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?[fFlL]?|\d+[eE][-+]?\d+[fFlL]?)
    | (?P<number>0[xX][0-9a-fA-F']+[uUlLzZ]*|0[bB][01']+[uUlLzZ]*|\d[\d']*[uUlLzZ]*)
    | (?P<word>[^\W\d]\w*|\$\w*)
    | (?P<mark>::|&&|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_CV = ("const", "volatile")
_INTEGER_WORDS = frozenset({"unsigned", "signed", "short", "long", "int", "char", "double", "__int128"})
_NOISE = frozenset({"typename", "struct", "class", "enum", "union"})
_CLOSING = {"<": ">", "(": ")", "[": "]"}


class _Unreadable(Exception):
    """The text is not in the little grammar here; it is compared as it is."""


def normalise_expression(text: str) -> str:
    """Bring a name expression to the spelling of ``entity_name``: ``k< unsigned >`` is ``k<unsigned int>``.

    Text that is no name expression comes back with its blanks collapsed, so any two texts can be compared.
    """
    collapsed = " ".join(text.split())
    if len(text) > _MAX_CHARS:
        return collapsed
    try:
        reader = _Reader(_tokens(text))
        result = reader.item(0, ())
        return result if reader.ended else collapsed
    except _Unreadable:
        return collapsed


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "char":
            body = token[1:-1]
            if len(body) > 1:
                raise _Unreadable
            tokens.append(str(ord(body)))
        elif kind == "float":
            tokens.append(repr(float(token.rstrip("fFlL"))))
        elif kind == "number":
            tokens.append(_integer(token))
        elif kind is not None:
            tokens.append(token)
    return tokens


def _integer(token: str) -> str:
    digits = token.replace("'", "").rstrip("uUlLzZ")
    try:
        octal = len(digits) > 1 and digits.isdecimal() and digits.startswith("0")
        return str(int(digits, 8 if octal else 0))
    except ValueError:
        raise _Unreadable from None


class _Reader:
    """Reads tokens into the one spelling, by descent into brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def _token(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._token
        self._at += 1
        return token

    def item(self, depth: int, stops: tuple[str, ...]) -> str:
        """A name, a type or a value: specifiers, then declarators."""
        if depth > _MAX_DEPTH:
            raise _Unreadable
        if self._token in ("&", "::"):  # the address of an entity is spelled as the entity
            self._take()
        cv, words, base = set(), [], ""
        while not self.ended and self._token not in stops:
            token = self._token
            if token in _CV:
                cv.add(self._take())
            elif token in _NOISE:
                self._take()
            elif token in _INTEGER_WORDS and not base:
                words.append(self._take())
            elif base or words or not _begins_name(token):
                break
            else:
                base = self._qualified(depth)
        specifiers = [word for word in _CV if word in cv] + [_builtin(words) or base]
        return (" ".join(specifiers) + self._declarators(depth, stops)).strip()

    def _qualified(self, depth: int) -> str:
        """A name with its scopes and template arguments, or a number."""
        if self._token == "-":
            self._take()
            if not self._token[:1].isdecimal():
                raise _Unreadable
            return "-" + self._take()
        text = ""
        while not self.ended:
            token = self._token
            if token == "::":
                self._take()
                text += token if text else ""
            elif token == "<" and text and not text.endswith("::"):
                text += self._bracketed(depth, "<")
            elif (token[0].isalnum() or token[0] in "_$") and (not text or text.endswith("::")):
                text += self._take()
            else:
                break
        if not text:
            raise _Unreadable
        return text

    def _bracketed(self, depth: int, opening: str) -> str:
        """Items separated by commas, with their brackets."""
        self._take()
        closing = _CLOSING[opening]
        items: list[str] = []
        while self._token != closing:
            items.append(self.item(depth + 1, (",", closing)))
            if self._token == ",":
                self._take()
            elif self._token != closing:
                raise _Unreadable
        self._take()
        if opening == "(" and items == ["void"]:
            items = []
        return opening + ", ".join(items) + closing

    def _declarators(self, depth: int, stops: tuple[str, ...]) -> str:
        text = ""
        while not self.ended and self._token not in stops:
            token = self._token
            if token in ("*", "&", "&&", "..."):
                text += self._take()
            elif token in _CV or token in ("__restrict__", "noexcept"):
                text += " " + self._take()
            elif token in ("(", "["):
                space = "" if text.endswith((")", "]")) else " "
                text += space + self._bracketed(depth, token)
            else:
                raise _Unreadable
        return text


def _begins_name(token: str) -> bool:
    return token[0].isalnum() or token[0] in "_$-:"


def _builtin(words: list[str]) -> str:
    """Spell an integer or floating-point type as the ABI's table does."""
    if not words:
        return ""
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return ("signed " if "signed" in words else sign) + "char"
    if "double" in words:
        return "long double" if "long" in words else "double"
    if "__int128" in words:
        return sign + "__int128"
    length = "short" if "short" in words else " ".join(["long"] * words.count("long"))
    return sign + (length or "int")
