"""Runs rows of the instruction table on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from instructions.table import COUNT, Row, all_rows, inputs_of, kernel_of, module_text, result_dtype

Array = npt.NDArray[Any]
_BATCH = 32


def run_rows(
    device: Device, rows: list[tuple[int, Row]], text_of: Callable[[list[tuple[int, Row]]], str] = module_text
) -> dict[int, Array]:
    """Run rows (numbered as in ``all_rows``), some to a module; return what each computed."""
    results: dict[int, Array] = {}
    for batch in _batches(rows):
        module = load(Artifact.of(text_of(batch)), device)
        for index, row in batch:
            out = device.array(np.zeros(COUNT, result_dtype(row)))
            inputs = [device.array(a) for a in inputs_of(row)]
            module[kernel_of(index)][COUNT // 128, 128](out, *inputs, COUNT)
            results[index] = out.numpy()
    return results


def _batches(rows: list[tuple[int, Row]]) -> Iterator[list[tuple[int, Row]]]:
    """Cut rows into those of one target, and not too many."""
    for target in dict.fromkeys(row.target for _, row in rows):
        same = [(index, row) for index, row in rows if row.target == target]
        for start in range(0, len(same), _BATCH):
            yield same[start : start + _BATCH]


def every_row() -> list[tuple[int, Row]]:
    """Number all rows."""
    return list(enumerate(all_rows()))
