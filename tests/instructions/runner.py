"""Runs rows of the instruction table on a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from instructions.table import COUNT, Row, memory_of, module_text, results_of

Array = npt.NDArray[Any]
_BATCH = 32
"""Rows in one kernel: to compile a kernel costs as much as some ten instructions in it do."""


def run_rows(device: Device, rows: Iterable[Row], *, odd: bool = False) -> dict[str, Array]:
    """Run rows, some to a kernel; return what each computed by ``key_of``, with ``odd`` in odd lanes alone."""
    results: dict[str, Array] = {}
    for batch in _batches(list(rows)):
        inputs, out = map(device.array, memory_of(batch))
        load(Artifact.of(module_text(batch, odd=odd)), device)["k"][COUNT // 128, 128](inputs, out, COUNT)
        results |= results_of(batch, np.asarray(out.numpy()))
    return results


def _batches(rows: list[Row]) -> Iterator[list[Row]]:
    """Cut rows into those of one target, and not too many."""
    for target in dict.fromkeys(row.target for row in rows):
        same = [row for row in rows if row.target == target]
        for start in range(0, len(same), _BATCH):
            yield same[start : start + _BATCH]
