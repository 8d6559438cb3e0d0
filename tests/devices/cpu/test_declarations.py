"""Declarations are taken as assemblers take them, and the limits of memory are theirs."""

from __future__ import annotations

import contextlib
import json

import pytest

from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError, UnsupportedError
from cujit.loading import load
from raising import raises
from toolkits.declared import GOLDEN, texts

_GOLDEN = json.loads(GOLDEN.read_text())
_TEXTS = dict(texts())


@pytest.mark.parametrize("shard", range(4))
@pytest.mark.parametrize("verdict", ["taken", "refused"])
def test_declaration_is_accepted_as_by_an_assembler(verdict: str, shard: int, cpu: Device) -> None:
    wrong = []
    for name in _GOLDEN[verdict][shard::4]:
        try:
            with contextlib.suppress(UnsupportedError):  # it is PTX, which the CPU device does not execute
                load(_TEXTS[name].encode(), cpu)
            found = "taken"
        except PtxSyntaxError:
            found = "refused"
        if found != verdict:
            wrong.append(name)
    assert wrong == []


def test_golden_has_enough_of_both() -> None:
    assert len(_GOLDEN["taken"]) > 80
    assert len(_GOLDEN["refused"]) > 800


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("module sm_90: .const .b8 x[65537];", ("65,537", "65,536")),
        (
            "function sm_90: .shared .b8 x[49153];",
            ("49,153", "sm_90"),
        ),
        ("entry sm_90: .param .b8 x[32765]", ("32,765", "32,764")),
        ("module sm_90: .shared .b32 x[];", (".shared .b32 x[]",)),
        ("function sm_90: .visible .global .b32 x;", (".b32 x",)),
    ],
)
def test_error_names_the_exceeded_limit(name: str, message: tuple[str, ...], cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", *message):
        load(_TEXTS[name].encode(), cpu)


def test_array_without_a_size_has_the_size_of_its_value(cpu: Device) -> None:
    text = _TEXTS["module sm_90: .global .b32 x[] = {1, 2};"].replace(".global .b32", ".visible .global .b32")
    assert load(text.encode(), cpu).globals["x"].nbytes == 8
