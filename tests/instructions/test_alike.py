"""An instruction does what others do together."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.base import Device
from cujit.kernel import load
from instructions.alike import inputs, kernel_text, pairs
from instructions.table import COUNT

_HEAD = ".version 9.2\n.target sm_100a\n.address_size 64\n"
_IN_ONE = 24
_SHARDS = 8


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_an_instruction_does_what_others_do_together(shard: int, cpu: Device) -> None:
    chosen = pairs()[shard::_SHARDS]
    kernels = [chosen[k : k + _IN_ONE] for k in range(0, len(chosen), _IN_ONE)]
    module = load(Artifact.of(_HEAD + "\n".join(kernel_text(f"k{n}", each) for n, each in enumerate(kernels))), cpu)
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
    assert not wrong, "\n".join(wrong)
