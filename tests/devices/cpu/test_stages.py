"""The stages of the compiler show what they leave: to who asks in the process, and by ``CUJIT_DUMP``."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import compiler_page
from cujit.artifact import Artifact
from cujit.devices.cpu import stages
from cujit.devices.cpu.stages import STAGES, Stage, show_stages
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import OptionError
from raising import raises

PAGE = Path(__file__).parents[3] / "docs" / "cpu-compiler.md"

PTX = """.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 r) fact (.reg .b32 n)
{
    .reg .pred p; .reg .b32 m, s;
    setp.eq.u32 p, n, 0; mov.u32 r, 1; @p ret;
    sub.u32 m, n, 1; call (s), fact, (m); mul.lo.u32 r, s, n; ret;
}
.visible .entry k(.param .u64 to)
{
    .reg .b64 at; .reg .b32 t, four, row, r; .reg .pred odd;
    ld.param.u64 at, [to]; mov.u32 t, %tid.x; mov.u32 four, 4;
    and.b32 r, t, 1; setp.ne.u32 odd, r, 0; mov.u32 row, %tid.y;
    @odd bra END;
    call (r), fact, (four);
    st.global.u32 [at], r;
END:
    ret;
}
"""


def launch(cpu: Device) -> None:
    data = cpu.zeros(32, "u4")
    kernel = cpu.load(Artifact.of(PTX)).kernels["k"]
    kernel.launch(LaunchShape(Dim3(1), Dim3(16, 2)), data.address.to_bytes(8, "little"))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """Give the stages that are shown from now on; nobody else is shown any."""
    monkeypatch.setattr(stages, "_LOOKERS", [])
    seen: list[Stage] = []
    show_stages(seen.append)
    return seen


@pytest.mark.verbatim
def test_stages_are_listed_in_order_with_their_results(
    cpu: Device, shown: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_DUMP", "times")  # has it compiled, whatever the cache has
    launch(cpu)
    own = {stage.name: stage for stage in shown}
    assert tuple(own) == STAGES
    assert all(stage.kernel == "k" and 0 < stage.seconds < 60 for stage in own.values())
    texts = {name: stage.text() for name, stage in own.items()}
    assert "function fact\n    call.arguments" in texts["flatten"]
    assert "block 0, then 3 or 1\n" in texts["blocks"]
    assert "t affine +1 in rows of 16" in texts["uniformity"]
    assert "four constant 4" in texts["uniformity"]
    assert "in block 1 lanes may be waiting at 3" in texts["uniformity"]
    assert texts["fission"] == "not cut"
    assert (
        texts["plan"]
        == "function k\nevery warp has a stack of its own\nfunction fact\nevery warp has a stack of its own"
    )
    assert "define void @run(" in texts["emit"]


def test_stages_are_printed_even_for_a_cached_kernel(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch(cpu)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("CUJIT_DUMP", "fission, uniformity")
    launch(cpu)
    said = capsys.readouterr().err
    assert [line.partition(":")[0] for line in said.splitlines() if line.startswith(";")] == [
        "; uniformity of k", "; fission of k",
    ]  # fmt: skip
    assert said.endswith("not cut\n")
    monkeypatch.setenv("CUJIT_DUMP", "times")
    launch(cpu)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines if line.endswith(" ms")][-4:] == ["uniformity", "fission", "plan", "emit"]
    assert all(line.startswith("; ") for line in lines)


def test_unknown_stage_is_an_error(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_DUMP", "fision")
    with raises(OptionError, "option-unknown", "CUJIT_DUMP", "fision") as caught:
        launch(cpu)
    assert "flatten, blocks, uniformity, fission, plan, emit, times and all" in str(caught.value)


@pytest.mark.usefixtures("shown")
def test_compiler_page_matches_the_stages() -> None:
    assert PAGE.read_text() == compiler_page.page(), "run: python tools/compiler_page.py > docs/cpu-compiler.md"


@pytest.mark.parametrize("often", [0, 700, 1_000_000])
def test_garbage_collector_runs_rarely_during_a_compile(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, often: int
) -> None:
    seen: set[int] = set()
    monkeypatch.setattr(stages, "_LOOKERS", [lambda _: seen.add(gc.get_threshold()[0])])
    monkeypatch.setenv("CUJIT_DUMP", "times")  # has it compiled, whatever the cache has
    was = gc.get_threshold()
    try:
        gc.set_threshold(often, 7, 8)
        launch(cpu)
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*was)
    assert seen == {max(often, 10_000) if often else 0}
    assert after[0] == often
