"""What the assembler's log tells, of several architectures in one."""

from __future__ import annotations

from cujit.inspection.logs import spills_of_log
from cujit.program import Source, compile

CALLING = r"""
__device__ __noinline__ void callee(float* p, int n) {
    float x[96];
    #pragma unroll
    for (int i = 0; i < 96; i++) x[i] = p[i * n];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 96; i++) p[i * n] = x[95 - i] * x[i];
}
extern "C" __global__ void k(float* p, int n) { callee(p + threadIdx.x, n); }
"""


def log_for(arch: str) -> str:
    return compile(Source.cuda(CALLING), arch=arch, verbose=True, maxrregcount=32).log


def test_functions_of_every_architecture_have_their_own_spills() -> None:
    logs = {arch: log_for(arch) for arch in ("sm_80", "sm_90")}
    each = {arch: spills_of_log(log) for arch, log in logs.items()}
    for arch, found in each.items():
        assert {of for _, of in found} == {arch}
        assert len(found) == 2
        assert max(found.values()) > (0, 0)
    assert spills_of_log("".join(logs.values())) == {**each["sm_80"], **each["sm_90"]}
