"""torch and JAX where they are installed, and the places that their arrays can be in. ``make frameworks`` has both."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU's memory is torch's, too


@pytest.fixture(scope="session")
def torch() -> Any:
    """The package torch."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def jax() -> Any:
    """The package jax."""
    return pytest.importorskip("jax")


_PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=_PLACES)
def place(request: pytest.FixtureRequest, torch: Any) -> str:
    """Where tensors lie."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    return str(request.param)


@pytest.fixture(params=_PLACES)
def platform(request: pytest.FixtureRequest, jax: Any) -> Any:
    """Where arrays of JAX lie, as long as a test runs."""
    try:
        device = jax.devices(request.param)[0]
    except RuntimeError:
        pytest.skip("JAX has no GPU here")
    with jax.default_device(device):
        yield request.param
