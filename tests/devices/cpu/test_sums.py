"""How sums of products are rounded: what an H200 made of sixteen kinds of operands, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from instructions.scene import Scene, entry, run_scene
from instructions.sums import GOLDEN, forms, measured, run_form
from instructions.sums_inputs import KINDS
from instructions.sums_rule import aligned_sum

_FORMS = forms()
_GOLDEN: dict[str, Any] = json.loads(GOLDEN.read_text())


@pytest.mark.gpu
@pytest.mark.parametrize("name", _FORMS)
def test_sums_match_an_h200(name: str, device: Device) -> None:
    if device.is_gpu and device.arch.number != 90:
        pytest.skip("recorded on a GPU of sm_90, whose rule is not that of others")
    found = measured(device, _FORMS[name])
    other = [kind for kind, digest in _GOLDEN["forms"][name].items() if found[kind] != digest]
    assert not other, f"{name}: other bits than {_GOLDEN['origin']} with operands of kind: {', '.join(other)}"


_WHOLE = {
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32": (25, None),
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": (25, None),
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": (25, None),
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": (25, None),
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2": (13, 13),
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e5m2": (13, None),
}


@pytest.mark.parametrize("name", _WHOLE)
def test_page_states_the_rule_of_the_code(name: str) -> None:
    """In whole numbers, for some elements of every kind."""
    form, (width, kept) = _FORMS[name], _WHOLE[name]
    a, b, c, _ = form.operands()
    found = run_form(cujit.cpu(), form)
    rng = np.random.default_rng(1)
    for k, kind in enumerate(KINDS):
        for _ in range(20):
            warp = k * form.warps + int(rng.integers(form.warps))
            row, column = int(rng.integers(form.shape[0])), int(rng.integers(form.shape[1]))
            types = (form.a, form.b, form.c, form.d)
            want = aligned_sum(a[warp, row], b[warp, column], int(c[warp, row, column]), types, width, kept)
            assert int(found[warp, row, column]) == want, (kind, warp, row, column)


def test_c_may_make_the_largest_products_longer_than_31_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    form = _FORMS["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    a, b, c = (
        np.full((1, 16, 16), 0x3FFF, np.uint16),
        np.full((1, 8, 16), 0x3FFF, np.uint16),
        np.full((1, 16, 8), 0x3FFFFFFF),
    )
    a[:, 8:], c[:, 8:] = 0xBFFF, 0xBFFFFFFF
    monkeypatch.setattr(type(form), "operands", lambda _: (a, b, c.astype(np.uint32), np.zeros(0, np.uint32)))
    found = run_form(cujit.cpu(), form)
    for row in (0, 8):
        assert set(found[0, row].tolist()) == {
            aligned_sum(a[0, row], b[0, 0], int(c[0, row, 0]), (form.a, form.b, form.c, form.d))
        }


@pytest.mark.parametrize("words", ["", "kind::f8f6f4."])
def test_sums_of_the_largest_products(cpu: Device, words: str) -> None:
    """Of 32 numbers of one size the sum has more than 31 bits below the place of the largest product."""
    body = f""".reg .b32 x, i; .reg .f32 d, e, f, g, zero; .reg .b64 a; mov.b32 x, 0x44444444; mov.f32 zero, 0f00000000;
        mma.sync.aligned.m16n8k32.row.col.{words}f32.e4m3.e4m3.f32 {{d, e, f, g}}, {{x, x, x, x}}, {{x, x}},
            {{zero, zero, zero, zero}};
        mov.u32 i, %tid.x; mad.wide.u32 a, i, 16, p0; st.global.v4.f32 [a], {{d, e, f, g}};"""
    text = entry(body, 1, target="sm_120a", version="8.7")
    got = run_scene(cpu, Scene("largest", text, (np.zeros(128, np.float32),), 1, 32))[0]
    np.testing.assert_array_equal(got, np.full(128, 288, np.float32))
