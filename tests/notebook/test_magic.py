"""``%%cuda`` compiles a cell and leaves its kernels, with the options of the command line and errors of ours."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import cujit
from cells import Cells
from cujit.devices.device import Device
from cujit.emulator.settings import VARIABLE
from cujit.errors import CompileError
from cujit.kernel import Kernel
from cujit.loading import Module
from cujit.notebook import magic
from cujit.notebook.magic import load
from cujit.profile import Profile
from notebook.test_displays import Written
from raising import holds, raises
from tile_code import TWICE, needs_tiles

RAMP = """
extern "C" __global__ void ramp(float *y, float a) { y[threadIdx.x] = a * threadIdx.x; }"""
STRIDED = """
extern "C" __global__ void copy(const float *x, float *y, int stride) { y[threadIdx.x] = x[threadIdx.x * stride]; }"""
TEMPLATE = """
template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }"""


def test_kernel_of_a_cell_is_launched_by_its_name(
    cells: Cells, device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    cells.run(f"%%cuda --device {device.name}{RAMP}")
    assert capsys.readouterr().out == "ramp: void ramp(float*, float)\n"
    ramp = cells.names["ramp"]
    assert ramp.device is device
    y = ramp.device.zeros(4, np.float32)
    ramp[1, 4](y, 3.0)
    assert y.numpy().tolist() == [0, 3, 6, 9]


def test_emulated_cell_uses_the_cpu_device(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def seen(*args: Any, device: object, **more: Any) -> Module:
        asked.append(device)
        return cujit.jit(*args, device="cpu", **more)

    monkeypatch.setattr(magic, "jit", seen)
    cells.run(f"%%cuda{RAMP}")
    monkeypatch.setenv(VARIABLE, "cc=9.0")
    cells.run(f"%%cuda{RAMP}")
    assert asked == [None, "cpu"]


def test_template_instances_are_named_or_form_a_dict(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(f"%%cuda -n 'twice<float>'{TEMPLATE}")
    assert cells.names["twice"].name == "twice<float>"
    capsys.readouterr()
    cells.run(f"%%cuda --name 'twice<float>' --name 'twice<int>'{TEMPLATE}")
    assert list(cells.names["twice"]) == ["twice<float>", "twice<int>"]
    assert str(cells.names["twice"]["twice<int>"]) == "void twice<int>(int*)"
    assert capsys.readouterr().out.splitlines()[1] == "twice['twice<int>']: void twice<int>(int*)"


def test_scopes_and_overloads_are_in_a_dict_too(cells: Cells) -> None:
    cells.run(
        "%%cuda\nnamespace a { __global__ void f(float *) {} }\nnamespace b { __global__ void f(float *) {} }\n"
        "namespace c { __global__ void only(int *) {} }\n__global__ void g(float *) {}\n__global__ void g(int *) {}"
    )
    assert set(cells.names["f"]) == {"a::f", "b::f"}
    assert set(cells.names["g"]) == {"g(float*)", "g(int*)"}
    assert cells.names["only"].name == "c::only"


@pytest.mark.parametrize(
    ("before", "name", "why"),
    [
        ("axpy = 3", "axpy", "(int)"),
        ("axpy = None", "axpy", "(NoneType)"),
        ("", "sum", "Python"),
        ("", "lambda", "Python"),
        ("import cujit; axpy = cujit.jit('extern \"C\" __global__ void axpy() {}')['axpy']", "axpy", "(Kernel)"),
    ],
)
def test_variable_that_is_not_a_kernel_is_not_replaced(cells: Cells, before: str, name: str, why: str) -> None:
    cells.run(before)
    kept = cells.names.get("axpy")
    error = cells.failure(f"%%cuda\n__global__ void other() {{}}\n__global__ void {name}() {{}}")
    assert isinstance(error, cujit.errors.OptionError)
    holds(error, "option", name, why)
    assert error.help is not None
    assert f"cell['{name}']" in error.help
    assert cells.names.get("axpy") is kept
    assert "other" not in cells.names


def test_kernel_of_an_earlier_cell_is_replaced(cells: Cells) -> None:
    cells.run(f"%%cuda{RAMP}")
    cells.run(f"%%cuda{RAMP.replace('float a', 'float a, int by')}")
    assert str(cells.names["ramp"]) == "void ramp(float*, float, int)"


def test_renamed_kernel_is_not_mistaken_for_a_cells_kernel(cells: Cells) -> None:
    cells.run("%%cuda\n__global__ void one() {}\n__global__ void two() {}")
    cells.run("one = two")
    assert isinstance(cells.failure("%%cuda\n__global__ void one() {}"), cujit.errors.OptionError)
    cells.run("del one")
    cells.run("%%cuda\n__global__ void one() {}")


def test_module_may_replace_its_kernels(cells: Cells) -> None:
    cells.run("%%cuda --module own\n__device__ int bias = 7;\n__global__ void sum(int *x) { *x = bias; }")
    own = cells.names["own"]
    assert isinstance(own, Module)
    assert list(own.globals) == ["bias"]
    assert "sum" not in cells.names
    assert "sum" in own


def test_deleted_kernel_is_unloaded(cells: Cells) -> None:
    cells.run("%%cuda --module own\n__global__ void f() {}")
    own = weakref.ref(cells.names["own"])
    cells.run("del own")
    gc.collect()
    assert own() is None


def test_options_are_compiler_options(cells: Cells, tmp_path: object) -> None:
    (tmp_path / "own.h").write_text("#define ONE 1\n")  # type: ignore[operator]
    cells.names["folder"] = str(tmp_path)
    cells.run(
        "%%cuda -I $folder -D TWO=2 --std c++20 -O extra=--dopt=on --device cpu\n#include <own.h>\n"
        'static_assert(__cplusplus == 202002L, "");\n'
        "__global__ void f(int *x) { *x = ONE + TWO; }"
    )
    f = cells.names["f"]
    x = f.device.zeros(1, np.int32)
    f[1, 1](x)
    assert x.numpy()[0] == 3
    cells.run("%%cuda --arch compute_80 --device cpu\n__global__ void f(int *x) { *x = 1; }")
    assert str(cells.names["f"].artifact.arch) == "compute_80"


def test_checks_find_errors_at_their_line_of_the_cell(cells: Cells) -> None:
    cells.run("%%cuda --check memory\n__global__ void far(int *x) {\n    x[4] = 1;\n}")
    error = cells.failure("far[1, 1](far.device.zeros(4, 'int32'))")
    assert isinstance(error, cujit.errors.KernelFaultError)
    assert "In[1]:3" in str(error)


def test_profile_counts_and_knows_the_lines_of_each_cell(cells: Cells) -> None:
    for line in ("y[threadIdx.x] = 1;", "y[threadIdx.x * 8] = 1;"):
        cells.run(f"%%cuda --profile costs --check memory\n__global__ void f(float *y) {{\n    {line}\n}}")
        cells.run("f[1, 32](f.device.zeros(256, 'float32'))")
        assert isinstance(cells.names["costs"], Profile)
        html = cells.shown(cells.names["costs"])["text/html"]
        assert f'<td style="text-align:left">{line}</td>' in html
    (kernel,) = cells.names["costs"].kernels
    assert kernel.totals.sectors == 32
    assert {each.source.file for each in kernel.lines() if each.source} == {"In[3]"}


def test_sources_compiled_in_a_loop_are_distinguished(cells: Cells) -> None:
    cells.run(
        "for n in (1, 2):\n"
        "    code = f'__global__ void f{n}(float *y) {{\\n    y[threadIdx.x] = {n};\\n}}'\n"
        "    get_ipython().run_cell_magic('cuda', f'--profile costs{n}', code)\n"
        "f1[1, 32](f1.device.zeros(32, 'float32'))\nf2[1, 32](f2.device.zeros(32, 'float32'))"
    )
    for n, place in ((1, "In[1]:3"), (2, "In[1].2:3")):
        html = cells.shown(cells.names[f"costs{n}"])["text/html"]
        assert f'>{place}</td><td style="text-align:left">y[threadIdx.x] = {n};</td>' in html


def test_unchanged_cell_comes_from_the_cache(cells: Cells) -> None:
    cells.run(f"%%cuda{RAMP}  // {id(cells)}")
    assert not cells.names["ramp"].artifact.provenance.is_hit
    cells.run("1")
    cells.run(f"%%cuda{RAMP}  // {id(cells)}")
    assert cells.names["ramp"].artifact.provenance.is_hit


def test_warnings_are_printed_unless_quiet(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    warned = "%%cuda {}\n__global__ void f(int *x) {{ int unused = {}; }}"
    cells.run(warned.format("", 1))
    assert 'In[1](2): warning #177-D: variable "unused"' in capsys.readouterr().out
    cells.run(warned.format("-q", 2))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nope", ("option", "No such", "--nope")),
        ("--name 'a", ("option", "No closing quotation")),
        ("file.cu", ("option", "unexpected extra")),
        ("--device tpu", ("option", "tpu", "cuda:0")),
        ("--check memory --device cuda:0", ("option", "--check", "--profile", "CPU")),
        ("--check luck", ("option-unknown", "luck")),
        ("-O nope=1", ("option-unknown", "nope")),
        ("--std c++99", ("option", "std", "c++99")),
        ("--profile int", ("option", "--module")),
    ],
)
def test_wrong_line_is_cujits_error_without_a_traceback(
    cells: Cells, capsys: pytest.CaptureFixture[str], line: str, says: tuple[str, ...]
) -> None:
    error = cells.failure(f"%%cuda {line}\n__global__ void f() {{}}")
    assert isinstance(error, cujit.errors.OptionError)
    holds(error, *says)
    said = "".join(capsys.readouterr())
    assert said.startswith("OptionError: ")
    assert "Traceback" not in said
    assert "f" not in cells.names


def test_help_lists_the_options(cells: Cells) -> None:
    help = cells.shell.find_magic("cuda", "cell").__doc__
    assert "Compile a cell of CUDA C++" in help
    for option in ("--arch", "--std", "-I", "-D", "--check", "--profile", "--name", "--module", "--device"):
        assert option in help


def test_compile_error_shows_lines_of_the_cell(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    error = cells.failure("%%cuda -D A\n__global__ void f(int *x) {\n\tx[0] = y;\n}")
    assert isinstance(error, cujit.errors.CompileError)
    ((display),) = cells.displayed()
    assert (
        "In[1]\n  2 | __global__ void f(int *x) {\n&gt; 3 | \tx[0] = y;\n    | \t       ^\n  4 | }"
        in display["text/html"]
    )
    assert display["text/plain"] == str(error)
    assert "".join(capsys.readouterr()).strip() == "CompileError: In[1] does not compile for compute_90a: 1 error"


def test_repeated_failure_uses_the_current_cell_name(cells: Cells) -> None:
    for count in (1, 2):
        cells.failure("%%cuda\n__device__ int x = y;")
        assert f"In[{count}] does not compile" in cells.displayed()[0]["text/html"]


def test_hints_are_spelled_as_options(cells: Cells) -> None:
    error = cells.failure("%%cuda\n#include <of_mine.h>\n__global__ void f() {}")
    assert isinstance(error, cujit.errors.HeaderNotFoundError)
    assert error.help is not None
    assert "-I DIR" in error.help
    assert "-I DIR" in cells.displayed()[0]["text/html"]


def test_extension_is_unloaded_and_kernels_remain(cells: Cells) -> None:
    cells.run(f"%%cuda{RAMP}")
    cells.run("%reload_ext cujit")
    cells.run(f"%%cuda\n{RAMP}")  # it still is one of an earlier cell
    cells.run("%unload_ext cujit")
    assert isinstance(cells.names["ramp"], Kernel)
    assert cells.shell.find_magic("cuda", "cell") is None
    assert "text/html" not in cells.shown(cells.names["ramp"].artifact)


def test_missing_ipython_is_reported() -> None:
    with raises(cujit.errors.MissingError, "missing", "IPython"):
        load(None)


def test_cell_shows_a_small_report_of_its_kernels(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(f"%%cuda --device cpu --report -q --arch sm_90 --name twice<float>{TEMPLATE}{RAMP}")
    assert capsys.readouterr().out == ""
    (shown,) = cells.displayed()
    rows = Written(shown["text/html"]).rows
    assert rows[0] == [
        "kernel", "registers", "shared bytes", "spilled bytes", "code bytes", "block", "occupancy", "limited by",
    ]  # fmt: skip
    assert {row[0] for row in rows[1:]} == {"twice<float>", "ramp"}
    assert all(int(row[1]) > 4 and row[6].startswith("100% of") for row in rows[1:])
    assert "twice<float>" in shown["text/plain"]


def test_report_is_shown_small_with_its_findings_and_counters(cells: Cells) -> None:
    cells.run(f"%%cuda --profile costs -q{STRIDED}")
    cells.run("copy[1, 32](copy.device.zeros(1024, 'f4'), copy.device.zeros(32, 'f4'), 32)")
    report = cells.run(
        "import cujit\ncujit.report.of(copy.artifact, profile=costs.kernels[0], on='H200', title='a cell')"
    )
    written = Written(cells.shown(report)["text/html"])
    assert written.text.startswith("a cell")
    assert written.rows[1][0] == "copy"
    assert written.rows[1][5:7] == ["32", "50% of H200"]
    assert any("sectors" in row for row in written.rows)
    assert "estimate for H200" in written.text


@needs_tiles
def test_tile_ir_of_a_cell_is_shown_by_its_lines(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(f"%%cuda --device cpu --tile -q\n{TWICE}")
    (shown,) = cells.displayed()
    [load] = [line for line in shown["text/plain"].split("\n") if "load_view_tko" in line]
    number = 1 + next(n for n, line in enumerate(TWICE.split("\n"), 1) if "load_masked" in line)
    assert load.split()[0] == f"In[1]:{number}"
    assert f'<td style="text-align:left">In[1]:{number}</td>' in shown["text/html"]
    assert "twice" in cells.names
    assert capsys.readouterr().out == ""
    with raises(CompileError, "compile", "requires a tile kernel"):
        raise cells.failure(f"%%cuda --device cpu --tile{RAMP}")


@needs_tiles
def test_cell_of_tile_code_is_compiled_and_launched(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(f"%%cuda --device cpu\n{TWICE}")
    assert capsys.readouterr().out.startswith("twice: ")
    twice = cells.names["twice"]
    x = twice.device.array(np.ones(300, np.float32))
    block = cujit.inspect(twice.artifact).kernel("_Z5twicePfi").required_block
    twice.prepare(2, block)(x, 300)
    assert (x.numpy() == 2).all()
