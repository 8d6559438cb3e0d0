"""What NVRTC prints is read, printed to the same machine code, and known to the instruction table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import (
    CallPrototype,
    Generic,
    Initializer,
    Instruction,
    Location,
    PtxModule,
    Scope,
    Statement,
    SymbolRef,
    Variable,
)

Compile = Callable[..., str]
Assemble = Callable[[str, str], dict[str, bytes]]

KERNELS = (Path(__file__).parent / "kernels.cu").read_text()
ARCHES = ("75", "80", "90", "90a", "100", "120")
OPTIONS = {
    "plain": (),
    "lineinfo": ("-lineinfo",),
    "debug": ("-G",),
    "separate": ("-rdc=true",),
    "fast": ("-use_fast_math", "-fmad=false"),
}


def statements(body: Iterable[Statement] | None) -> Iterator[Statement]:
    """Every statement, those of scopes included."""
    for statement in body or ():
        yield statement
        if isinstance(statement, Scope):
            yield from statements(statement.body)


def of_kind(module: PtxModule, kind: type) -> list[Statement]:
    return [s for function in module.functions for s in statements(function.body) if isinstance(s, kind)]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("arch", ["75", "100"])
def test_nvrtc_output_survives_parsing_and_printing(compile_ptx: Compile, arch: str, options: tuple[str, ...]) -> None:
    module = parse(compile_ptx(KERNELS, f"compute_{arch}", *options))
    assert module.target[0] == f"sm_{arch}"
    assert {entry.name for entry in module.entries} >= {"everything", "atomics"}
    assert parse(print_module(module)) == module


@pytest.mark.parametrize("arch", ["75", "90", "100"])
def test_printed_ptx_assembles_to_the_same_sass(compile_ptx: Compile, assemble: Assemble, arch: str) -> None:
    text = compile_ptx(KERNELS, f"compute_{arch}")
    original = assemble(text, f"sm_{arch}")
    assert ".text.everything" in original
    assert assemble(print_module(parse(text)), f"sm_{arch}") == original


@pytest.mark.parametrize("arch", ARCHES)
def test_every_instruction_of_nvrtc_is_in_the_table(compile_ptx: Compile, arch: str) -> None:
    instructions = of_kind(parse(compile_ptx(KERNELS, f"compute_{arch}")), Instruction)
    assert len(instructions) > 500
    assert not {i.name for i in instructions if isinstance(i, Instruction) and lookup(i) is None}


def test_initial_values_and_pointers_to_variables_are_read(compile_ptx: Compile) -> None:
    variables = {v.name: v for v in parse(compile_ptx(KERNELS, "compute_90")).variables}
    assert variables["grid"].initializer is not None
    assert variables["pointer"].initializer == Generic(SymbolRef("grid", 16))
    functions = variables["functions"].initializer
    assert isinstance(functions, Initializer)
    assert [item.name for item in functions.items if isinstance(item, SymbolRef)] == ["_Z3addff", "_Z3mulff"]
    assert variables["managed"].attributes == ("managed",)
    assert (variables["dynamic"].linkage, variables["dynamic"].shape) == ("extern", (0,))


def test_lines_of_the_source_are_read_with_lineinfo(compile_ptx: Compile) -> None:
    locations = of_kind(parse(compile_ptx(KERNELS, "compute_90", "-lineinfo")), Location)
    inlined = [loc for loc in locations if isinstance(loc, Location) and "inlined_at" in loc.rest]
    assert inlined
    assert all(loc.rest.startswith("function_name $L__info_string") for loc in inlined)


def test_dwarf_sections_are_kept_verbatim(compile_ptx: Compile) -> None:
    text = compile_ptx(KERNELS, "compute_90", "-G")
    sections = [item for item in parse(text).items if getattr(item, "name", "") == "section"]
    assert {section.arguments[0] for section in sections} >= {".debug_abbrev", ".debug_info"}  # type: ignore[union-attr]
    assert all(section.arguments[1] in text for section in sections)  # type: ignore[union-attr]


def test_prototypes_of_calls_through_pointers_are_read(compile_ptx: Compile) -> None:
    prototypes = of_kind(parse(compile_ptx(KERNELS, "compute_90")), CallPrototype)
    assert prototypes
    assert all(isinstance(p, CallPrototype) and len(p.parameters) == 2 for p in prototypes)


def test_structure_by_value_is_an_aligned_parameter(compile_ptx: Compile) -> None:
    module = parse(compile_ptx(KERNELS, "compute_90"))
    (entry,) = (f for f in module.entries if f.name == "everything")
    assert (entry.parameters[0].type, entry.parameters[0].align, entry.parameters[0].shape) == ("b8", 8, (24,))
    assert dict(entry.directives)["maxntid"] == ("256", "1", "1")


def refused(text: str) -> bool:
    """Whether ``text`` is a syntax error; any exception of another kind goes through."""
    try:
        parse(text)
    except PtxSyntaxError as error:
        return error.line <= text.count("\n") + 1
    return False


def test_text_cut_off_anywhere_is_a_module_or_a_syntax_error(compile_ptx: Compile) -> None:
    text = compile_ptx(KERNELS, "compute_90", "-lineinfo")
    outcomes = [refused(text[:end]) for end in range(0, len(text), max(len(text) // 150, 1))]
    assert sum(outcomes) > 100


def test_function_variables_keep_their_space(compile_ptx: Compile) -> None:
    variables = of_kind(parse(compile_ptx(KERNELS, "compute_90")), Variable)
    assert {v.space for v in variables if isinstance(v, Variable)} >= {"local", "param"}
