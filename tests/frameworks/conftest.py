"""torch where it is installed, and the places that its tensors can be in. ``make frameworks`` has it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    """The package torch."""
    return pytest.importorskip("torch")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest, torch: Any) -> str:
    """Where tensors lie."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    return str(request.param)
