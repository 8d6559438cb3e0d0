"""What PTX tells of parameters and variables."""

from __future__ import annotations

import pytest

from cujit.formats.ptx.parameters import bytes_of, signature_of_entry
from cujit.formats.ptx.parser import parse
from cujit.signature import Parameter, ParameterClass

HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".u8 p", Parameter(ParameterClass.BITS, 1, 1, ".u8")),
        (".s32 p", Parameter(ParameterClass.SIGNED, 4, 4, ".s32")),
        (".f64 p", Parameter(ParameterClass.FLOAT, 8, 8, ".f64")),
        (".u64 p", Parameter(ParameterClass.BITS, 8, 8, ".u64")),
        (".u64 .ptr .global .align 4 p", Parameter(ParameterClass.POINTER, 8, 8, ".u64")),
        (".align 16 .b8 p[48]", Parameter(ParameterClass.AGGREGATE, 48, 16, ".b8[48]")),
        (".texref p", Parameter(ParameterClass.BITS, 8, 8, ".texref")),
    ],
)
def test_parameter_has_its_size_and_type(text: str, expected: Parameter) -> None:
    (entry,) = parse(f"{HEAD}.entry k (.param {text}) {{ ret; }}").entries
    assert signature_of_entry(entry).parameters == (expected,)


@pytest.mark.parametrize(
    ("text", "size"),
    [(".b32 v", 4), (".v4 .f32 v", 16), (".b8 v[3][5]", 15), (".b8 v[]", 0), (".b128 v[2]", 32), (".f16 v", 2)],
)
def test_variable_has_its_bytes(text: str, size: int) -> None:
    (variable,) = parse(f"{HEAD}.extern .global {text};").variables
    assert bytes_of(variable) == size
