"""Functions of libcudadevrt, NVIDIA's library of code for devices, in PTX: those of grid groups; and one of the driver.

What links that library, which has machine code, gets these instead. A grid meets as cooperative groups have it do: at a
word whose top bit each meeting turns, in the workspace that ``%envreg1`` and ``%envreg2`` name. Source of the
signatures: ``cuda_device_runtime_api.h`` of CUDA 13; of the workspace: ``cooperative_groups/details/driver_abi.h``.
"""

from __future__ import annotations

import functools
import re

from cujit.formats.ptx import syntax
from cujit.formats.ptx.linking import Input, link_modules
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module

NAME = "libcudadevrt"
"""What messages call it."""

_MARK = b"cuda_device_runtime"

_TEXT = """.version 7.0
.target sm_70
.address_size 64

.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    mov.u32 %r1, %envreg1;
    mov.u32 %r2, %envreg2;
    mov.b64 %rd1, {%r2, %r1};
    st.param.b64 [handle], %rd1;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<3>;
    ld.param.b64 %rd1, [handle];
    bar.sync 0;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %tid.z;
    or.b32 %r4, %r1, %r2;
    or.b32 %r4, %r4, %r3;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra MET;
    mov.u32 %r5, %ctaid.x;
    mov.u32 %r6, %ctaid.y;
    mov.u32 %r7, %ctaid.z;
    or.b32 %r8, %r5, %r6;
    or.b32 %r8, %r8, %r7;
    mov.u32 %r9, %nctaid.x;
    mov.u32 %r10, %nctaid.y;
    mov.u32 %r11, %nctaid.z;
    mul.lo.u32 %r9, %r9, %r10;
    mul.lo.u32 %r9, %r9, %r11;
    sub.u32 %r9, 0x80000001, %r9;
    setp.ne.u32 %p2, %r8, 0;
    selp.b32 %r12, 1, %r9, %p2;
    fence.acq_rel.gpu;
    atom.add.acq_rel.gpu.u32 %r13, [%rd1+4], %r12;
WAIT: ld.acquire.gpu.u32 %r14, [%rd1+4];
    xor.b32 %r15, %r14, %r13;
    setp.ge.s32 %p2, %r15, 0;
    @%p2 bra WAIT;
    fence.acq_rel.gpu;
MET: bar.sync 0;
    mov.u32 %r1, 0;
    st.param.b32 [status], %r1;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronizeGrid(.param .b64 handle, .param .b32 flags)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [handle];
    ld.param.b32 %r1, [flags];
    {
        .param .b64 a;
        .param .b32 b;
        .param .b32 c;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], %r1;
        call (c), cudaCGSynchronize, (a, b);
        ld.param.b32 %r2, [c];
    }
    st.param.b32 [status], %r2;
    ret;
}
"""


_OF_DRIVER = """.version 7.0
.target sm_70
.address_size 64

.visible .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [handle];
    ld.param.b32 %r1, [value];
    st.release.gpu.b32 [%rd1], %r1;
    ret;
}
"""
_IS_DECLARED = re.compile(rb"\.extern\s+\.func\s+cudaGraphSetConditional\b")


def with_driver_functions(ptx: bytes) -> bytes:
    """Add the functions that a driver adds to PTX when it loads that: one sets the condition at its handle.

    Raises:
        FormatError: the PTX is invalid.
        LinkError: the PTX declares the function in another form.
    """
    if _IS_DECLARED.search(ptx) is None:
        return ptx
    linked = link_modules([Input("<ptx>", parse(ptx.decode())), Input("the driver", parse(_OF_DRIVER))])
    return print_module(linked.module).encode()


def is_device_runtime(data: bytes) -> bool:
    """Return whether an archive or an object is NVIDIA's library.

    Example:
        >>> is_device_runtime(b"!<arch>")
        False
    """
    return _MARK in data


@functools.cache
def device_runtime() -> syntax.PtxModule:
    """Return the module that replaces the library."""
    return parse(_TEXT, name=NAME)
