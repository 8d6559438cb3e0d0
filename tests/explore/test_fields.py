"""Fields of the arguments of a kernel: names from the source, types from the signature, words that a launch takes."""

from __future__ import annotations

import pytest

import cujit
from cujit.explore import Scene, analyze
from cujit.explore.fields import fields_of, parameter_names

KINDS = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Pair { int a; float b; };
namespace inner {
template <class T, int N> __global__ void __launch_bounds__(32) many(
    const T *x, __half *h, __nv_bfloat16 *b,  // not, these
    float4 *v, unsigned char *c, void *, int n = 3, unsigned long long m = (1, 2), bool is = true, double d = 1,
    char letter = 'c', Pair pair = Pair{1, 2}) {}
}
"""


def test_field_has_a_name_a_type_and_a_default() -> None:
    (fields,) = analyze(Scene(KINDS, kernel="inner::many<float, 3>")).fields.values()
    assert [(each.name, each.form, each.dtype, each.word) for each in fields] == [
        ("x", "array", "f32", "zeros:f32:1024"),
        ("h", "array", "f16", "zeros:f16:1024"),
        ("b", "array", "bf16", "zeros:bf16:1024"),
        ("v", "array", "f32", "zeros:f32:1024"),
        ("c", "array", "u8", "zeros:u8:1024"),
        ("", "array", "u8", "zeros:u8:1024"),
        ("n", "number", "", "1024"),
        ("m", "number", "", "1024"),
        ("is", "truth", "", "true"),
        ("d", "number", "", "1.0"),
        ("letter", "number", "", "1"),
        ("pair", "text", "", ""),
    ]
    assert [each.type for each in fields][:2] == ["const float*", "__half*"]


@pytest.mark.parametrize(
    "element", ["bool", "short", "unsigned", "long long", "double", "__half", "__nv_bfloat16", "int2", "char"]
)
def test_launch_accepts_the_default_words_of_fields(element: str) -> None:
    headers = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    code = f"{headers}__global__ void k({element} *p, int n, bool b, float f) {{}}\n"
    image = cujit.compile(code, to="ptx", arch="sm_90")
    fields = fields_of(cujit.inspect(image).kernels[0].signature, "k", code)
    scene = Scene(code, grid="1", block="1", arguments=" ".join(field.word for field in fields))
    assert analyze(scene).is_counted


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("__global__ void k(int a[], float (&b)[3], const int *const c) {}", ("a", "b", "c")),
        ("__global__ void k() {}", ()),
        ("__device__ void k(int no) {}\n__global__ void k2(int a) {}", ()),
        ("__global__ void k(int a", ()),
        ("// __global__ void k(int no)\n__global__ void k(int *, int yes) {}", ("", "yes")),
        ("template <class T> __global__ void k(T (*f)(int, int), int n) {}", ("f", "n")),
    ],
)
def test_names_are_read_from_the_kernels_declaration(source: str, names: tuple[str, ...]) -> None:
    found = parameter_names(source, "space::k<int>(int)")
    assert found == names or (source.startswith("template") and len(found) == 2)


def test_names_that_do_not_match_the_signature_are_omitted() -> None:
    code = "#define MORE , int hidden\n__global__ void k(int n MORE) {}\n"
    image = cujit.compile(code, to="ptx", arch="sm_90")
    assert [each.name for each in fields_of(cujit.inspect(image).kernels[0].signature, "k", code)] == ["", ""]
