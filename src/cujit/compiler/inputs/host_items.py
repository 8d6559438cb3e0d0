"""A C++ text as items of its namespaces and classes, found without a preprocessor, with the names that each uses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from cujit.values import NamedTuple

_TOKEN = re.compile(
    r"(?P<blank>\s+|//(?:[^\n\\]|\\.)*|/\*.*?(?:\*/|\Z))"
    r'|(?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'
    r"'(?:[^'\\\n]|\\.)+')"
    r"|(?P<directive>(?m:^[ \t]*)\#(?:/\*.*?\*/|//[^\n]*|[^\n\\]|\\.)*)"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<number>\.?\d(?:[\w.]|(?<=[eEpP])[+-]|'(?=\w))*)"
    r"|(?P<sign><<<|::|->|[=!<>]=|.)",
    re.DOTALL,
)
_CLASSES = frozenset(("class", "struct", "union", "enum"))
_WITH_PARENTHESES = frozenset(
    ("alignas", "__align__", "__attribute__", "__launch_bounds__", "__declspec", "decltype", "noexcept")
)
_GOES_ON = frozenset((";", "{", ",", ":", "=", "->", "(", "[", "const", "noexcept", "override", "final", "try"))


class Token(NamedTuple):
    """A token with its position. ``kind`` is ``word``, ``sign``, ``string``, ``number``, or ``directive``."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """Split a text into tokens without blanks and comments."""
    return [
        Token(match.lastgroup or "", match[0], match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "blank"
    ]


class Item(NamedTuple):
    """A declaration or definition: ``kind`` is ``scope``, ``class``, ``function``, ``macro`` or ``other``.

    ``head`` are its tokens up to the body; ``children`` are those of a namespace or a class. ``tokens`` are all.
    """

    kind: str
    tokens: Sequence[Token]
    head: Sequence[Token]
    children: Sequence[Item]

    @property
    def words(self) -> set[str]:
        """All identifiers in it."""
        return _words(self.tokens)

    def has(self, word: str) -> bool:
        """Whether its head has a word or a sign."""
        return any(token.text == word for token in self.head)

    def declares(self) -> set[str]:
        """Return the names that the item declares, at least."""
        plain = [*_without_parameters(self.head), Token("sign", ";", 0, 0)]
        if self.kind == "function":
            return set(_words_before(plain, ("(",))[:1])
        if self.has("typedef") or self.has("using"):
            return _words(plain)
        if self.kind == "class":
            body = self.tokens[len(self.head) :] if self.has("enum") else self.tokens[-3:]
            return {*_words_before(plain, (":", ";", "<", "final"))[:1], *_words(body)}
        return set(_words_before(plain, ("=", "[", ";", "{", "(", ",", ":")))


def _words(tokens: Iterable[Token]) -> set[str]:
    return {token.text for token in tokens if token.kind == "word"}


def _words_before(tokens: Sequence[Token], signs: Sequence[str]) -> list[str]:
    return [a.text for a, b in _pairs(tokens) if a.kind == "word" and b.text in signs]


def _pairs(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    return itertools.pairwise(tokens)


def _without_parameters(tokens: Sequence[Token]) -> list[Token]:
    """Remove template parameter lists, and parentheses after attributes."""
    kept: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.text == "template":
            position = _past_angles(tokens, position + 1)
        elif token.text in _WITH_PARENTHESES:
            position = _past_round(tokens, position + 1)
        else:
            kept.append(token)
            position += 1
    return kept


def _past_round(tokens: Sequence[Token], position: int) -> int:
    if position >= len(tokens) or tokens[position].text != "(":
        return position
    depth = 0
    while position < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[position].text, 0)
        position += 1
        if not depth:
            break
    return position


def _past_angles(tokens: Sequence[Token], position: int) -> int:
    if position >= len(tokens) or tokens[position].text != "<":
        return position
    depth = 0
    while position < len(tokens):
        text = tokens[position].text
        if text == "(":
            position = _past_round(tokens, position)
            continue
        depth += {"<": 1, ">": -1}.get(text, 0)
        position += 1
        if not depth:
            break
    return position


def _closings(tokens: Sequence[Token]) -> dict[int, int]:
    """Find the brace that closes each; of an ``#if``, every branch begins at the depth before it."""
    found: dict[int, int] = {}
    stack: list[int] = []
    saved: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token.text == "{" and token.kind == "sign":
            stack.append(position)
        elif token.text == "}" and token.kind == "sign" and stack:
            found[stack.pop()] = position
        elif token.kind == "directive":
            verb = token.text.lstrip("# \t").partition(" ")[0].strip()
            if verb.startswith("if"):
                saved.append(list(stack))
            elif verb.startswith("el") and saved:
                stack = list(saved[-1])
            elif verb.startswith("endif") and saved:
                saved.pop()
    return found


