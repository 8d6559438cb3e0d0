"""The option table: checking, rendering, and what the real tools take."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.table import Option, OptionType
from cujit.compiler.options.values import OPTIONS, Options, Tool
from cujit.errors import OptionError, ToolError
from cujit.program import compile, link
from cujit.toolchain.toolset import Toolchain
from raising import raises


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda o: o.name)
def test_every_option_is_explained_and_accepted_by_a_tool(option: Option) -> None:
    assert option.doc.endswith(".")
    assert any(isinstance(option.spelling(tool), Spelling) for tool in Tool)


def sample(option: Option) -> object:
    if option.choices:
        return option.choices[-1]
    return {
        OptionType.BOOL: True,
        OptionType.INT: max(option.low or 0, 1),
        OptionType.TEXT: "sample",
        OptionType.INTS: [177],
        OptionType.TEXTS: ["-v"] if option.name == "ptxas_options" else ["sample"],
        OptionType.DEFINES: {"SAMPLE": 1},
    }[option.type]


def one(name: str) -> Options:
    return Options.of({name: sample(OPTIONS[name])}, {})


# These read or write files, or want an architecture of their own. Others change all that this process compiles later:
# test_apart.py asks for them in a process apart.
_ELSEWHERE = {"pre_include", "use_pch", "create_pch", "float128", "pch", "pch_dir"}


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if n not in _ELSEWHERE and not o.isolated])
def test_nvrtc_accepts_every_spelling(toolchain: Toolchain, name: str) -> None:
    if not isinstance(OPTIONS[name].nvrtc, Spelling):
        pytest.skip("not an option of NVRTC")
    if name == "std" and toolchain.nvrtc.version < (13, 3):
        pytest.skip("C++23 came with 13.3")
    if toolchain.nvrtc.version < (OPTIONS[name].since or (0, 0)):
        with raises(OptionError, "option-rejected", name):
            compile("__global__ void k() {}", to="ptx", arch="compute_90", options=one(name))
        with pytest.raises(ToolError):
            compile_with(toolchain, one(name))
        return
    compile_with(toolchain, one(name))


def compile_with(toolchain: Toolchain, options: Options) -> None:
    """Give options to NVRTC itself."""
    arguments = ["-arch=compute_90", *options.render(Tool.NVRTC)]
    with toolchain.nvrtc.program(b"__global__ void k() {}", b"/cujit-test/k.cu") as program:
        program.compile([a.encode() for a in arguments])


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if isinstance(o.nvjitlink, Spelling)])
def test_nvjitlink_accepts_every_spelling(toolchain: Toolchain, name: str) -> None:
    rendered = one(name).render(Tool.NVJITLINK)
    if toolchain.nvjitlink.version < (OPTIONS[name].since or (0, 0)):
        part = compile("__global__ void k() {}", to="ltoir", arch="lto_90")
        with raises(OptionError, "option-rejected", name):
            link([part], arch="sm_90", options=one(name))
        return
    try:
        toolchain.nvjitlink.linker(["-arch=sm_90", "-lto", *rendered]).close()
    except ToolError as e:
        pytest.fail(str(e))


def test_unspecified_options_are_not_rendered() -> None:
    assert Options().render(Tool.NVRTC) == []
    assert Options(fmad=None, debug=None).render(Tool.NVRTC) == []


def test_false_flag_equals_none_but_a_switch_is_rendered() -> None:
    assert Options(debug=False).render(Tool.NVRTC) == []
    assert Options(fmad=False).render(Tool.NVRTC) == ["--fmad=false"]
    assert Options(fmad=False).render(Tool.NVJITLINK) == ["-fma=0"]


def test_rendering_order_is_that_of_the_table() -> None:
    one, other = Options(lineinfo=True, std="c++20"), Options(std="c++20", lineinfo=True)
    assert one.render(Tool.NVRTC) == other.render(Tool.NVRTC) == ["--std=c++20", "--generate-line-info"]


def test_lists_and_macros_are_rendered() -> None:
    options = Options(
        define={"N": 4, "ON": None, "YES": True}, diag_suppress=[177, 550], ptxas_options="-v", extra="--x"
    )
    assert options.render(Tool.NVRTC) == [
        "--define-macro=N=4",
        "--define-macro=ON",
        "--define-macro=YES=1",
        "--ptxas-options=-v",
        "--diag-suppress=177,550",
        "--x",
    ]


def test_fast_math_is_expanded_and_yields_to_explicit_options() -> None:
    assert Options(use_fast_math=True, ftz=False).render(Tool.NVJITLINK) == [
        "-ftz=0",
        "-prec-div=0",
        "-prec-sqrt=0",
        "-fma=1",
    ]


def test_option_that_a_tool_lacks_is_rejected_with_a_reason() -> None:
    with raises(OptionError, "option-rejected", "C++"):
        Options(std="c++17").render(Tool.NVJITLINK)
    with raises(OptionError, "option-rejected", "kernels_used"):
        Options(kernels_used=["k"]).render(Tool.NVRTC)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("linfo", "lineinfo"), ("device-debug", "debug"), ("-use_fast_math", "use_fast_math"), ("fma", "fmad")],
)
def test_unknown_option_names_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.of({wrong: True}, {})
    assert f"unknown option {wrong!r}" in str(caught.value)
    assert meant in (caught.value.help or "")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"debug": 1}, "option debug is 1, expected bool"),
        ({"debug": "yes"}, "expected bool"),
        ({"maxrregcount": 9000}, "expected an int from 16 to 255"),
        ({"maxrregcount": True}, "expected an int from 16 to 255"),
        ({"maxrregcount": 32.0}, "expected an int"),
        ({"std": "c++18"}, "expected one of c++03"),
        ({"std": 17}, "expected str"),
        ({"split_compile": -1}, "expected an int of at least 0"),
        ({"define": ["A"]}, "expected dict"),
        ({"define": {"A=B": 1}}, "'A=B' is not a valid macro name"),
        ({"define": {"A": 1.5}}, "the value of A is 1.5, expected a str of one line, an int or None"),
        ({"define": {"A": [1]}}, "the value of A is"),
        ({"define": {"A": b"1"}}, "the value of A is"),
        ({"define": {"A": "1\n2"}}, "the value of A is"),
        ({"define": {"A B": 1}}, "'A B' is not a valid macro name"),
        ({"define": {"1A": 1}}, "'1A' is not a valid macro name"),
        ({"define": {1: 1}}, "1 is not a valid macro name"),
        ({"opt_level": np.array([1, 2])}, "expected an int from 0 to 3"),
        ({"random_seed": "\ud800"}, "expected str"),
        ({1: 2}, "1 is not an option name"),
        ({"diag_suppress": ["177"]}, "expected list of int"),
        ({"undef": "A\0B"}, "expected list of non-blank str"),
        ({"extra": 3}, "extra is 3, expected a list of non-blank str"),
    ],
)
def test_wrong_value_names_the_expected_type(said: dict[str, object], complaint: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.of(said, {})
    assert complaint in str(caught.value)


def test_keywords_win_over_the_options_argument() -> None:
    joined = Options.of({"debug": True, "extra": ["--a"]}, {"debug": False, "lineinfo": True})
    assert dict(joined) == {"debug": False, "lineinfo": True}
    assert joined.extra == ("--a",)
    assert Options.of(joined, {"ftz": True}) == Options(debug=False, lineinfo=True, ftz=True, extra=["--a"])


def test_options_that_are_not_a_mapping_are_refused() -> None:
    with raises(OptionError, "option", "list"):
        Options.of(["-G"], {})  # type: ignore[arg-type]


def test_equal_options_have_equal_hashes() -> None:
    assert hash(Options(define={"A": 1}, ftz=True)) == hash(Options(ftz=True, define={"A": 1}))
