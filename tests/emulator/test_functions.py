"""The table of the driver's functions, against the headers of the installed toolkit."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.metadata import files
from pathlib import Path

import pytest

from cujit.emulator.functions import PER_THREAD, exports, find, forms
from emulator.programs import program

ELSEWHERE = {"cuWGLGetDevice", "cuEventCreateFromEGLSync"}
"""What headers have for Windows, and for Tegra: the driver of an H200 says that there is none."""


def header(name: str) -> str:
    (path,) = (Path(str(file.locate())) for file in files("nvidia-cuda-runtime") or () if file.name == name)
    return path.read_text()


def test_function_table_matches_the_typedef_headers() -> None:
    said: dict[str, set[tuple[int, str]]] = defaultdict(set)
    text = "".join(header(f"cuda{of}Typedefs.h") for of in ("", "Profiler", "GL", "EGL", "VDPAU"))
    for base, version, flavour in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
        said[base].add((int(version), flavour))
    for base in ELSEWHERE:
        del said[base]
    assert {base: {(form.since, form.flavour) for form in each} for base, each in forms().items()} == said


def test_every_function_of_the_header_is_exported() -> None:
    text = "".join(header(name) for name in ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"))
    declared = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", text)) - ELSEWHERE
    assert len(declared) > 400
    assert declared <= exports().keys()


def test_newest_version_has_the_plain_name_as_in_the_header() -> None:
    newest = dict(
        re.findall(
            r"^\s*#define (cu\w+)\s+(?:__CUDA_API_PTSZ\(|__CUDA_API_PTDS\()?(cu\w+_v\d)\b", header("cuda.h"), re.M
        )
    )
    found = {base: find(base, 99999) for base in newest if base in forms()}
    assert len(found) > 60
    newest["cuGraphAddNode"] = "cuGraphAddNode_v3"  # which the header has by that name alone
    assert {base: form.function for base, form in found.items() if form} == {base: newest[base] for base in found}


@pytest.mark.parametrize(
    ("base", "version", "flags", "export"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 12000, PER_THREAD, "cuMemAlloc_v2"),
        ("cuMemcpyHtoD", 12000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
        ("cuStreamGetCaptureInfo", 12000, PER_THREAD, "cuStreamGetCaptureInfo_v2_ptsz"),
    ],
)
def test_form_is_found_by_name_version_and_flavour(base: str, version: int, flags: int, export: str) -> None:
    form = find(base, version, flags)
    assert form is not None
    assert form.export == export


def test_function_query_reports_found_unknown_or_newer() -> None:
    """By both forms of the call; the first has no word for why."""
    program("""
    lib = ctypes.CDLL("libcuda.so.1")
    said = {}
    for symbol, version in ((b"cuMemAlloc", 13000), (b"cuNothing", 13000), (b"cuGraphAddNode", 12000)):
        address, status = ctypes.c_void_p(1), ctypes.c_int(7)
        asked = symbol, ctypes.byref(address), version, ctypes.c_uint64(0)
        result = lib.cuGetProcAddress_v2(*asked, ctypes.byref(status))
        older = lib.cuGetProcAddress(*asked)
        said[symbol] = result, bool(address.value), status.value, older
    print(said)
    assert said == {
        b"cuMemAlloc": (0, True, 0, 0),
        b"cuNothing": (0, False, 1, 500),
        b"cuGraphAddNode": (0, False, 2, 500),
    }, said
    """)


def test_name_that_no_driver_has_is_not_found() -> None:
    assert find("cuMakeCoffee", 13000) is None
    assert find("cuFuncSetAttribute", 2000) is None
    assert find("cuStreamQuery", 2000, PER_THREAD) is None
