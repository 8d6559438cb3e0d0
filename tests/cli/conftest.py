"""A runner of the command line in a directory of its own, and a kernel to work with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from cujit.cli import main

Cujit: TypeAlias = Callable[..., Result]

AXPY = """\
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


@pytest.fixture
def cujit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cujit:
    """Run ``cujit`` with the arguments; an exception that is no error of cujit comes through."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return run


@pytest.fixture
def axpy(tmp_path: Path) -> Path:
    path = tmp_path / "axpy.cu"
    path.write_text(AXPY)
    return path
