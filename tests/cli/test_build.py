from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import Result

from cujit.devices.process import process_devices
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import read_fatbin

Cujit: TypeAlias = Callable[..., Result]

_TWO = ("--target", "sm_90", "--target", "compute_80", "--name", "axpy<float>")


def test_fatbin_contains_the_requested_targets(cujit: Cujit, axpy: Path) -> None:
    result = cujit("build", str(axpy), *_TWO, "-o", "out.fatbin")
    assert result.exit_code == 0, result.stderr
    assert [str(e) for e in read_fatbin(Path("out.fatbin").read_bytes())] == ["cubin sm_90", "ptx compute_80"]
    for word in ("kind", "arch", "bytes", "compressed", "registers", "sm_90", "compute_80", "out.fatbin:"):
        assert word in result.stdout.split()


def test_json_lists_the_images_of_the_file(cujit: Cujit, axpy: Path) -> None:
    result = cujit("build", str(axpy), *_TWO, "-o", "out.fatbin", "--json")
    told = json.loads(result.stdout)
    data = Path("out.fatbin").read_bytes()
    (cubin, ptx), (kernel,) = read_fatbin(data), read_cubin(read_fatbin(data).cubin_entries[0].payload()).kernels
    assert told == {
        "output": "out.fatbin",
        "bytes": len(data),
        "images": [
            {
                "kind": "cubin",
                "arch": "sm_90",
                "bytes": cubin.size,
                "stored_bytes": cubin.stored_bytes,
                "compression": cubin.compression.value,
                "kernels": [{"name": kernel.name, "registers": kernel.registers, "shared_bytes": 0}],
            },
            {
                "kind": "ptx",
                "arch": "compute_80",
                "bytes": ptx.size,
                "stored_bytes": ptx.stored_bytes,
                "compression": ptx.compression.value,
            },
        ],
        "names": {"axpy<float>": kernel.name},
    }


def test_compression_option_is_applied(cujit: Cujit, axpy: Path) -> None:
    assert cujit("build", str(axpy), *_TWO, "--compress", "none").exit_code == 0
    assert not any(e.is_compressed for e in read_fatbin(Path("axpy.fatbin").read_bytes()))


def test_fatbin_lands_in_the_working_directory(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "k.cu").write_text("__global__ void k(int* x) { *x = 1; }")
    assert cujit("build", "deep/k.cu", "-t", "compute_80").exit_code == 0
    assert Path("k.fatbin").is_file()


def test_options_reach_the_compiler(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "h.h").write_text("#define H 1")
    text = "#include <h.h>\n#if H != 1 || N != 4 || __cplusplus != 202002L\n#error not said\n#endif\n"
    (tmp_path / "k.cu").write_text(text + "__global__ void k(int* x) { *x = 1; }")
    said = ("build", "k.cu", "-t", "compute_80", "--jobs", "1")
    assert cujit(*said).exit_code == 1
    assert cujit(*said, "-I", "inc", "-D", "N=4", "-O", "std=c++20").exit_code == 0


def test_compile_error_is_printed_once_and_writes_nothing(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("__global__ void k(int* x) { *x = foo; }")
    result = cujit("build", "bad.cu", "-t", "sm_90", "-t", "compute_80")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count('identifier "foo" is undefined') == 1
    assert "Traceback" not in result.stderr
    assert not Path("bad.fatbin").exists()


def test_warnings_go_to_standard_error(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { int unused; *x = 1; }")
    result = cujit("build", "k.cu", "-t", "compute_80", "--json")
    assert '"unused" was declared but never referenced' in result.stderr
    assert json.loads(result.stdout)["output"] == "k.fatbin"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-t", "sm_91"), 1, "unknown architecture 'sm_91'"),
        (("-t", "sm_90", "-O", "ftzz"), 1, "did you mean ftz"),
        (("-t", "sm_90", "-n", "axpy<"), 1, "axpy<"),
        (("-t", "sm_90", "--jobs", "0"), 2, "--jobs"),
        (("-t", "sm_90", "--compress", "tiny"), 2, "--compress"),
        (("-t", "compute_80", "-o", "no/where"), 1, "no/where can't be written: No such file"),
    ],
)
def test_wrong_input_is_refused(cujit: Cujit, axpy: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = cujit("build", str(axpy), *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_missing_source_is_a_usage_error(cujit: Cujit) -> None:
    assert cujit("build", "none.cu").exit_code == 2


@pytest.mark.gpu
def test_native_means_local_gpus_or_reports_that_none_exist(cujit: Cujit, axpy: Path) -> None:
    result = cujit("build", str(axpy), "-t", "native", "-n", "axpy<int>", "--json")
    gpus = process_devices().gpus()
    if gpus:
        assert {i["arch"] for i in json.loads(result.stdout)["images"]} == {str(g.arch) for g in gpus}
    else:
        assert result.exit_code == 3
