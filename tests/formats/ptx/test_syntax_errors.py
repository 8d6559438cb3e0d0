"""Text that is not PTX gives a ``PtxSyntaxError`` that says where and what was expected, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.parser import parse

HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"


def failure(text: str) -> PtxSyntaxError:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text, name="file.ptx")
    return caught.value


def test_error_points_at_the_word_with_line_column_and_caret() -> None:
    error = failure(HEAD + ".entry k() {\n\tadd.s32 %r1, %r2 %r3;\n}")
    assert (error.line, error.column) == (5, 19)
    assert str(error) == (
        "file.ptx:5:19: error: expected ',' or ';', found '%r3'\n    \tadd.s32 %r1, %r2 %r3;\n    \t                 ^"
    )


def test_float_in_an_integer_expression_gets_a_caret() -> None:
    error = failure(HEAD + ".entry k() { mov.u32 %r1, ~1.5; }")
    assert "expected an integer: this operator doesn't accept floating-point constants" in error.message
    assert (error.line, error.column) == (4, 28)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected '.version'"),
        (".version 8", "expected a version such as 8.5"),
        (".version 8.5", "expected '.target'"),
        (HEAD + ".address_size 64", "expected a function, a variable or a directive"),
        (HEAD + ".address_sizes 64", "expected a function, a variable or a directive"),
        (".version 8.5 .target sm_90 .address_size 48", "expected 32 or 64, found 48"),
        (HEAD + ".entry k() { ret }", "expected an operand, found '}'"),
        (HEAD + ".entry k() { ret;", "expected a statement or '}', found the end of the text"),
        (HEAD + ".entry k() { bra 5; }", "expected a label, found '5'"),
        (HEAD + ".entry k() { @p }", "expected an instruction after the predicate"),
        (HEAD + ".entry k() { mov.u32 %r1, ; }", "expected an operand, found ';'"),
        (HEAD + ".entry k() { mov.u32 %r1, 5/0; }", "expected a divisor other than zero"),
        (HEAD + ".entry k() { mov.u32 %r1, 0x10000000000000000; }", "at most 64 bits"),
        (HEAD + ".entry k() { mov.u32 %r1, 0f3F80; }", "expected a constant, found '0f3F80'"),
        (HEAD + ".entry k() { mov.u32 %r1, 09; }", "expected a constant, found '09'"),
        (HEAD + ".entry k() { ld.u32 %r1, [%rd1+%r2]; }", "expected a byte offset, found '%r2'"),
        (HEAD + ".entry k() { ld.u32 %r1, [[%rd1]]; }", "expected an address, found '['"),
        (HEAD + ".entry k() { .reg .b32 r; ld.u32 r, [r.x]; }", "expected a whole register or a variable as the base"),
        (HEAD + ".entry k() { .reg .b32 r; ld.u32 r, [r; }", "expected '+', ',' or ']', found ';'"),
        (HEAD + ".entry k() { .reg .b32 r; ld.u32 r, [r, {r}; }", "expected ']', found ';'"),
        (HEAD + ".entry k() { mov.u32 %r1, {{%a}}; }", "expected a register or a constant"),
        (HEAD + ".entry k() { call (%r1); }", "expected ',' and the function to call"),
        (HEAD + ".entry k() { .reg %r1; }", "expected a type such as '.b32', found '%r1'"),
        (HEAD + ".entry k() { .reg .b32 %r<x>; }", "expected how many, found 'x'"),
        (HEAD + ".entry k(.param u32 n) {}", "expected a type such as '.b32', found 'u32'"),
        (HEAD + ".entry k(.global .u32 n) {}", "expected '.param' or '.reg'"),
        (HEAD + ".global .align 3 .u32 n;", "expected an alignment that is a power of two, found 3"),
        (HEAD + ".global .q32 n;", "expected a type or a name, found '.q32'"),
        (HEAD + '.global .b8 s[] = "text";', "PTX has no strings in initial values"),
        (HEAD + ".global .b32 v<5000>;", "expected at most 4096 variables"),
        (HEAD + ".global .u32 a b;", "expected ',' or ';', found 'b'"),
        (HEAD + ".global .u32 a[3;", "expected ']', found ';'"),
        (HEAD + ".global .u32 a[2] = {1 2};", "expected ',' or '}', found '2'"),
        (HEAD + ".global .attribute(3) .u32 a;", "expected an attribute such as '.managed', found '3'"),
        (HEAD + ".global .attribute(.managed .u32 a;", "expected ',' or ')', found '.u32'"),
        (HEAD + ".entry k(.param .u32 a .param .u32 b) {}", "expected ',' or ')', found '.param'"),
        (HEAD + ".entry k() { .reg .b32 a b; }", "expected ',' or ';', found 'b'"),
        (HEAD + ".entry k() { .reg .b32 %r<3; }", "expected '>', found ';'"),
        (HEAD + ".entry k() { mov.u32 %r1|3, %r2; }", "expected a register after '|', found '3'"),
        (HEAD + ".entry k() { mov.u32 %r1, (1; }", "expected ')', found ';'"),
        (HEAD + ".entry k() { mov.u32 %r1, 1?2; }", "expected ':', found ';'"),
        (HEAD + ".visible .file", "expected a function or a variable after '.visible'"),
        (HEAD + '.file 1 "x', "expected '\"' to end this string"),
        (HEAD + "/* never", "expected '*/' to end this comment"),
        (HEAD + ".section .debug { .b8 1", "expected '}' to end the section"),
        (HEAD + "é", "expected PTX, found the character 'é'"),
        (HEAD + "\x01", "expected PTX, found the character '\\x01'"),
    ],
)
def test_error_names_what_was_expected(text: str, expected: str) -> None:
    assert expected in failure(text).message


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ".entry k() " + "{" * 100_000,
        HEAD + ".entry k() { mov.u32 %r1, " + "(" * 100_000,
        HEAD + ".entry k() { mov.u32 %r1, " + "-" * 100_000,
        HEAD + ".entry k() { mov.u32 %r1, " + "1?" * 100_000,
        HEAD + ".global .u32 a[] = " + "{" * 100_000,
        HEAD + ".global .u32 a" + "[]" * 100_000,
        HEAD + ".entry k() { mov.u32 %r1, " + "9" * 100_000,
        HEAD + ".global .u32 a[" + "0x" + "f" * 100_000,
        HEAD + "/*" * 100_000,
        HEAD + '"' * 100_001,
        HEAD + "\n" * 100_000 + "?",
        HEAD + ".entry k() { .reg .b32 %r<99999999999999999999>; }",
    ],
    ids=lambda text: text[len(HEAD) :][:30] + "…",
)
def test_hostile_text_is_refused_in_bounded_time(text: str) -> None:
    start = time.process_time()
    failure(text)
    assert time.process_time() - start < 2


def test_scopes_may_nest_forty_deep() -> None:
    parse(HEAD + (".entry k() { " + ("{ " * 39 + "} " * 39) * 3 + "}\n"))
    assert "expected at most" in failure(HEAD + ".entry k() " + "{ " * 60 + "} " * 60).message


def test_long_sums_are_folded_without_deep_recursion() -> None:
    parse(HEAD + ".entry k() { mov.u32 %r1, 1" + "+1" * 20_000 + "; }")


def test_register_range_costs_nothing_by_its_size() -> None:
    parse(HEAD + ".entry k() { .reg .b32 %r<999999999>; mov.b32 %r99999999, 1; }")


WORDS = """
    .version 8.5 .target sm_90 .address_size 64 .entry .func .visible k ( ) { } [ ] < > , ; : @ ! | = + - * / %
    ? ~ & ^ .reg .b32 .param .global .align .ptr .v2 %r1 %p1 x 4 0x10 -1 0f3F800000 1.5 "s" _ generic call bra
    add.s32 ld.global.u32 .loc .file .pragma .section .branchtargets .callprototype .calltargets .attribute
    .managed WARP_SZ @@DWARF /* */ // .unified brx.idx .alias
"""


def check(text: str) -> None:
    """``text`` is a module, or a syntax error with a place; any other exception fails the test."""
    error: PtxSyntaxError | None = None
    try:
        parse(text)
    except PtxSyntaxError as caught:
        error = caught
    assert error is None or (error.line >= 1 and error.column >= 1)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(WORDS.split()), max_size=40).map(" ".join),
    st.sampled_from(["", HEAD, HEAD + ".entry k() {"]),
)
def test_any_sequence_of_words_is_a_module_or_a_syntax_error(text: str, head: str) -> None:
    check(head + text)


@settings(max_examples=100)
@given(st.text(), st.sampled_from(["", HEAD, HEAD + ".entry k() { "]))
def test_any_text_is_a_module_or_a_syntax_error(text: str, head: str) -> None:
    check(head + text)
