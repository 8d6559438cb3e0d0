"""Ordinary .cu files compile with one option, which errors name."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit.cli import main
from cujit.compiler.inputs.host_code import as_for_devices, device_source, lines_for_hosts
from cujit.errors import CompileError, HeaderNotFoundError
from cujit.program import Options, Source, compile

ORDINARY = Path(__file__).parent / "ordinary"
CASES = {
    "train/train.cu": ["encoder_forward", "adamw<__nv_bfloat16>", "softmax"],
    "marlin.cu": ["Marlin<256,1,-1>", "Marlin<256,2,8>"],
    "conv.cu": ["causal_conv1d_fwd_kernel<Conv_kernel_traits<c10::BFloat16,float,128,true>>"],
    "quantize.cu": ["kQuantizeBlockwise<half,4096,4,0,General8bit>"],
    "norm.cu": ["vllm::rms_norm_kernel<c10::Half,0>", "vllm::fused_add_rms_norm_kernel<at::Half,8>"],
}


@pytest.mark.parametrize("file", CASES)
def test_ordinary_file_compiles_with_one_option(file: str) -> None:
    made = compile(ORDINARY / file, host_code="skip", arch="compute_80", names=CASES[file])
    assert set(CASES[file]) <= set(made.names)
    assert made.log == ""


@pytest.mark.parametrize("file", CASES)
def test_error_without_the_option_names_it(file: str) -> None:
    with pytest.raises((CompileError, HeaderNotFoundError)) as caught:
        compile(ORDINARY / file)
    assert "host_code='skip'" in (caught.value.help or "")


@pytest.mark.parametrize("file", CASES)
def test_lines_keep_their_numbers(file: str) -> None:
    source = Source.cuda(ORDINARY / file)
    made = device_source(source).text
    assert made.count("\n") == source.text.count("\n")
    for new, old in zip(made.splitlines(), source.text.splitlines(), strict=True):
        assert "#" in old or all(a in (" ", b) for a, b in zip(new, old, strict=True)), old


# Each begins with what is left out, behind which stays what is behind the bar.
LEFT_OUT = """
void f(int x) { k<<<1, 1>>>(x); }|
static inline int helper(std::vector<int> v) { return v[0]; }|
template <typename T> void launch(T *x) { k<T><<<1, 1>>>(x); }|
template void launch<float>(float *x);|
namespace a { namespace b { torch::Tensor f(at::Tensor x) { return x; } } }|namespace a { namespace b { } }
extern "C" { int api(float *x) { return 0; } }|extern "C" { }
int main() { for (;;) { if (1) { } } }|
struct Model { std::vector<float> v; };|
typedef struct { FILE *f; int n; } State;|
struct Two { Model m; }; struct Model { std::string s; };|
static std::map<int, int> cache;|
float *buffer = NULL;|
cublasHandle_t handle;|
using torch::Tensor;|
using namespace at;|
TORCH_LIBRARY(ops, m) { m.def("f", &f); }|
PYBIND11_MODULE(NAME, m) { m.def("f", &f); }|
struct Model { std::vector<float> v; Model() { } };|
struct S { int n; S() { throw 1; } };|struct S { int n; };
struct S { int n; void save() { fopen("x", "w"); } };|struct S { int n; };
auto lambda = [](torch::Tensor t) { return t; };|
void (*pointer)(cudaStream_t);|
std::string name() const;|
inline void g() try { } catch (...) { }|
"""


@pytest.mark.parametrize("case", LEFT_OUT.strip().splitlines())
def test_host_code_is_removed(case: str) -> None:
    text, _, kept = case.rpartition("|")
    assert " ".join(device_source(Source.cuda(text + "\n")).text.split()) == kept


KEPT = """
__global__ void k(int *x) { *x = 1; }
template <typename T, int n = (3 > 2), typename = void> __device__ T f(T x) { return x; }
__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
const int N = 4;
enum Kind { A, B = 2 };
struct P { int n; float *x; };
typedef struct { int n; } Q;
template <> struct V<2> { using type = float2; };
using vec = float4;
namespace cg = cooperative_groups;
struct Op { __device__ float operator()(float x) const { return x; } template <class T> __device__ T g(T t); };
#define HD __host__ __device__
HD float twice(float x) { return x + x; }
CUTLASS_HOST_DEVICE int g(int x) { return x; }
static_assert(sizeof(int) == 4, "size");
extern __shared__ char memory[];
template __global__ void k<float>(float *x);
#define MAKE(T) template __global__ void k<T>(T *x);
MAKE(float)
MAKE(half);
__device__ const char *text = "<<< torch::Tensor { }";
__device__ /* at::Tensor { */ int raw(int x) { return R"(})"[0] + '{' + x; }
"""


def test_device_code_is_kept() -> None:
    assert device_source(Source.cuda(KEPT)).text == KEPT


def test_function_that_a_kernel_needs_is_kept() -> None:
    text = """
