from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit import signature as signature_module
from cujit.artifact import Artifact
from cujit.devices.arguments.signatures import signature_of, signature_of_layout
from cujit.devices.device import Device
from cujit.devices.launcher import learned as learned_module
from cujit.devices.launcher.learned import learned_of
from cujit.program import build, compile
from cujit.signature import Parameter, ParameterClass, Signature, merge_signatures
from cujit.values import replace

FLOAT = Parameter(ParameterClass.FLOAT, 4, 4, "float")
UNSIZED = Parameter(ParameterClass.AGGREGATE, 0, 0, "Point")


def test_layout_of_a_weakly_aligned_structure_is_kept() -> None:
    # int, float4 without its alignment, double
    layout = [(0, 4), (4, 16), (24, 8)]
    assert signature_of_layout(layout).offsets == (0, 4, 24)


def test_strongly_aligned_structure_stays_at_its_offset() -> None:
    # What ptxas does on sm_90, where the parameters begin at 0x210: 80 is a multiple of 32 only from there.
    assert signature_of_layout([(0, 64), (80, 32), (112, 4)]).offsets == (0, 80, 112)


def test_unknown_offset_is_aligned_to_the_size_up_to_16() -> None:
    parameters = [(1, 0), (64, 0), (3, 0), (0, 0), (12, 0), (1, 0), (4, 32), (1, 0), (8, 0), (5, 2)]
    signature = Signature(tuple(Parameter(ParameterClass.AGGREGATE, size, align) for size, align in parameters))
    assert signature.offsets == (0, 16, 80, 83, 84, 96, 128, 132, 136, 144)
    assert signature.size == 149
    assert (Signature(()).offsets, Signature(()).size) == ((), 0)


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16, 32, 64]), st.integers(1, 80)), max_size=8))
def test_every_layout_that_alignment_can_give_is_kept(fields: list[tuple[int, int]]) -> None:
    layout, end = [], 0
    for align, size in fields:
        end = -(-end // align) * align
        layout.append((end, size))
        end += size
    signature = signature_of_layout(layout)
    assert list(zip(signature.offsets, [p.size for p in signature], strict=True)) == layout


def test_types_of_the_build_meet_sizes_of_the_image() -> None:
    loaded = signature_of_layout([(0, 4), (4, 12)])
    merged = merge_signatures(Signature((FLOAT, UNSIZED)), loaded)
    assert [str(p) for p in merged] == ["float", "Point"]
    assert [p.size for p in merged] == [4, 12]
    assert merged.offsets == (0, 4)


@pytest.mark.parametrize("stated", [0, 8])
@pytest.mark.parametrize("loaded", [0, 4])
def test_size_missing_from_the_image_comes_from_the_build(stated: int, loaded: int) -> None:
    said = Parameter(ParameterClass.BITS, stated and 16, stated, "T*")
    image = Parameter(ParameterClass.POINTER, loaded and 16, loaded, ".u64", offset=32)
    (merged,) = merge_signatures(Signature((said,)), Signature((image,)))
    either = loaded or stated
    assert merged == Parameter(ParameterClass.POINTER, either and 16, either, "T*", offset=32)


def test_image_overrides_a_contradicting_build() -> None:
    loaded = signature_of_layout([(0, 8)])
    assert merge_signatures(Signature((FLOAT,)), loaded) == loaded
    assert merge_signatures(Signature((FLOAT, FLOAT)), loaded) == loaded
    assert merge_signatures(None, loaded) == loaded
    two = signature_of_layout([(0, 4), (4, 4)])
    assert merge_signatures(Signature((FLOAT,)), two) == two
    assert merge_signatures(Signature((FLOAT, FLOAT, FLOAT)), two) == two


@pytest.mark.parametrize("kind", ["ptx", "fatbin"])
def test_ptx_supplies_types_of_c_names(kind: str) -> None:
    code = 'extern "C" __global__ void k(float a, int n, double* p) { *p = a * n; }'
    made = compile(code, arch="compute_80") if kind == "ptx" else build(code, ["sm_80", "compute_80"])
    bare = Artifact.of(made.data)
    sizes = signature_of_layout([(0, 4), (4, 4), (8, 8)])  # as the driver tells
    kinds = [parameter.kind for parameter in signature_of(bare, "k", sizes)]
    assert kinds == [ParameterClass.FLOAT, ParameterClass.BITS, ParameterClass.BITS]
    assert signature_of(bare, "other", sizes) == sizes
    assert str(signature_of(made, "k", sizes)) == "(float, int, double*)"


def test_kernels_with_equal_signatures_share_one() -> None:
    stated, loaded = Signature((FLOAT,)), Signature((Parameter(ParameterClass.UNKNOWN, 4, offset=0),))
    assert merge_signatures(stated, loaded) is merge_signatures(stated, loaded)
    for offset in range(3000):  # more than are kept; signatures that went leave their addresses to others
        (merged,) = merge_signatures(stated, Signature((Parameter(ParameterClass.UNKNOWN, 4, offset=offset),)))
        assert merged.offset == offset
    assert len(signature_module._merged) <= signature_module._MOST_MERGED


def test_kernels_with_equal_parameters_share_what_is_learned(cpu: Device) -> None:
    device = Device(cpu.backend)
    first = learned_of(device, Signature((FLOAT,)))
    assert all(learned_of(device, Signature((FLOAT,))) is first for _ in range(100))
    for offset in range(2000):
        parameters = (replace(FLOAT, offset=offset),)
        assert learned_of(device, Signature((FLOAT,))) is not None  # which leaves its address to the next
        signature = Signature(parameters)
        found = learned_of(device, signature)
        assert found is not None
        assert found is learned_of(device, signature)
        assert found.layout.size == offset + 4
    assert len(device.learned) <= learned_module._MOST_KEPT
    assert len(device.learned_by_id) <= learned_module._MOST_BY_ID
