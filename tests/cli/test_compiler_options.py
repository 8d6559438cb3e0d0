from __future__ import annotations

import pytest

from cujit.compiler.options.values import read_options
from cujit.errors import OptionError
from cujit.program import Options


@pytest.mark.parametrize(
    ("said", "options"),
    [
        (["lineinfo"], Options(lineinfo=True)),
        (["fmad=off"], Options(fmad=False)),
        (["prec-div=TRUE"], Options(prec_div=True)),
        (["std=c++20"], Options(std="c++20")),
        (["maxrregcount=32"], Options(maxrregcount=32)),
        (["diag_suppress=177,550", "diag_suppress=1"], Options(diag_suppress=[177, 550, 1])),
        (["include=a", "include=b,c"], Options(include=["a", "b,c"])),
        (["define=A=1=2", "define=B"], Options(define={"A": "1=2", "B": None})),
        (["extra=--a=b", "extra=-c"], Options(extra=["--a=b", "-c"])),
        (["opt_level=0", "opt_level=3"], Options(opt_level=3)),
    ],
)
def test_option_value_is_read_by_its_type(said: list[str], options: Options) -> None:
    assert read_options(said) == options


def test_short_forms_are_the_options_of_the_table() -> None:
    assert read_options([], ["a", "b"], ["N=4", "M"]) == Options(include=["a", "b"], define={"N": "4", "M": None})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("fmad=maybe", "option fmad is 'maybe'"),
        ("maxrregcount=many", "option maxrregcount is 'many'"),
        ("maxrregcount", "option maxrregcount is ''"),
        ("maxrregcount=1", "an int from 16 to 255"),
        ("std", "option std is ''"),
        ("std=c++99", "expected one of c\\+\\+03"),
        ("diag_warn=x", "option diag_warn"),
        ("include", "option include"),
        ("line_info", "did you mean lineinfo"),
        ("=x", "unknown option ''"),
    ],
)
def test_wrong_option_is_refused_by_name(said: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options([said])
    caught.match(message)
