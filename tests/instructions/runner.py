"""Runs rows of the instruction table on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.base import Device
from cujit.kernel import load
from instructions.table import COUNT, ROWS, Row, inputs_of, kernel_of, module_text, result_dtype

Array = npt.NDArray[Any]
_BATCH = 32


def run_rows(device: Device, rows: list[tuple[int, Row]]) -> dict[int, Array]:
    """Run rows (numbered as in ``ROWS``), some to a module; return what each computed."""
    results: dict[int, Array] = {}
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        module = load(Artifact.of(module_text(batch)), device)
        for index, row in batch:
            out = device.array(np.zeros(COUNT, result_dtype(row)))
            inputs = [device.array(a) for a in inputs_of(row)]
            module[kernel_of(index)][COUNT // 128, 128](out, *inputs, COUNT)
            results[index] = out.numpy()
    return results


def every_row() -> list[tuple[int, Row]]:
    """Number all rows."""
    return list(enumerate(ROWS))


def key_of(row: Row) -> str:
    """Name of a row in the golden file: the mnemonic and its immediates."""
    return "_".join([row.name, *(k[1:] for k in row.sources if k.startswith("="))])
