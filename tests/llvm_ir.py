"""Modules of LLVM IR for tests, in both dialects."""

from __future__ import annotations

LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
HEAD = f'target triple = "nvptx64-nvidia-cuda"\ntarget datalayout = "{LAYOUT}"\n'
VERSION = "!nvvmir.version = !{!100}\n!100 = !{i32 2, i32 0}\n"


def module(body: str) -> str:
    """Put head and version around definitions."""
    return HEAD + body + VERSION


def opaque(text: str) -> str:
    """The same module with opaque pointers; for the pointer types that the modules here use."""
    return text.replace("void (float*)*", "ptr").replace("float*", "ptr")


def kernel_that_calls(function: str, name: str = "k") -> str:
    """A kernel ``name(float* p)`` with ``*p = function(*p)``."""
    return module(f"""
declare float @{function}(float)

define void @{name}(float* %p) {{
  %v = load float, float* %p
  %w = call float @{function}(float %v)
  store float %w, float* %p
  ret void
}}

!nvvm.annotations = !{{!0}}
!0 = !{{void (float*)* @{name}, !"kernel", i32 1}}
""")


UNMARKED = module("""
define void @scale(float* %p) {
  %v = load float, float* %p
  %w = fmul float %v, 2.0
  store float %w, float* %p
  ret void
}
""")
SCALE = UNMARKED.replace("define void", "define ptx_kernel void")
ADD_TWO = module("define float @f(float %x) {\n  %y = fadd float %x, 2.0\n  ret float %y\n}\n")
SINE = module("""
declare float @__nv_sinf(float)
define float @f(float %x) {
  %y = call float @__nv_sinf(float %x)
  ret float %y
}
""")
