"""Images as Python modules and as C headers: everything comes back, and the module loads itself."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.embedding import c_header
from cujit.devices.device import Device
from cujit.errors import OptionError
from cujit.program import Source, build, compile
from raising import raises

AXPY = Source.cuda(
    """template <class T> __global__ void axpy(T a, const T *x, T *y, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }""",
    name="axpy.cu",
)
NAMES = ["axpy<float>", "axpy<double>"]


def imported(text: str, folder: Path) -> ModuleType:
    path = folder / "_kernels.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("to", ["ptx", "cubin", "ltoir", "fatbin"])
def test_image_of_every_kind_is_restored_with_its_metadata(to: str, tmp_path: Path) -> None:
    image = build(AXPY, ["sm_80", "compute_75"], names=NAMES) if to == "fatbin" else compile(AXPY, to=to, names=NAMES)
    back = imported(image.to_python(), tmp_path).artifact()
    assert (back.kind, back.data, back.arch) == (image.kind, image.data, image.arch)
    assert dict(back.names) == dict(image.names)
    assert dict(back.signatures) == dict(image.signatures)
    assert back.tool == image.tool


def test_module_loads_on_every_device(device: Device, tmp_path: Path) -> None:
    module = imported(build(AXPY, ["sm_80", "sm_90", "compute_75"], names=NAMES).to_python(), tmp_path)
    x, y = device.array(np.arange(8.0)), device.array(np.ones(8))
    module.load(device)["axpy<double>"][1, 32](2.0, x, y, 8)
    assert y.numpy().tolist() == [1 + 2.0 * k for k in range(8)]


def test_ptx_stays_readable_text() -> None:
    text = compile(AXPY, to="ptx", arch="compute_75", names=NAMES).to_python()
    assert text.startswith('"""CUDA kernels: a ptx for compute_75, ')
    assert ".entry _Z4axpyIfEvT_" in text
    assert max(map(len, text.splitlines())) < 400


def test_ptx_that_would_end_its_quotes_is_compressed(tmp_path: Path) -> None:
    data = b'.version 8.0\n.target sm_80\n// """ + __import__("os").abort() + r"""\n'
    module = imported(Artifact(ImageKind.PTX, data).to_python(), tmp_path)
    assert module.artifact().data == data


def test_name_cannot_smuggle_code_into_the_module(tmp_path: Path) -> None:
    name = "x': 1}; raise SystemExit('taken')  # \n\"\"\" {0} %s \\"
    module = imported(
        Artifact(ImageKind.PTX, b".version 8.0\n", names={name: name}, tool=name, name=name).to_python(), tmp_path
    )
    assert name in module.artifact().names


def test_command_writes_the_module(tmp_path: Path) -> None:
    source = compile(AXPY, to="cubin", arch="sm_90", names=NAMES).save(tmp_path / "k.cubin")
    out = tmp_path / "k.py"
    subprocess.run([sys.executable, "-m", "cujit", "embed", str(source), "-o", str(out)], check=True)
    assert imported(out.read_text(), tmp_path).artifact().data == source.read_bytes()


# -- C ----------------------------------------------------------------------------------------------------

PROGRAM = r"""
#include "axpy.h"
#include "axpy.h"
#include <stdio.h>
#include <string.h>
int main(void) {
    size_t i;
    static const char kept[AXPY_SIZE] = {0};
    if ((size_t)axpy_image % 16) return 1;
    if (sizeof kept != AXPY_SIZE || sizeof axpy_image <= AXPY_SIZE) return 2;
    if (((const char *)axpy_image)[AXPY_SIZE]) return 3;
    for (i = 0; i < AXPY_KERNEL_COUNT; i++) printf("%s=%s\n", axpy_kernels[i].expression, axpy_kernels[i].lowered);
    printf("%s\n", axpy_kernel_axpy_double);
    fwrite(axpy_image, 1, AXPY_SIZE, stdout);
    return 0;
}
"""
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
COMPILERS = [["cc", "-std=c99"], ["cc", "-std=c11"], ["c++", "-std=c++98", "-Wno-long-long"], ["c++", "-std=c++17"]]


