"""Long tables of numbers are read in one piece, and mean what they mean word by word."""

from __future__ import annotations

import random

import pytest

from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import Initializer, Variable
from cujit.formats.ptx.tokens import NUMBERS, Cursor

HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
PLAIN = [str(random.Random(7).randrange(1 << bits)) for bits in range(1, 60)]


def declared(items: str) -> str:
    return f"{HEAD}.global .align 8 .u64 table[] = {{{items}}};\n"


def in_words(text: str) -> str:
    """The same with a comment that a table in one piece cannot have."""
    return text.replace("= {", "={/**/", 1)


def initial(text: str) -> Initializer:
    (variable,) = (item for item in parse(text).items if isinstance(item, Variable))
    assert isinstance(variable.initializer, Initializer)
    return variable.initializer


def said(error: PtxSyntaxError) -> str:
    return str(error).partition("error: ")[2].partition("\n")[0]


@pytest.mark.parametrize(
    "separator", [", ", ",", ",\n\t", " , "], ids=["as compilers write", "dense", "by line", "with blanks"]
)
@pytest.mark.parametrize("extra", ["017", "0", "00", "18446744073709551615", "9223372036854775808"])
def test_table_has_its_meaning_word_by_word(separator: str, extra: str) -> None:
    text = declared(separator.join([*PLAIN, extra]))
    assert NUMBERS in Cursor(text, "x").kinds
    assert NUMBERS not in Cursor(in_words(text), "x").kinds
    assert initial(text) == initial(in_words(text))
    assert initial(text).items[-1].value == int(extra, 8 if extra[0] == "0" else 10)  # type: ignore[union-attr]
    assert initial(print_module(parse(text))) == initial(text)


@pytest.mark.parametrize("odd", ["", "1 2", "089", "18446744073709551616", "0123456789012345678901234567"])
@pytest.mark.parametrize("place", [0, 30, len(PLAIN)])
def test_odd_number_in_a_table_is_pointed_at(odd: str, place: int) -> None:
    text = declared(", ".join([*PLAIN[:place], odd, *PLAIN[place:]]))
    with pytest.raises(PtxSyntaxError) as here:
        parse(text)
    with pytest.raises(PtxSyntaxError) as there:
        parse(in_words(text))
    assert said(here.value) == said(there.value)
    assert here.value.line == there.value.line == 4
    assert here.value.column == there.value.column - len("{/**/") + len(" {")


def test_text_after_a_table_is_read() -> None:
    text = declared(", ".join([*PLAIN, "017"])) + ".global .u32 next = 5;\n.entry k() { ret; }\n"
    found = parse(text)
    assert [item.name for item in found.items if isinstance(item, Variable)] == ["table", "next"]
    assert found.entries[0].line == 6
