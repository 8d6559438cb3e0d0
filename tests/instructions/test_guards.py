"""Each instruction under a guard: where it holds it does what it does without, and where it does not, nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from cujit.arch import Arch
from cujit.devices.device import Device
from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import Instruction, Label
from instructions import test_instructions
from instructions.rewriting import guarded, instructions_in
from instructions.runner import run_rows
from instructions.scene import GOLDENS, difference, every_scene, golden_of, run_scene
from instructions.table import all_rows, key_of
from sweeps import part

pytestmark = pytest.mark.verbatim  # it puts guards before instructions itself
Array = npt.NDArray[Any]


class _Content(NamedTuple):
    """The forms of the instruction table that a scene has, these with their types, and whether nothing jumps in it.

    ``length`` is how many instructions it has.
    """

    forms: frozenset[object]
    typed: frozenset[object]
    is_straight: bool
    length: int

    @classmethod
    def of(cls, text: str) -> _Content:
        module = parse(text)
        every = list(instructions_in(module))
        found = {one: row for one in every if (row := lookup(one)) is not None}
        typed = {
            (row.form, tuple(m for m in one.modifiers if any(m in place for place in row.types)))
            for one, row in found.items()
        }
        labels = (isinstance(s, Label) for s in module.entries[0].body or ())
        return cls(frozenset(row.form for row in found.values()), frozenset(typed), not any(labels), len(every))


def _form(name: str) -> str:
    """The form of the instruction table that an instruction is of, by its name with modifiers."""
    opcode, *modifiers = name.split(".")
    row = lookup(Instruction(opcode, tuple(modifiers)))
    assert row is not None, name
    return row.form


def _covering(forms: Mapping[str, frozenset[object]]) -> list[str]:
    """Choose scenes that have all forms together, again and again the one that adds most for its length."""
    left, chosen = frozenset().union(*forms.values()), []
    while left:
        best = max(forms, key=lambda name: len(forms[name] & left) / _CONTENTS[name].length)
        chosen.append(best)
        left -= forms[best]
    return chosen


ROWS = {key_of(row): row for row in all_rows()}
CHOSEN_ROWS = list({_form(row.name): name for name, row in ROWS.items()}.values())
_CONTENTS = {scene.name: _Content.of(scene.ptx) for scene in every_scene().values()}
CHOSEN_SCENES = _covering({name: content.typed for name, content in _CONTENTS.items()})
FORMS_OF_SCENES = _covering({name: content.forms for name, content in _CONTENTS.items()})
"""Fewer than the chosen ones: a guard that all threads agree on is a jump around whatever stands behind it."""


_BATCH = 128
# What a GPU's compiler makes otherwise under a guard (ptxas 13.0 and 13.5, H200): it leaves guards of testp out, and
# changes the sign alone of a NaN; it guards the comparison of a set, and not the conversion of its result.
_OTHERWISE = re.compile(r"testp\.|(abs|neg)\.f32|set\..*\.(f32\.\w+|\w+16)$")


@pytest.fixture(scope="module")
def goldens() -> dict[str, Array]:
    """What a GPU left, by scene and array."""
    with np.load(GOLDENS) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first", range(0, len(CHOSEN_ROWS), _BATCH))
def test_operation_runs_in_the_lanes_of_its_guard(first: int, device: Device) -> None:
    rows = [ROWS[name] for name in CHOSEN_ROWS[first : first + _BATCH]]
    rows = [row for row in rows if not _OTHERWISE.match(row.name)]
    with np.load(test_instructions.GOLDENS) as goldens:
        expected = {key: goldens[key] for key in map(key_of, rows) if key in goldens}
    rows = [row for row in rows if key_of(row) in expected]
    results = run_rows(device, rows, odd=True)
    odd = np.arange(512) % 2 == 1
    found = [
        test_instructions.difference(row, results[key_of(row)], np.where(odd, expected[key_of(row)], 0)) for row in rows
    ]
    assert not any(found), "\n".join(line for line in found if line)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("name", "guard"),
    part([(name, guard) for name in FORMS_OF_SCENES for guard in ("all", "all, known to be alike")], 4),
)
def test_true_guard_changes_nothing(name: str, guard: str, device: Device, goldens: dict[str, Array]) -> None:
    scene = every_scene()[name]
    expected = golden_of(scene, goldens)
    if expected is None or (device.is_gpu and Arch.parse(scene.target).number > device.arch.number):
        pytest.skip("no GPU has recorded this scene")
    got = run_scene(device, replace(scene, ptx=guarded(scene.ptx, guard)))
    found = difference(scene, got, expected)
    assert not found, found


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("name", "guard"),
    part(
        [
            *((name, "none") for name in CHOSEN_SCENES if _CONTENTS[name].is_straight),
            *((name, "none, known to be alike") for name in FORMS_OF_SCENES if _CONTENTS[name].is_straight),
        ],
        4,
    ),
)
def test_false_guard_leaves_all_lanes_unchanged(name: str, guard: str, device: Device) -> None:
    scene = every_scene()[name]
    if device.is_gpu and Arch.parse(scene.target).number > device.arch.number:
        pytest.skip(f"{scene.target} does not run on {device}")
    got = run_scene(device, replace(scene, ptx=guarded(scene.ptx, guard)))
    found = difference(scene, got, list(scene.arrays))
    assert not found, found
