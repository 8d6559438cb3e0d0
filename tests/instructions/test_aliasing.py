"""An instruction whose results are among its operands gives what it gives with registers of its own."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from instructions.aliasing import FORMS, INPUTS, MODULE, THREADS, kernel_text

_BATCH = 24
_UNTOUCHED = np.uint64(0x5A5A5A5A5A5A5A5A)


def _inputs() -> np.ndarray:
    """Random words for each thread; many alike, and some small, so that every comparison goes both ways."""
    rng = np.random.default_rng(12)
    wild = rng.integers(0, 1 << 64, (INPUTS, THREADS), np.uint64)
    floats = rng.standard_normal((INPUTS, THREADS)).astype(np.float32).view(np.uint32).astype(np.uint64)
    small = rng.integers(0, 40, (INPUTS, THREADS)).astype(np.uint64)
    return np.choose(rng.integers(0, 3, wild.shape), [wild, floats << np.uint64(32) | floats, small])


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("batch", range(-(-len(FORMS) // _BATCH)))
def test_results_that_are_also_operands_change_nothing(batch: int, device: Device) -> None:
    forms = FORMS[batch * _BATCH : (batch + 1) * _BATCH]
    texts = [kernel_text(f"form{k}", form) for k, form in enumerate(forms)]
    module = load(Artifact.of(MODULE + "\n".join(text for text, _ in texts)), device)
    inputs = device.array(_inputs())
    wrong = []
    for k, (form, (_, words)) in enumerate(zip(forms, texts, strict=True)):
        out = device.array(np.full((words, THREADS), _UNTOUCHED))
        module[f"form{k}"][1, THREADS](inputs, out, device.array(np.zeros((THREADS, 64), np.uint8)))
        own, among = np.moveaxis(out.numpy().reshape(-1, 2, len(form.results), THREADS), 1, 0)
        wrong += [f"{form.text}: overlap {n}" for n in np.flatnonzero((own != among).any(axis=(1, 2)))]
        assert (own != _UNTOUCHED).all(), form.text
    assert not wrong


def test_vector_swaps_are_simultaneous(device: Device) -> None:
    """As an H200 does ``mov.v4 {a, b, c, d}, {d, c, b, a}``."""
    text = """
.visible .entry k(.param .u64 at) {
  .reg .b64 p; .reg .b32 a, b, c, d; ld.param.u64 p, [at];
  ld.global.v4.b32 {a, b, c, d}, [p]; mov.v4.b32 {a, b, c, d}, {d, c, b, a}; mov.v2.b32 {a, b}, {b, a};
  st.global.v4.b32 [p], {a, b, c, d}; ret;
}"""
    x = device.array(np.array([1, 2, 3, 4], np.uint32))
    load(Artifact.of(MODULE + text), device)["k"][1, 1](x)
    assert x.numpy().tolist() == [3, 4, 2, 1]