#define CALL(x) helper(x)
int inner(int x) { return x; }
int helper(int x) { return inner(x); }
int other(int x) { return x; }
__global__ void k(int *x) { *x = CALL(*x); }
"""
    assert device_source(Source.cuda(text)).text == text.replace("int other(int x) { return x; }", " " * 30)


def test_branches_of_conditions_may_open_one_brace() -> None:
    text = """
#ifdef A
void f(int x) {
#else
void f(float x) {
#endif
    k<<<1, 1>>>(x);
}
__global__ void k(int *x) { *x = 1; }
"""
    kept = device_source(Source.cuda(text)).text.split("\n")
    assert [line for line in kept if line.strip()] == ["#ifdef A", "#else", "#endif", text.splitlines()[-1]]


WORDS = """
__device__ unsigned take(unsigned x) {
    unsigned y;
    __asm__ __volatile__("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
__extension__ typedef long long wide;
template <int n> struct Log2 { static constexpr int value = __builtin_ctz(n) + __builtin_popcount(n) - 1; };
static_assert(Log2<64>::value == 6 && __builtin_clz(1) == 31 && __builtin_clzll(1ull << 40) == 23, "");
__global__ void k(uint *p, float *f) {
    ushort a = 1; u_char c = 2; uint32_t d = UINT32_MAX; int64_t e = INT_MIN; __typeof__(*p) g = *p; ssize_t h = 3;
    p[0] = a + c + d + e + g + h + __builtin_ctz(p[1]) + __builtin_bswap32(take(p[2])) + (uint)offsetof(float4, y);
    p[3] = __builtin_clz(p[1]) + 100 * __builtin_popcount(p[1]);
    f[0] = M_LOG2E + FLT_MAX + fminf(INFINITY, M_PI);
    auto twice = [] __device__(float x) { return 2 * x; };
    f[1] = __builtin_fabsf(twice(f[1]));
}
"""


def test_nvcc_dialect_defines_its_names() -> None:
    device = cujit.cpu()
    k = cujit.jit(WORDS, device=device, dialect="nvcc")["k"]
    p, f = device.array([0, 8, 0x01020304, 0], "uint32"), device.array([0, -3, 5], "float32")
    k.over(1)(p, f)
    assert p.numpy()[3] == 28 + 100
    assert f.numpy()[1] == 6


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("*p = __builtin_ctz(*p);", "__builtin_ctz"),
        ("uint x = 1;", "uint"),
        ("uint32_t x = 1;", "uint32_t"),
        ("float x = M_LOG2E;", "M_LOG2E"),
        ('__asm__ volatile("");', "__asm__"),
        ("*p = std::min(*p, 1);", "std::min"),
        ("auto f = [] __device__(int x) { return x; };", "lambdas"),
    ],
)
def test_nvcc_name_is_an_error_that_names_the_option(code: str, word: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile(f"__global__ void k(int *p) {{ {code} }}")
    assert "dialect='nvcc'" in (caught.value.help or "")
    assert word in (caught.value.help or "")


def test_command_line_names_and_accepts_the_option(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text(
        "#include <torch/extension.h>\n__global__ void k(c10::Half *x) { *x = 1; }\nvoid f(at::Tensor t) {}\n"
    )
    runner = CliRunner()
    refused = runner.invoke(main, ["compile", str(file), "-o", str(tmp_path / "a.ptx")])
    assert "-O host_code=skip" in refused.output
    done = runner.invoke(main, ["compile", str(file), "-o", str(tmp_path / "a.ptx"), "-O", "host_code=skip"])
    assert done.exit_code == 0, done.output
    assert "_Z1kP6__half" in (tmp_path / "a.ptx").read_text()


def test_cuda_h_error_names_the_option_and_tensor_maps_exist() -> None:
    text = "#include <cuda.h>\n__global__ void k(const __grid_constant__ CUtensorMap map) {}"
    with pytest.raises(CompileError) as caught:
        compile(text, arch="compute_75")
    assert "<cuda.h> is for the host: set host_code='skip'" in (caught.value.help or "")
    assert ".align 64 .b8 _Z1k" in compile(text, arch="compute_75", host_code="skip").text


def test_explicit_options_override_implied_ones() -> None:
    _, options = as_for_devices(Source.cuda("int x;"), Options(host_code="skip", default_device=False))
    assert (options["default_device"], options["host_headers"], options["dialect"]) == (False, "stub", "nvcc")


def test_lines_for_the_host_are_known() -> None:
    assert lines_for_hosts("__global__ void k() {}\nvoid f() {\n  k<<<1, 1>>>();\n}\nint n;") == {2, 3, 4, 5}
