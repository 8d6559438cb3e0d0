"""An instruction does what others do together."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from instructions.alike import Pair, inputs, kernel_text, pairs
from instructions.table import COUNT

_HEAD = ".version 9.2\n.target {}\n.address_size 64\n"
_ONLY_120 = re.compile(r"[us]8x4|(add|sub)\.sat\.(u32|[us]16x2)")
_IN_ONE = 24
_SHARDS = 8


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_instruction_equals_a_combination_of_others(shard: int, cpu: Device) -> None:
    of_120 = tuple(pair for pair in pairs() if _ONLY_120.search(pair.text))
    others = tuple(pair for pair in pairs() if pair not in of_120)
    for target, chosen in (("sm_120f", of_120), ("sm_100a", others)):
        wrong = _compared(cpu, target, chosen[shard::_SHARDS])
        assert not wrong, "\n".join(wrong)


def _compared(cpu: Device, target: str, chosen: tuple[Pair, ...]) -> list[str]:
    """Run pairs, and tell which of them differ."""
    kernels = [chosen[k : k + _IN_ONE] for k in range(0, len(chosen), _IN_ONE)]
    text = "\n".join(kernel_text(f"k{n}", each) for n, each in enumerate(kernels))
    module = load(Artifact.of(_HEAD.format(target) + text), cpu)
    values, wrong = cpu.array(inputs()), []
    for n, each in enumerate(kernels):
        out = cpu.array(np.zeros((len(each), 2, COUNT), np.uint64))
        module[f"k{n}"][COUNT // 128, 128](values, out)
        for pair, (ours, other) in zip(each, out.numpy(), strict=True):
            if (ours != other).any():
                at = int(np.flatnonzero(ours != other)[0])
                wrong.append(
                    f"{pair.text} {int(ours[at]):#x} and not {int(other[at]):#x}, {(ours != other).sum()} differ"
                )
    return wrong
