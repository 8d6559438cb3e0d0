"""NVRTC takes pointers as ``__restrict__`` for ever once it was asked to; no other compile may notice."""

from __future__ import annotations

import pytest

import cujit
from cujit.compiler.apart import parent

SOURCE = """extern "C" __global__ void k(float *a, const float *b, int n) {{ // {}
    for (int i = 0; i < n; i++) a[i] = b[0] + a[0];
}}"""


def _ptx(mark: str, **more: object) -> str:
    made = cujit.compile(SOURCE.format(mark), arch="sm_90", to="ptx", **more)  # type: ignore[arg-type]
    return bytes(made.data).decode()


@pytest.mark.parametrize("asked", [{"options": {"restrict": True}}, {"options": {"extra": ["--restrict"]}}])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_compile_after_one_with_restrict_knows_nothing_of_it(asked: dict[str, object], isolate: bool) -> None:
    mark = f"{asked} {isolate}"
    before = _ptx(f"{mark} 1", isolate=isolate)
    assert "ld.global.nc" not in before
    assert "ld.global.nc" in _ptx(f"{mark} 2", isolate=isolate, **asked)
    assert _ptx(f"{mark} 3", isolate=isolate) == before


def test_what_lasts_has_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parent._end_idle()
    made: list[object] = []

    class Counted(parent._Child):
        def __init__(self, world: object) -> None:
            made.append(world)
            super().__init__(world)

    monkeypatch.setattr(parent, "_Child", Counted)
    for mark in ("4", "5"):
        _ptx(mark, options={"restrict": True})
    assert len(made) == 1
    _ptx("6", isolate=True)
    assert len(made) == 2
