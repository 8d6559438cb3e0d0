"""Two profiles are compared number by number."""

from __future__ import annotations

import numpy as np

import cujit
from cujit.profile import CostChange, Profile, ProfiledKernel, compare
from raising import raises

COPY = """extern "C" __global__ void copy(const float *x, float *y, int stride) {
    y[threadIdx.x] = x[threadIdx.x * stride];
}"""
REVERSE = """extern "C" __global__ void copy(const float *x, float *y, int stride) {
    __shared__ float all[32];
    all[threadIdx.x] = x[threadIdx.x * stride];
    __syncthreads();
    y[threadIdx.x] = all[31 - threadIdx.x];
}"""


def cost(stride: int, source: str = COPY) -> ProfiledKernel:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x, y = device.zeros(1024, np.float32), device.zeros(32, np.float32)
    cujit.jit(source, device=device, name="copy.cu")["copy"][1, 32](x, y, stride)
    return profile.kernels[0]


def test_every_nonzero_number_has_its_difference() -> None:
    found = compare(cost(32), cost(1))
    assert CostChange("sectors", 36, 8) in found.changes
    assert next(each.difference for each in found.changes if each.what == "sectors") == -28
    names = [each.what for each in found.changes]
    assert "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum" in names
    assert "bank_conflicts" not in names
    assert found.to_json()["measures"]["distinct_sectors"] == {"before": 36, "after": 8, "difference": -28}


def test_bounds_are_compared_for_a_named_gpu() -> None:
    one = cost(1)
    named = {each.what for each in compare(one, one, on="H200").changes} - {
        each.what for each in compare(one, one).changes
    }
    assert named
    assert all(name.startswith("bound in ns: ") for name in named)


def test_cost_of_only_one_kernel_is_zero_in_the_other() -> None:
    plain, reverse = cost(1), cost(1, REVERSE)
    gained = {each.what: each for each in compare(plain, reverse, on="H200").changes}
    lost = {each.what: each for each in compare(reverse, plain, on="H200").changes}
    assert gained.keys() == lost.keys()
    for what in ("barriers", "shared_requests", "bound in ns: shared memory"):
        assert gained[what].before == lost[what].after == 0 < gained[what].after == lost[what].before
    assert gained["barriers"].after == 1


def test_object_that_is_not_a_profiled_kernel_is_refused() -> None:
    with raises(cujit.errors.ArgumentError, "argument", "7", "profile.kernels[0]"):
        compare(cost(1), 7)  # type: ignore[arg-type]
