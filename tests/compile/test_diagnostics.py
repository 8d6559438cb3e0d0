"""Logs become values."""

from __future__ import annotations

from cujit.compiler.backends.diagnostics import parse_log
from cujit.errors import Diagnostic

NVRTC_LOG = """\
a/k.cu(2): warning #177-D: variable "x" was declared but never referenced
  \tint x;
  \t    ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

k.cu(5): error: more than one instance of overloaded function "f" matches the argument list:
            function "f(int)" (declared at line 1)
            argument types are: (long)
    f(1l);
    ^

h.h(1): error: expression must have class type
  template <class T> T f(T x) { return x.y; }
                                       ^
          detected during instantiation of "T f(T) [with T=int]" at line 2 of k.cu

k.cu(9): catastrophic error: cannot open source file "nope.h"
  #include <nope.h>
                   ^

At end of source: error: expected a ";"

4 errors detected in the compilation of "k.cu".
"""


def test_nvrtc_messages_have_place_severity_code_and_source_line() -> None:
    warning, overload, template, header, end = parse_log(NVRTC_LOG)
    assert warning == Diagnostic(
        "warning",
        'variable "x" was declared but never referenced',
        "a/k.cu",
        2,
        6,
        "#177-D",
        "\tint x;",
    )
    assert (overload.line, overload.column, overload.source_line) == (5, 3, "  f(1l);")
    assert overload.message.splitlines()[1:] == [
        'function "f(int)" (declared at line 1)',
        "argument types are: (long)",
    ]
    assert (template.file, template.column) == ("h.h", 38)
    assert template.message.endswith('"T f(T) [with T=int]" at line 2 of k.cu')
    assert (header.severity, header.line, header.column) == ("error", 9, 18)
    assert end == Diagnostic("error", 'expected a ";"')


def test_caret_is_below_its_character() -> None:
    printed = str(parse_log(NVRTC_LOG)[0]).splitlines()
    assert printed[0].startswith("a/k.cu:2:6: warning: ")
    assert printed[1:] == ["    \tint x;", "    \t    ^"]


def test_ptxas_and_linker_messages_are_read() -> None:
    log = (
        "ptxas application ptx input, line 20; fatal   : Parsing error near 'x': syntax error\n"
        "ptxas fatal   : Unresolved extern function '_Z1ff'\n"
        "ptxas info    : 0 bytes gmem\n"
        "error   : Undefined reference to '_Z1ff' in 'a'\n"
        "ERROR 4: bad input:a\n"
        "b: link error: error: Linking globals named 'f': symbol multiply defined!\n"
        "nvrtc: error: unrecognized option --bogus found\n"
    )
    assert [(d.severity, d.file, d.line, d.message) for d in parse_log(log)] == [
        ("error", "<ptx>", 20, "Parsing error near 'x': syntax error"),
        ("error", "", 0, "Unresolved extern function '_Z1ff'"),
        ("error", "", 0, "Undefined reference to '_Z1ff' in 'a'"),
        ("error", "", 0, "bad input:a"),
        ("error", "b", 0, "Linking globals named 'f': symbol multiply defined!"),
        ("error", "", 0, "unrecognized option --bogus found"),
    ]


def test_empty_log_has_no_messages() -> None:
    assert parse_log("") == ()
