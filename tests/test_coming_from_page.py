"""What is written for cujit on the page for those who come from other tools runs; what is written for them compiles.

Python of theirs is compiled, C++ goes through NVRTC with stand-ins for what the tool declares, and cuda.core, which is
here, compiles as the page says. The rest of theirs needs the tool and a GPU.
"""

from __future__ import annotations

import ast
import importlib
import re
from types import SimpleNamespace

import pytest

import cujit
from cujit.errors import CompileError
from pages import Page

PAGE = Page("coming-from.md")
SOURCE = str(PAGE.run("")["SOURCE"])

STANDARD = """
namespace std {
template <typename T> struct vector { vector(); template <typename... A> vector(A...); };
struct string { string(); string(const char *); };
template <typename... T> int make_tuple(T...);
}
"""
STAND_INS = {
    "torch: load_inline": "namespace torch { struct Tensor { template <typename T> T *data_ptr(); long numel(); }; }\n",
    "MLX: the JIT module of its CUDA back end": STANDARD
    + """
typedef void *CUfunction;
struct Stream { int device; } s;
const char *const source = "";
namespace cu {
struct JitModule { template <typename F> int get_kernel(const std::string &, F); };
template <typename F> JitModule &get_jit_module(int, const std::string &, F);
}
""",
    "jitify": STANDARD
    + """
const char *const source = "";
float *x, *y;
int n, grid, block;
namespace jitify2 {
struct Program {
    Program(const char *, const std::string &);
    Program *operator->();
    Program preprocess(std::vector<std::string>), get_kernel(const char *), configure(int, int);
    template <typename... A> void launch(A...);
};
}
""",
}
"""What C++ of another tool is compiled after, by section."""


def _cpp() -> dict[str, str]:
    """Give the C++ of other tools by section; what is launched there is named, since NVRTC takes no launches."""
    found = {title: f"void shown() {{\n{code}}}\n" for title, code in PAGE.snippets("cpp")}
    inline = next(code for title, code in PAGE.snippets("py") if title == "torch: load_inline")
    (host,) = re.findall(r'SOURCE \+ """(.*?)"""', inline, re.DOTALL)
    launches = re.sub(r"(\w+<\w+>)<<<.*?>>>\(", r"(void)\1, given(", host)
    assert launches != host
    return {**found, "torch: load_inline": f"template <typename... A> void given(A...);\n{SOURCE}{launches}"}


def _compiled(before: str, code: str) -> None:
    cujit.compile(before + code, arch="compute_90", default_device=True, cache=False)


@pytest.mark.parametrize("title", STAND_INS)
def test_cpp_snippet_of_the_other_tool_compiles(title: str) -> None:
    _compiled(STAND_INS[title], _cpp()[title])
    with pytest.raises(CompileError):
        _compiled(STAND_INS[title], _cpp()[title].replace(";", "", 1))


def test_all_cpp_snippets_are_compiled() -> None:
    assert {*_cpp()} == {*STAND_INS}


@pytest.mark.parametrize("code", [pytest.param(code, id=title) for title, code in PAGE.snippets("py")])
def test_python_snippet_parses_and_names_the_kernel(code: str) -> None:
    compile(code, PAGE.name, "exec")
    assert any(isinstance(node, ast.Name) and node.id.startswith("axpy") for node in ast.walk(ast.parse(code))) or (
        "module.axpy_(" in code
    )


def test_cuda_core_compiles_as_the_page_says() -> None:
    core = importlib.import_module("cuda.core")
    code = next(code for title, code in PAGE.snippets("py") if title == "cuda.core")
    names: dict[str, object] = {
        "SOURCE": SOURCE,
        "dev": SimpleNamespace(arch="90"),
        **{name: getattr(core, name) for name in ("Device", "LaunchConfig", "Program", "ProgramOptions", "launch")},
    }
    made = next(line for line in code.splitlines() if line.startswith("program = "))
    exec(made, names)
    got = next(line for line in code.splitlines() if "program.compile(" in line)
    exec("image = " + got.partition(" = ")[2].partition(".get_kernel(")[0], names)
    assert b"_Z4axpyIfEvT_PKS0_PS0_i" in names["image"].code  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", PAGE.each())
def test_cujit_snippet_runs(code: str) -> None:
    PAGE.run(code)


def test_every_tool_is_shown_next_to_cujit() -> None:
    assert PAGE.has_code_in_every_section()
    for title, text in PAGE.sections.items():
        assert "```py\n" in text or "```cpp\n" in text, title
        assert "\n* " in text, title