def items_of(tokens: Sequence[Token]) -> list[Item]:
    """Split the tokens of a text into the items at its namespaces."""
    return _Splitter(tokens, _closings(tokens)).items(0, len(tokens))


class _Splitter:
    """One walk over the tokens of a text."""

    def __init__(self, tokens: Sequence[Token], closings: dict[int, int]) -> None:
        self._tokens, self._closings = tokens, closings

    def items(self, begin: int, end: int) -> list[Item]:
        """List the items from one token to another."""
        found = []
        while begin < end:
            if self._tokens[begin].kind == "directive":
                begin += 1
                continue
            item, begin = self._item(begin, end)
            found.append(item)
        return found

    def _item(self, begin: int, end: int) -> tuple[Item, int]:
        tokens, position = self._tokens, begin
        while position < end:
            token = tokens[position]
            if token.text == "template":
                position = _past_angles(tokens, position + 1)
            elif token.text == "(":
                position = _past_round(tokens, position)
                if self._is_macro(begin, position, end):
                    return self._made("macro", begin, position, position), position
            elif token.text == "{" and position in self._closings:
                done = self._braced(begin, position, end)
                if isinstance(done, tuple):
                    return done
                position = done
            else:
                position += 1
                if token.text == ";" or (token.text == ":" and position == begin + 2 and _is_access(tokens[begin])):
                    break
        kind = self._kind(begin, position)
        return self._made("other" if kind == "scope" else kind, begin, position, position), position

    def _braced(self, begin: int, brace: int, end: int) -> tuple[Item, int] | int:
        """Skip a brace. Return the item if it ends there, otherwise the position where it continues."""
        close = self._closings[brace]
        kind = self._kind(begin, brace)
        if kind == "scope":
            return self._made(kind, begin, brace, close + 1, self.items(brace + 1, close)), close + 1
        if kind == "class":
            stop = close + 1
            while stop < end and self._tokens[stop - 1].text != ";":
                stop += 1
            return self._made(kind, begin, brace, stop, self.items(brace + 1, close)), stop
        goes_on = close + 1 < end and self._tokens[close + 1].text in (",", "{")
        if kind == "function" and not goes_on:
            return self._made(kind, begin, brace, close + 1), close + 1
        return close + 1

    def _is_macro(self, begin: int, position: int, end: int) -> bool:
        """Return whether a macro call is an item without a semicolon."""
        tokens = self._tokens
        if tokens[begin].kind != "word" or tokens[begin + 1 : begin + 2] != [tokens[begin + 1]] or position >= end:
            return False
        is_call = tokens[begin + 1].text == "(" and _past_round(tokens, begin + 1) == position
        return is_call and tokens[position].text not in _GOES_ON and tokens[begin].text not in _WITH_PARENTHESES

    def _made(self, kind: str, begin: int, body: int, end: int, children: Sequence[Item] = ()) -> Item:
        plain = [token for token in self._tokens[begin:body] if token.kind != "directive"]
        return Item(kind, self._tokens[begin:end], plain, children)

    def _kind(self, begin: int, end: int) -> str:
        plain = [token for token in self._tokens[begin:end] if token.kind != "directive"]
        words = [token.text for token in _without_parameters(plain)]
        if _is_scope(words):
            return "scope"
        first = min((words.index(sign) for sign in ("(", "=") if sign in words), default=len(words))
        sign = "".join(words[first : first + 1])
        is_alias = "using" in words or "typedef" in words
        if (sign == "(" and not is_alias) or "operator" in words:
            return "function"
        return "class" if sign != "=" and not _CLASSES.isdisjoint(words) else "other"


def _is_scope(words: Sequence[str]) -> bool:
    if len(words) == 2 and words[0] == "extern":
        return words[1].startswith('"')
    return "namespace" in words and "using" not in words and "=" not in words


def _is_access(token: Token) -> bool:
    return token.text in ("public", "private", "protected")
