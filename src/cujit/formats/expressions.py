"""Name expressions in a normalized spelling, so that they can be compared.

The spelling matches ``mangling.entity_name``: ``const`` in front, and ``unsigned int`` for ``unsigned``. Numbers are in
decimal with the suffix or cast of their type. C++ distinguishes ``k<4>`` from ``k<4u>``, so two literals of different
types never have the same spelling. Names that a ``typedef`` declares are not resolved.
"""

from __future__ import annotations

import re
import struct

_MAX_CHARS = 1 << 14
_MAX_DEPTH = 48
_TOKEN = re.compile(
    r"""\s+
    | (?P<string>(?:u8|[uUL])?(?:R"(?P<end>[^()\\\s"]{0,16})\(.*?\)(?P=end)"|"(?:[^"\\]|\\.)*"))
    | (?P<char>(?:u8|[uUL])?'(?:[^'\\]|\\.)+')
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
_OPERATORS = frozenset({"decltype", "sizeof", "alignof", "noexcept", "typeof", "__typeof__"})
"""Operators whose operand is compared as it is written: ``decltype((x))`` is another type than ``decltype(x)``."""

INTEGER_SUFFIXES = {
    "int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll", "unsigned long long": "ull",
}  # fmt: skip
"""The suffix of a literal of each integer type that has one; a value of another type is written as a cast."""

_WRITTEN_SUFFIXES = {"lu": "ul", "llu": "ull", "z": "l", "uz": "ul", "zu": "ul"}
_CANDIDATES = {
    "": ("", "u", "l", "ul"), "u": ("u", "ul"), "l": ("l", "ul"), "ul": ("ul",), "ll": ("ll", "ull"), "ull": ("ull",),
}  # fmt: skip
"""The types of a literal by its suffix; the first that holds the value is its type. Source: C++20, [lex.icon]."""
_BITS = {"": 31, "u": 32, "l": 63, "ul": 64, "ll": 63, "ull": 64}


class _Unreadable(Exception):
    """The text is not in the grammar of this module, so it is compared unchanged."""


def normalise_expression(text: str) -> str:
    """Return a name expression in the spelling of ``entity_name``: ``k< unsigned >`` becomes ``k<unsigned int>``.

    In text outside the grammar of this module, only blanks outside literals are collapsed. Therefore, any two texts can
    be compared.
    """
    if len(text) > _MAX_CHARS:
        return text.strip()
    collapsed = _collapse(text)
    try:
        reader = _ExpressionReader(_tokens(text))
        result = reader.item(0, ())
        return result if reader.ended else collapsed
    except _Unreadable:
        return collapsed


def integer_literal(value: int, type_name: str) -> str:
    """Return the C++ literal for an integer of a type: ``4``, ``4u``, ``-5ll``, ``(short)4``."""
    suffix = INTEGER_SUFFIXES.get(type_name)
    return f"({type_name}){value}" if suffix is None else f"{value}{suffix}"


def float_literal(value: float, type_name: str) -> str:
    """Return the C++ literal for a floating-point number of a type: ``1.5``, ``1.5f``."""
    return f"{value!r}f" if type_name == "float" else repr(value)


def _collapse(text: str) -> str:
    """Make each run of blanks one blank, except inside literals."""
    return "".join(match[0] if match.lastgroup else " " for match in _TOKEN.finditer(text)).strip()


def _tokens(text: str) -> list[str]:
    matches = [match for match in _TOKEN.finditer(text) if match.lastgroup]
    tokens: list[str] = []
    at = 0
    while at < len(matches):
        end = _operand_end(matches, at)
        if end == at:
            tokens.append(_token(matches[at]))
        else:
            tokens.append(_collapse(text[matches[at].start() : matches[end].end()]))
        at = end + 1
    return tokens


def _operand_end(matches: list[re.Match[str]], at: int) -> int:
    """Return the index of the parenthesis that closes an operator's operand, or ``at`` if no operand begins there."""
    if matches[at][0] not in _OPERATORS or at + 1 == len(matches) or matches[at + 1][0] != "(":
        return at
    depth = 0
    for end in range(at + 1, len(matches)):
        depth += {"(": 1, ")": -1}.get(matches[end][0], 0)
        if depth == 0:
            return end
    raise _Unreadable


def _token(match: re.Match[str]) -> str:
    kind, token = match.lastgroup, match[0]
    if kind == "string":
        raise _Unreadable
    if kind == "char":
        if len(token) != 3:
            raise _Unreadable
        return integer_literal(ord(token[1]), "char")
    if kind == "float":
        return _float(token)
    return _integer(token) if kind == "number" else token


def _float(token: str) -> str:
    try:
        value = float(token.rstrip("fFlL"))
        if token[-1] in "fF":
            (value,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        raise _Unreadable from None
    if token[-1] in "lL" or value == float("inf"):
        raise _Unreadable
    return float_literal(value, "float" if token[-1] in "fF" else "double")


def _integer(token: str) -> str:
    """Spell an integer literal in decimal, with the suffix of its type."""
    plain = token.replace("'", "").lower()
    digits = plain.rstrip("ulz")
    suffix = plain[len(digits) :]
    suffix = _WRITTEN_SUFFIXES.get(suffix, suffix)
    is_octal = len(digits) > 1 and digits.isdecimal() and digits.startswith("0")
    try:
        value = int(digits, 8 if is_octal else 0)
    except ValueError:
        raise _Unreadable from None
    for candidate in _CANDIDATES.get(suffix, ()):
        # A decimal literal without a u is never unsigned.
        allowed = is_octal or not digits.isdecimal() or candidate.startswith("u") == suffix.startswith("u")
        if allowed and value >> _BITS[candidate] == 0:
            return f"{value}{candidate}"
    raise _Unreadable


class _ExpressionReader:
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
        address = "&" if self._token == "&" else ""
        if self._token in ("&", "::"):
            self._take()
        if self._token.startswith("(") and depth:
            return self._cast(depth)
        # As a whole, the address of an entity names the entity; as an argument it is a value of its own.
        return (address * bool(depth) + self._specifiers(depth, stops) + self._declarators(depth, stops)).strip()

    def _specifiers(self, depth: int, stops: tuple[str, ...]) -> str:
        """Read the part before the declarators: qualifiers, and a built-in type, a name, or a number."""
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
        return " ".join([word for word in _CV if word in cv] + [_builtin(words) or base])

    def _cast(self, depth: int) -> str:
        """A number cast to a type: ``(short)4``; ``(int)4`` is spelled ``4``."""
        if self._token != "(":  # a character
            return self._take()
        kind = self._bracketed(depth, "(")[1:-1]
        number = self._qualified(depth)
        value = re.fullmatch(r"(-?\d+)u?l{0,2}", number)
        if value is None:
            raise _Unreadable
        suffix = INTEGER_SUFFIXES.get(kind)
        if suffix is None or int(value[1]) not in range(
            -1 << _BITS[suffix] if "u" not in suffix else 0, 1 << _BITS[suffix]
        ):
            return f"({kind}){value[1]}"
        return f"{value[1]}{suffix}"

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
        """Read items separated by commas, and return their text with the brackets."""
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
    """Return the name of an integer or floating-point type as in the ABI's table. Return an empty
    string without words.
    """
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
