"""What needs a kernel of Jupyter's of its own: a process that nothing was loaded in yet."""

from __future__ import annotations

from typing import Any

import pytest

from notebooks import executed

pytest.importorskip("nbclient")


def outputs(*cells: str) -> list[list[dict[str, Any]]]:
    """Run cells in a new kernel, and give the outputs of each."""
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    book = {
        "cells": [{**code, "id": f"cell-{n}", "source": cell} for n, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return [cell["outputs"] for cell in executed(book)["cells"]]


def test_emulator_starts_in_a_kernel_without_opening_libraries() -> None:
    *_, driver, copied, value = outputs(
        "%load_ext cujit",
        "import cujit\ncujit.emulate()",
        "from cuda.bindings import driver\ndriver.cuInit(0)[0].name",
        "%%cuda\n__global__ void one(int *x) { *x = 1; }",
        "x = one.device.zeros(1, 'int32')\none[1, 1](x)\nint(x.numpy()[0])",
    )
    assert driver[0]["data"]["text/plain"] == ["'CUDA_SUCCESS'"]
    assert copied[0]["text"] == ["one: void one(int*)\n"]
    assert value[0]["data"]["text/plain"] == ["1"]
