"""Kernels that a text shows."""

from __future__ import annotations

import pytest

from cujit.compiler.inputs.kernels import plain_kernels


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("__global__ void a(int* p) { if (1) { } }", ["a"]),
        ('extern "C" __global__ void __launch_bounds__(256, 2) b(float x[]) {}', ["b"]),
        ('extern "C" { __global__ __launch_bounds__(32) void c() {} }', ["c"]),
        ("namespace n { namespace m::q { static __global__ void e() {} } }", ["n::m::q::e"]),
        ("namespace n { inline namespace v { __global__ void f() {} } }", ["n::v::f"]),
        ("namespace { __global__ void g() {} }", ["g"]),
        ("void __global__ h(void) {}", ["h"]),
        ("__global__ void a() {}\n__global__ void b() {}", ["a", "b"]),
        ("template <class T> __global__ void t(T x) {}", []),
        ("template <> __global__ void t<int>(int x) {}", []),
        ("struct S { static __global__ void s() {} };", []),
        ("__global__ void declared(int);", []),
        ("// __global__ void a() {}", []),
        ("/* __global__ void a() {} */", []),
        ('const char* s = "__global__ void a() {}";', []),
        ('const char* s = R"x(__global__ void a() {})x";', []),
        ("#define K __global__ void a() {}", []),
        ("#define K \\\n  __global__ void a() {}", []),
        ("char q = '\"'; __global__ void a() {} char r = '\"';", ["a"]),
        ("__global__", []),
        ("__global__ void a(", []),
        ("}}} __global__ void a() {}", ["a"]),
        ("/* __global__", []),
    ],
)
def test_only_plain_kernels_are_found(text: str, kernels: list[str]) -> None:
    assert list(plain_kernels(text)) == kernels
