"""PTX text split into words, and the cursor that moves over the words.

A mnemonic with its modifiers (``ld.shared::cta.u32``) is one word, and so is a dotted name (``%tid.x``). Therefore, a
PTX line has few words, which makes the parser fast. The table of numbers at the beginning of a variable's value is also
one word. Some libraries have tables of 100,000 numbers (``= {202, 29, 180, …}``).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NoReturn

from cujit.errors import PtxSyntaxError

# The kind of a word. Punctuation is its own kind.
NAME = "a name"
DIRECTIVE = "a directive"
NUMBER = "a number"
NUMBERS = "a list of numbers"
STRING = "a string"
DWARF = "a @@DWARF line"
SOURCE = "a source in another language"
END = "the end of the text"

# Source: PTX ISA 9.1, 4.2 "Comments", 4.4 "Identifiers", 4.5 "Constants". The part before the word
# always matches and the last alternative takes any character, so no text makes the match fail or go back.
_WORD = re.compile(
    r"""
    (?: \s+ | //[^\n]* | /\*.*?\*/ )*
    (?: ( (?:[A-Za-z_$]|%[\w$]) [\w$]* (?: \.\w+ (?: ::\d+:\d+ | ::\w+ )* )* )
      | ( (?:(?<==)|(?<==[ ])) \{[0-9,\s]{64,}\} )
      | ( [,;\[\]{}():|@<>=?~&^+%*-] | ! | /(?![/*]) )
      | ( \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d\w* )
      | ( \. [\w$]+ (?: ::\d+:\d+ | ::\w+ )* )
      | ( "(?:[^"\\\n]|\\.)*" )
      | ( \Z )
      | ( . )
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS = ("", NAME, NUMBERS, "punctuation", NUMBER, DIRECTIVE, STRING, END, "")
_PUNCTUATION, _DIRECTIVE, _END, _BAD = 3, 5, 7, 8
_SOURCE_WORD, _SOURCE_END = ".source_begin", ".source_end"
_DWARF_LINE = re.compile(r"@@DWARF[^\n]*")
_SHOWN_CHARACTERS = 240


class Cursor:
    """The words of one text, and the position of the parser.

    ``kinds``, ``words``, and ``starts`` (characters from 0) are parallel lists that end with one ``END``. ``index`` is
    the index of the next word. The parser's inner loops read the lists directly.
    """

    __slots__ = ("_line_starts", "index", "kinds", "name", "source", "starts", "words")

    def __init__(self, source: str, name: str) -> None:
        self.source = source
        self.name = name
        self.index = 0
        self.kinds: list[str] = []
        self.words: list[str] = []
        self.starts: list[int] = []
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", source))]
        self._cut(0, len(source))

    def open_numbers(self) -> None:
        """Split the next word, which is a list of numbers, into its words: ``{``, ``202``, ``,`` and so on."""
        index, start = self.index, self.starts[self.index]
        end = start + len(self.words[index])
        kinds, words, starts = self.kinds[index + 1 :], self.words[index + 1 :], self.starts[index + 1 :]
        self.kinds[index:], self.words[index:], self.starts[index:] = ["{"], ["{"], [start]
        self._cut(start + 1, end)
        self.kinds[-1:], self.words[-1:], self.starts[-1:] = kinds, words, starts  # In place of the end.

    def _cut(self, position: int, stop: int) -> None:
        """Cut the text from ``position`` to ``stop``, and end it."""
        kinds, words, starts = self.kinds, self.words, self.starts
        while True:  # Again only after a @@DWARF line, or a source in another language.
            for match in _WORD.finditer(self.source, position, stop):
                group = match.lastindex or _END
                word, start = match[group], match.start(group)
                if group >= _END:
                    break
                kinds.append(word if group == _PUNCTUATION else _KINDS[group])
                words.append(word)
                starts.append(start)
                if word == "@" and self.source.startswith("@@DWARF", start):
                    group = 0
                    break
                if group == _DIRECTIVE and word == _SOURCE_WORD:
                    group = -1
                    break
            if group == _BAD:
                self._refuse_character(word, start)
            if group == _END:
                break
            if group < 0:
                position = self._cut_source(start + len(word), stop)
                continue
            line = _DWARF_LINE.match(self.source, start)
            assert line is not None
            kinds[-1], words[-1], position = DWARF, line[0].rstrip(), line.end()
        kinds.append(END)
        words.append("")
        starts.append(start)

    def _cut_source(self, start: int, stop: int) -> int:
        """Add a source in another language as one word, and return the offset of its end."""
        end = self.source.find(_SOURCE_END, start, stop)
        if end < 0:
            self.fail_at(start - len(_SOURCE_WORD), f"expected '{_SOURCE_END}' to end this source, found {END}")
        self.kinds.append(SOURCE)
        self.words.append(self.source[start:end])
        self.starts.append(start)
        return end

    def _refuse_character(self, character: str, start: int) -> NoReturn:
        if self.source.startswith("/*", start):
            self.fail_at(start, "expected '*/' to end this comment, found the end of the text")
        if character == '"':
            self.fail_at(start, "expected '\"' to end this string, found the end of the line")
        self.fail_at(start, f"expected PTX, found the character {character!r}")

    # -- where ----------------------------------------------------------------------------------------------

    def line(self) -> int:
        """The line of the next word, from 1."""
        return bisect_right(self._line_starts, self.starts[self.index])

    def fail_at(self, start: int, message: str) -> NoReturn:
        """Raise a ``PtxSyntaxError`` that points at character ``start``."""
        line = bisect_right(self._line_starts, start)
        line_start = self._line_starts[line - 1]
        line_end = self._line_starts[line] if line < len(self._line_starts) else len(self.source)
        text = self.source[line_start:line_end].rstrip()
        column = start - line_start + 1
        shown = text[:_SHOWN_CHARACTERS] if column <= _SHOWN_CHARACTERS else ""
        raise PtxSyntaxError(message, line=line, column=column, source_line=shown, name=self.name)

    def fail(self, message: str, *, back: int = 0) -> NoReturn:
        """Raise a ``PtxSyntaxError`` that points at the next word, or ``back`` words before it."""
        self.fail_at(self.starts[max(self.index - back, 0)], message)

    def fail_expected(self, expected: str) -> NoReturn:
        """Raise a ``PtxSyntaxError``, because the next word is not ``expected``."""
        word = self.words[self.index]
        if len(word) > 60:
            word = word[:60] + "…"
        self.fail(f"expected {expected}, found {repr(word) if word else END}")

    # -- one word on ----------------------------------------------------------------------------------------

    def at(self, kind: str) -> bool:
        """Return whether the next word is of ``kind``."""
        return self.kinds[self.index] == kind

    def at_word(self, word: str) -> bool:
        """Return whether the next word is exactly ``word``."""
        return self.words[self.index] == word

    def take(self) -> str:
        """Step over the next word and return it."""
        word = self.words[self.index]
        if self.kinds[self.index] != END:
            self.index += 1
        return word

    def skip(self, kind: str) -> bool:
        """Skip the next word if it is of ``kind``, and return whether it was skipped."""
        if self.kinds[self.index] == kind:
            self.index += 1
            return True
        return False

    def skip_word(self, word: str) -> bool:
        """Skip the next word if it is ``word``, and return whether it was skipped."""
        if self.words[self.index] == word:
            self.index += 1
            return True
        return False

    def expect(self, kind: str, expected: str | None = None) -> str:
        """Skip the next word, which must be of ``kind``, and return the word.

        Raises:
            PtxSyntaxError: the word is of another kind. The message contains ``expected``.
        """
        if self.kinds[self.index] != kind:
            self.fail_expected(expected or (repr(kind) if len(kind) == 1 else kind))
        self.index += 1
        return self.words[self.index - 1]

    def expect_name(self, expected: str) -> str:
        """Step over a name without dots and return it."""
        if self.kinds[self.index] != NAME or "." in self.words[self.index]:
            self.fail_expected(expected)
        self.index += 1
        return self.words[self.index - 1]


def fail_at_construct(
    text: str, name: str, line: int, construct: str, why: str, *, help: str | None = None
) -> NoReturn:
    """Raise a ``PtxSyntaxError`` with a caret below ``construct``, a mnemonic in ``line`` or soon after it."""
    cursor = Cursor(text.rstrip("\0"), name)
    try:
        cursor.fail_at(_place(cursor, line, construct), why)
    except PtxSyntaxError as error:
        error.help = help
        raise


def _place(cursor: Cursor, line: int, construct: str) -> int:
    """Return the index of a mnemonic, from the first word of ``line`` on. Modifiers may be separate
    from their opcode.
    """
    first: int | None = None
    for index, (kind, word) in enumerate(zip(cursor.kinds, cursor.words, strict=True)):
        cursor.index = index
        if not word or cursor.line() < line:
            continue
        first = index if first is None else first
        if kind in (NAME, DIRECTIVE) and construct.startswith(word):
            end = index + 1
            while cursor.kinds[end] == DIRECTIVE:
                word += cursor.words[end]
                end += 1
            if word == construct:
                return cursor.starts[index]
        if kind == ";" and cursor.line() > line:
            break
    return cursor.starts[first or 0]
