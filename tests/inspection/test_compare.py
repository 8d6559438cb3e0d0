"""Two images side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.errors import ArgumentError
from cujit.inspection.compare import Comparison, Metric, Pair, compare
from cujit.inspection.read import inspect
from cujit.inspection.values import KernelInfo
from formats.images import bundled, cubin
from inspection.files import SOURCE, several

HEAVIER = SOURCE.replace("tile[64]", "tile[128]").replace("a * tile", "tile[n] / x[n] + a * tile")
FLOATS = "_Z5scaleIfEvT_PKS0_PS0_i"


def fatbin(source: str, *arches: str) -> bytes:
    return bundled(tuple(("cubin", arch, cubin(source, f"sm_{arch}")) for arch in arches))


def pair(comparison: Comparison, name: str, arch: str) -> Pair:
    (found,) = (p for p in comparison.pairs if p.name == name and str(p.arch) == arch)
    return found


def test_image_equals_itself() -> None:
    comparison = compare(fatbin(SOURCE, "75", "90"), fatbin(SOURCE, "75", "90"))
    assert comparison.is_equal
    assert len(comparison.pairs) == 6
    assert comparison.grew == comparison.shrank == ()


def test_kernels_are_matched_by_name_and_architecture() -> None:
    comparison = compare(fatbin(SOURCE, "75", "80"), fatbin(HEAVIER, "80", "90"))
    assert [(str(p.arch), p.name) for p in comparison.grew] == [
        (str(k.arch), k.name) for k in inspect(cubin(SOURCE, "sm_80")).kernels if k.name != "count"
    ]
    before, after = (inspect(cubin(s, "sm_80")).kernel(FLOATS) for s in (SOURCE, HEAVIER))
    found = {d.metric: (d.before, d.after, d.change) for d in pair(comparison, FLOATS, "sm_80").differences}
    assert found[Metric.SHARED] == (256, 512, 256)
    assert found[Metric.CODE] == (
        before.code_bytes,
        after.code_bytes,
        (after.code_bytes or 0) - (before.code_bytes or 0),
    )
    assert found[Metric.REGISTERS][:2] == (before.registers, after.registers)
    assert pair(comparison, "count", "sm_80").is_equal
    assert not pair(comparison, FLOATS, "sm_80").is_equal
    assert {str(k.arch) for k in comparison.only_a} == {"sm_75"}
    assert {str(k.arch) for k in comparison.only_b} == {"sm_90"}
    assert not comparison.is_equal


def test_reversed_comparison_has_the_opposite_signs() -> None:
    comparison = compare(fatbin(HEAVIER, "80"), fatbin(SOURCE, "80"))
    assert not comparison.grew
    assert {d.metric for d in pair(comparison, FLOATS, "sm_80").shrank} >= {Metric.SHARED, Metric.CODE}


def test_values_unknown_on_one_side_are_no_change() -> None:
    known, unknown = KernelInfo("k", spill_store_bytes=8), KernelInfo("k")
    assert Pair(known, unknown).is_equal
    (spills,) = (d for d in Pair(known, unknown).differences if d.metric is Metric.SPILL_STORES)
    assert (spills.before, spills.after, spills.change) == (8, None, None)


def test_kernels_with_equal_names_are_matched_by_order() -> None:
    comparison = compare(several(2), several(3))
    assert (len(comparison.pairs), len(comparison.only_a), len(comparison.only_b)) == (6, 0, 3)


def test_inspections_paths_and_kernel_selections_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.fatbin"
    path.write_bytes(fatbin(SOURCE, "80"))
    comparison = compare(inspect(path), path, keep=lambda kernel: kernel.name == "count")
    assert [p.name for p in comparison.pairs] == ["count"]
    assert comparison.a == str(path)
    with pytest.raises(ArgumentError):
        compare(path, 3)
