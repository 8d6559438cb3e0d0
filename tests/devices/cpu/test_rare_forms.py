"""Code is made of forms that the other tests did not come to in two whole runs with the examples of CI."""

from __future__ import annotations

import itertools

import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.syntax import Instruction
from cujit.loading import load
from toolkits.minimal import minimal, module_of

_FORMS = (
    *(f"tex 1d v4 {types}" for types in ("s32 s32", "s32 f32", "u32 f32")),
    "tld4 r 2d v4 u32 f32",
    *(
        f"mma sp::ordered_metadata sync aligned m16n8k64 row col f32 {types} f32"
        for types in ("e4m3 e4m3", "e5m2 e4m3", "e5m2 e5m2")
    ),
    *(
        f"wgmma mma_async {sparse} {d} {a} {b}"
        for sparse, d, a, b in itertools.product(
            ("sync aligned m64n8k32", "sp sync aligned m64n8k64"), ("f16", "f32"), ("e4m3", "e5m2"), ("e4m3", "e5m2")
        )
    ),
    "wgmma mma_async sync aligned m64n8k16 f16 f16 f16",
    "wgmma mma_async sp sync aligned m64n8k32 f16 f16 f16",
)


@pytest.mark.parametrize("form", _FORMS)
def test_form_is_compiled(form: str, cpu: Device) -> None:
    opcode, *modifiers = form.split()
    assert lookup(Instruction(opcode, tuple(modifiers), (), None, 0)) is not None
    statement = minimal(opcode, tuple(modifiers))
    assert statement is not None
    text = module_of([statement], "9.0", "sm_90a")
    module = load(Artifact.of(text), cpu)
    (name,) = module
    module[name].compile(128)
