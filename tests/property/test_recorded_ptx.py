"""Random programs in PTX compute on the CPU device, bit for bit, what an H200 computed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.machine.devices import cpu
from property.effort import times
from property.ptx_more_forms import MORE
from property.record_ptx import GOLDEN, checksums, program, results, text_of

RECORDED: dict[str, list[int]] = json.loads(GOLDEN.read_text())
GPU = RECORDED.pop("source")
DIFFER = {
    "16": "ptxas 13.0 inserts nothing by `bfi.b32 d, 31, a, 31, 32`; ptxas 13.5 does",
    "16c": "as without contraction",
    "24": "ptxas loses `dp4a` in a loop that is entered at several places",
    "24c": "as without contraction",
    "32": "ptxas converts the result of `bfe.s32 d, a, 0, 8` as a number with a sign, though the `cvt` has .u32",
    "320": "ptxas takes the other operand of a guarded `dp4a`",
}
"""Programs whose results no rule of PTX gives: ptxas makes other machine code of them."""
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
def test_the_cpu_device_computes_what_a_gpu_computed(first: int) -> None:
    names = _SAMPLE[first : first + _TOGETHER]
    differ = {name: np.flatnonzero(np.not_equal(_found(name), RECORDED[name])).tolist() for name in names}
    assert not any(differ.values()), f"words of a thread that differ from those of {GPU}: {differ}"


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", DIFFER)
def test_the_programs_that_differ_are_known(name: str) -> None:
    assert _found(name) != RECORDED[name]


def test_most_programs_are_recorded_with_and_without_contraction() -> None:
    apart = [name for name in RECORDED if not name.endswith("c")]
    assert (len(apart), len(RECORDED) - len(apart)) == (385, 199)
    assert sum(program(int(name)).forms is MORE for name in apart) == 96
