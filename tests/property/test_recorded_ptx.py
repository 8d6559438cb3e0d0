"""Random programs in PTX compute on the CPU device, bit for bit, what an H200 computed."""

from __future__ import annotations

import json
import re
import zlib

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.machine.devices import cpu
from property.effort import times
from property.ptx_forms import FORMS
from property.ptx_more_forms import MORE
from property.record_ptx import GOLDEN, checksums, form_results, program, results, text_of

RECORDED = json.loads(GOLDEN.read_text())
GPU, FORMS_RECORDED = RECORDED.pop("source"), RECORDED.pop("forms")
DIFFER = {
    "16": "ptxas 13.0 inserts nothing by `bfi.b32 d, 31, a, 31, 32`; ptxas 13.5 does",
    "16c": "as without contraction",
    "24": "the last instruction of a loop that is entered at several places has no effect in three threads",
    "24c": "as without contraction",
    "32": "ptxas converts the result of `bfe.s32 d, a, 0, 8` as a number with a sign, though the `cvt` has .u32",
    "320": "a guarded instruction before a branch, `dp4a` or `mad`, takes effect in two threads without the guard",
    "438c": "ptxas 13.0 stores the byte of another register",
}
"""Programs whose results no rule of PTX gives, and what is known of the machine code that ptxas 13.0 made of them."""
FORMS_DIFFER = re.compile(
    r"bfi\.b32 d, a, b, ((1|30), (32|33)|31, 32);"  # ptxas 13.0 inserts nothing; ptxas 13.5 does by 31, 32
    r"|bfe\.s32 e, a, (\d+, 8|0, 16|16, 16);.* cvt\.\w+\.f\d+\.u32"  # ptxas converts the field with a sign
    r"|mul\.f32 y, a, b; @P bra L;"  # ptxas scales the product of another block
)
"""The same of forms."""
_FOUND = ("11", "140", "182c", "214", "137c")
"""Programs that found a fault each."""
_TOGETHER = 20
_NAMES = [name for name in RECORDED if name not in DIFFER]
_SAMPLE = _NAMES if times(1) > 1 else list(dict.fromkeys((*_FOUND, *_NAMES[:: len(_NAMES) // 55])))


def _found(name: str) -> list[int]:
    """Compute what the golden has of a program; the last letter says whether ptxas may contract it."""
    contracts = name.endswith("c")
    seed = int(name.rstrip("c"))
    device: Device = cpu(1, contract="ptxas" if contracts else "off")
    return checksums(results(device, seed, text_of(seed, contracts=contracts)))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first", range(0, len(_SAMPLE), _TOGETHER))
def test_cpu_device_matches_recorded_gpu_results(first: int) -> None:
    names = _SAMPLE[first : first + _TOGETHER]
    differ = {name: np.flatnonzero(np.not_equal(_found(name), RECORDED[name])).tolist() for name in names}
    assert not any(differ.values()), f"words of a thread that differ from those of {GPU}: {differ}"


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", DIFFER)
def test_differing_programs_are_known(name: str) -> None:
    assert _found(name) != RECORDED[name]


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first", range(0, len(FORMS), 5 * _TOGETHER))
def test_cpu_device_matches_recorded_short_forms(first: int) -> None:
    device = cpu(1, contract="ptxas")
    wrong = {
        text
        for k, text in enumerate(FORMS[first : first + 5 * _TOGETHER], first)
        if zlib.crc32(form_results(device, k).tobytes()) != FORMS_RECORDED[text]
    }
    assert wrong == {text for text in FORMS[first : first + 5 * _TOGETHER] if FORMS_DIFFER.match(text)}


def test_most_programs_are_recorded_with_and_without_contraction() -> None:
    apart = [name for name in RECORDED if not name.endswith("c")]
    assert (len(apart), len(RECORDED) - len(apart)) == (398, 370)
    assert sum(program(int(name)).forms is MORE for name in apart) == 99