def built(compiler: list[str], folder: Path, program: str) -> Path:
    """Compile a program with a compiler of the host, every warning an error."""
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]}")
    source = folder / ("main.cpp" if compiler[0] == "c++" else "main.c")
    source.write_text(program)
    subprocess.run([*compiler, *STRICT, source.name, "-o", "main"], cwd=folder, check=True)
    return folder / "main"


@pytest.mark.parametrize("compiler", COMPILERS, ids=" ".join)
@pytest.mark.parametrize("to", ["ptx", "fatbin"])
def test_header_has_the_image_and_names_for_c_and_cpp(to: str, compiler: list[str], tmp_path: Path) -> None:
    image = build(AXPY, ["sm_80", "compute_75"], names=NAMES) if to == "fatbin" else compile(AXPY, to=to, names=NAMES)
    (tmp_path / "axpy.h").write_text(image.to_c("axpy"))
    said = subprocess.run([built(compiler, tmp_path, PROGRAM)], capture_output=True, check=True).stdout
    expected = "".join(f"{name}={lowered}\n" for name, lowered in image.names.items()) + image.names["axpy<double>"]
    assert said == f"{expected}\n".encode() + image.data


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 48, 49])
def test_header_has_the_words_of_an_image_and_a_final_zero(size: int) -> None:
    data = bytes(range(1, size + 1))
    header = c_header(Artifact(ImageKind.CUBIN, data, arch=Arch.parse("sm_90"), name="k"), "k")
    words = [int(word, 16) for word in re.findall(r"\b0x[0-9a-f]+", header.partition("k_image[] = {")[2])]
    assert b"".join(word.to_bytes(8, "little") for word in words) == data + bytes(8 - size % 8)
    assert max(line.count("0x") for line in header.splitlines()) == min(len(words), 6)


def test_equal_images_give_equal_headers() -> None:
    one, two = (compile(AXPY, to="ptx", names=NAMES, cache=False).to_c("k") for _ in range(2))
    assert one == two


def test_names_invalid_in_c_are_numbered_and_quoted(tmp_path: Path) -> None:
    odd = {"k<1>": "_Z1", "k[1]": 'a"\\??/\n*/', "k(1)": "_Z2", "int": "int", "9": "nine", "µ": "µ", "k ~}": "\x7f\x1f"}
    text = Artifact(ImageKind.PTX, b".version 8.0\n", names=odd).to_c("odd")
    assert '"k ~}"' in text
    assert r'"\177\037"' in text
    (tmp_path / "odd.h").write_text(text)
    program = r"""
#include "odd.h"
#include <stdio.h>
int main(void) {
    size_t i;
    for (i = 0; i < ODD_KERNEL_COUNT; i++) printf("%s%c%s%c", odd_kernels[i].expression, 0, odd_kernels[i].lowered, 0);
    return puts(odd_kernel_k_1) < 0 || puts(odd_kernel_k_1_2) < 0 || puts(odd_kernel_k_1_3) < 0
        || puts(odd_kernel_image_9) < 0;
}
"""
    said = subprocess.run([built(["cc", "-std=c99"], tmp_path, program)], capture_output=True, check=True).stdout
    words = said.decode().split("\0")
    assert dict(zip(words[:-1:2], words[1:-1:2], strict=True)) == odd


@pytest.mark.parametrize("name", ["", "9", "a b", "a__b", "_x", "ä"])
def test_invalid_c_prefix_is_refused(name: str) -> None:
    with raises(OptionError, "option", "C++", "name"):
        Artifact(ImageKind.PTX, b".version 8.0\n").to_c(name)


def test_command_names_a_header_after_its_file(tmp_path: Path) -> None:
    source = build(AXPY, ["sm_80", "compute_75"], names=NAMES).save(tmp_path / "k.fatbin")
    out = tmp_path / "my-kernels.h"
    command = [sys.executable, "-m", "cujit", "embed", str(source), "-o", str(out), "--language", "c"]
    subprocess.run(command, check=True)
    text = out.read_text()
    assert "static const uint64_t my_kernels_image[]" in text
    assert '    {"axpy<double>", my_kernels_kernel_axpy_double},' in text
