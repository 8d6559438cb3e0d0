"""What a text may include, as NVRTC's own reading of it has it."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cujit.compiler.includes.directives import Inclusion, Verb, read_facts

H1 = Inclusion(Verb.INCLUDE, "<", "h1.h")


def included(text: str) -> list[str]:
    return [d.name for d in read_facts(text.encode()).directives if d.verb is not Verb.PROBE]


# Every text here was given to NVRTC 13.5, which included h1.h.
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("#include <h1.h>", id="plain"),
        pytest.param("%:include <h1.h>", id="digraph"),
        pytest.param("#\\\ninc\\\nlude <h1.h>", id="joined-lines"),
        pytest.param("#inc\\\r\nlude <h1.h>", id="joined-lines-of-windows"),
        pytest.param("/**/ # /* x\n y */ include /* z */ <h1.h>", id="comments-within"),
        pytest.param("\f\v #\v include\f<h1.h>", id="strange-blanks"),
        pytest.param("#include <h1.h> junk", id="junk-behind"),
        pytest.param("#include <h1.h>//c", id="comment-behind"),
        pytest.param("// x \\  \n#include <h1.h>", id="backslash-and-blanks-join-nothing"),
        pytest.param("#if 0\n'\n#endif\n#include <h1.h>", id="lone-quote"),
        pytest.param("#if 0\ndon't /* \n#endif\n#include <h1.h>", id="lone-quote-hides-a-comment"),
        pytest.param('#define Q "it /* \n#include <h1.h>', id="open-string-hides-a-comment"),
        pytest.param("__device__ int n = 1'000/*'*/;\n#include <h1.h>", id="quote-in-a-number"),
        pytest.param("int n = 1'000'000; // it's /* \n#include <h1.h>", id="quotes-in-a-number"),
        pytest.param('const char* s = "/*";\n#include <h1.h>', id="comment-in-a-string"),
        pytest.param('const char* s = R"x(/* )" )x";\n#include <h1.h>', id="comment-in-a-raw-string"),
        pytest.param("#if 0\n#include <h1.h>\n#endif", id="other-branch"),
        pytest.param("#ifndef A\n#else\n#include <h1.h>\n#endif", id="else"),
        pytest.param("#ifdef __CUDACC_RTC__\n#include <h1.h>\n#endif", id="for-nvrtc"),
        pytest.param("#if !defined(__CUDACC_RTC__)\n#else\n#include <h1.h>\n#endif", id="not-for-a-host"),
        pytest.param("#if !defined(__CUDACC_RTC__) || A\n#include <h1.h>\n#endif", id="for-a-host-or-else"),
        pytest.param("#if A\n#elif defined(__CUDACC_RTC__)\n#include <h1.h>\n#endif", id="elif-for-nvrtc"),
        pytest.param("#if defined(__CUDACC_RTC__) && A\n#else\n#include <h1.h>\n#endif", id="nvrtc-and-more"),
        pytest.param("#if !(defined(__CUDACC_RTC__) && A)\n#include <h1.h>\n#endif", id="not-both"),
        pytest.param("#if A || B && !defined(__CUDACC_RTC__)\n#include <h1.h>\n#endif", id="or-before-and"),
        pytest.param(
            "#define C A || 1\n#if !defined(__CUDACC_RTC__) && C\n#include <h1.h>\n#endif", id="macro-with-an-operator"
        ),
        pytest.param(
            "#define C 1 ? 0 : 0\n#if defined(__CUDACC_RTC__) || C\n#else\n#include <h1.h>\n#endif",
            id="macro-with-a-choice",
        ),
        pytest.param("#if F(A) && !defined(__CUDACC_RTC__)\n#include <h1.h>\n#endif", id="macro-with-arguments"),
        pytest.param("#if !defined(__CUDACC_RTC__) ? 1 : 1\n#include <h1.h>\n#endif", id="choice"),
    ],
)
def test_include_that_nvrtc_follows_is_found(text: str) -> None:
    assert H1 in read_facts(text.encode()).directives


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("// #include <h1.h>", id="comment"),
        pytest.param("/*\n#include <h1.h>\n*/", id="block"),
        pytest.param("// c \\\n#include <h1.h>", id="joined-comment"),
        pytest.param('const char* s = R"(\n#include <h1.h>\n)";', id="raw-string"),
        pytest.param("int x; /* a \n */ #include <h1.h>", id="not-first-in-its-line"),
        pytest.param("// c\r#include <h1.h>", id="carriage-return"),
        pytest.param("#ifndef __CUDACC_RTC__\n#include <h1.h>\n#endif", id="for-a-host"),
        pytest.param("#if (A) && !defined(__CUDACC_RTC__)\n# include <h1.h>\n#endif", id="for-a-host-and-more"),
        pytest.param("#if defined(__CUDACC_RTC__)\n#else\n#include <h1.h>\n#endif", id="else-for-a-host"),
        pytest.param("#ifdef __CUDACC__\n#elif 1\n#include <h1.h>\n#endif", id="elif-for-a-host"),
    ],
)
def test_include_that_no_compile_reaches_is_not_followed(text: str) -> None:
    assert included(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#include <a//b.h>\n#include <c/*d.h>", ["a//b.h", "c/*d.h"]),
        ('#include "it\'s.h"\n#include <h1.h>', ["it's.h", "h1.h"]),
        ("#include_next <x.h>\n#import <y.h>", ["x.h", "y.h"]),
        ("#include HEADER(x.h)", ["HEADER(x.h)"]),
        ("\ufeff#include <h1.h>", ["h1.h"]),
    ],
    ids=["comment-signs", "quote", "next-and-import", "computed", "byte-order-mark"],
)
def test_name_is_what_the_directive_contains(text: str, expected: list[str]) -> None:
    assert included(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "#if __has_include(<h1.h>)\n#endif",
        "#if __has_include\\\n ( \\\n <h1.h> )\n#endif",
        "#if __has_include/**/(<h1.h>)\n#endif",
        "#define H __has_include(<h1.h>)\n",
        "int n[__has_include(<h1.h>) + 1];",
        "#if MAYBE(<h1.h>)\n#endif",
    ],
    ids=["plain", "joined", "comment", "macro", "code", "argument"],
)
def test_tested_header_is_found(text: str) -> None:
    assert Inclusion(Verb.PROBE, "<", "h1.h") in read_facts(text.encode()).directives


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("const char* s = __DATE__;", "__DATE__"),
        ("const char* s = __TIME__;", "__TIME__"),
        ("const char* s = __TIMESTAMP__;", "__TIMESTAMP__"),
        ("#define H __has_include\n", "another name"),
        ("#define H __has_include(\n", "another name"),
        ("#define P(a, b) a ## b\n#if P(__has_, include)(<h1.h>)\n#endif", "__has_"),
        ("#define H __h ## as_include\n", "as_include"),
        ("#if JOINED(__has_, include)(<h1.h>)\n#endif", "__has_"),
        ("#define T __DA ## TE__\n", "__DA"),
        ("#define T(x) __ ## x ## __\nconst char* s = T(TIME);", "TIME"),
        ("#define T __DA %:%: TE__\n", "%:%:"),
        ("#embed <h1.h>", "#embed"),
        ("#if __has_embed(<h1.h>)\n#endif", "__has_embed"),
        ("import <h1.h>;", "module"),
        ("export module m;", "module"),
        ("#undef __CUDACC_RTC__\n", "#undef"),
    ],
    ids=[
        "date",
        "time",
        "timestamp",
        "renamed",
        "open",
        "pasted",
        "pasted-otherwise",
        "pasted-elsewhere",
        "date-pasted",
        "time-pasted",
        "digraph",
        "embed",
        "has-embed",
        "import",
        "module",
        "undef",
    ],
)
def test_unsupported_directive_is_refused(text: str, part: str) -> None:
    assert part in read_facts(text.encode()).refusal


@pytest.mark.parametrize(
    "text",
    [
        "// __DATE__",
        'const char* s = "__TIME__";',
        "#ifdef __has_include\n#endif\n#if defined(__has_include) && __has_include(<a>)\n#endif",
        "int important = 3; struct module { int x; };",
        "#define P(x) __ ## x ## __\nint TIMES, __hash, has_include_dir; bool b = __has_trivial_destructor(T);",
        "enum class Part { DATE, TIME }; // __DA",
    ],
    ids=["comment", "string", "defined", "words", "pasting", "other-names"],
)
def test_text_that_resembles_a_directive_is_accepted(text: str) -> None:
    assert read_facts(text.encode()).refusal == ""


def test_old_dialect_has_trigraphs_and_other_quotes() -> None:
    assert read_facts(b"??=include <h1.h>").old_refusal
    assert read_facts(b"int n = 1'000;").old_refusal
    assert not read_facts(b"int n = 1000; // what??").old_refusal


def test_header_in_utf_16_is_refused() -> None:
    assert "UTF-16" in read_facts("#include <h1.h>".encode("utf-16")).refusal


_PIECES = st.sampled_from(
    ["#include <a>", '#include "b"', "#", "include", "<", ">", '"', "'", "\\\n", "\n", "/*", "*/", "//", 'R"(', ')"',
     "__has_include(", "1'0", "u8", "#if ", "#endif\n", "defined(__CUDACC_RTC__)", "#define A ", "??/", "\r", "\0", "é"]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=400), st.lists(_PIECES, max_size=60).map(lambda p: "".join(p).encode())))
@example(b"/*" * 2000)
@example(b'"\\' * 2000)
@example(b"1'" * 2000)
@example(b'R"(' * 2000)
@example(b"#include /*" * 1000)
@example(b"__has_include(<" * 1000)
@example(b"#if " + b"(" * 4000)
def test_any_bytes_are_read_quickly_and_without_an_exception(data: bytes) -> None:
    start = time.process_time()
    read_facts(data)
    assert time.process_time() - start < 5
