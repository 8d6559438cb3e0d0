"""NVIDIA's documented calls by their names: the same answers, and a clear error where C would crash."""

from __future__ import annotations

import array
import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.errors import ToolError
from cujit.toolchain import nvfatbin, nvjitlink, nvrtc, nvvm
from cujit.toolchain.calls import ToolLibrary
from cujit.toolchain.results import InputType, NvFatbinResult, NvJitLinkResult, NvrtcResult, NvvmResult
from cujit.toolchain.toolset import Toolchain
from llvm_ir import SCALE
from raising import raises

PTX = b".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n"
IR = SCALE.encode()
ERRORS: dict[str, Any] = {
    "nvvm": nvvm.nvvmError,
    "nvjitlink": nvjitlink.nvJitLinkError,
    "nvfatbin": nvfatbin.nvFatbinError,
    "nvrtc": nvrtc.nvrtcError,
}

pytestmark = pytest.mark.usefixtures("toolchain", "open_libraries")


@pytest.fixture
def open_libraries(toolchain: Any) -> None:
    """Have every ledger counted, so that a handle left open is seen."""
    assert toolchain.nvrtc
    assert toolchain.nvvm
    assert toolchain.nvjitlink
    assert toolchain.nvfatbin


@pytest.fixture
def program() -> Iterator[int]:
    prog = nvvm.create_program()
    yield prog
    nvvm.destroy_program(prog)


@pytest.fixture
def link() -> Iterator[int]:
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    yield handle
    nvjitlink.destroy(handle)


@pytest.fixture
def fatbin() -> Iterator[int]:
    handle = nvfatbin.create([], 0)
    yield handle
    nvfatbin.destroy(handle)


@pytest.fixture
def cpp() -> Iterator[int]:
    result, prog = nvrtc.nvrtcCreateProgram(b"__global__ void k() {}", b"k.cu", 0, [], [])
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
    yield prog
    assert nvrtc.nvrtcDestroyProgram(prog) == (NvrtcResult.NVRTC_SUCCESS,)


# Names and numbers


@pytest.mark.parametrize(
    ("ours", "module", "name", "prefix"),
    [
        (NvvmResult, "nvvm", "Result", "NVVM_"),
        (NvJitLinkResult, "nvjitlink", "Result", "NVJITLINK_"),
        (InputType, "nvjitlink", "InputType", "NVJITLINK_INPUT_"),
        (NvFatbinResult, "nvfatbin", "Result", "NVFATBIN_"),
        (NvrtcResult, "nvrtc", "nvrtcResult", ""),
    ],
)
def test_every_result_code_has_both_names(ours: Any, module: str, name: str, prefix: str) -> None:
    theirs = getattr(importlib.import_module(f"cuda.bindings.{module}"), name).__members__
    assert theirs
    for member, value in theirs.items():
        assert ours[member] is ours[prefix + member]
        assert int(ours[member]) == int(value)


def test_code_newer_than_the_table_is_no_second_error() -> None:
    assert nvvm.Result(4321).name == "UNKNOWN_4321"
    assert nvvm.nvvmError(4321).result == "UNKNOWN_4321"


@pytest.mark.parametrize("module", ["nvvm", "nvjitlink", "nvfatbin"])
def test_every_documented_call_has_its_parameters(module: str) -> None:
    theirs = importlib.import_module(f"cuda.bindings.{module}")
    ours = importlib.import_module(f"cujit.toolchain.{module}")
    calls = [name for name, thing in vars(theirs).items() if callable(thing) and name[0].islower() and thing.__doc__]
    calls = [name for name in calls if (theirs.__dict__[name].__doc__ or "").startswith(f"{name}(")]
    assert len(calls) > 10
    for name in calls:
        first_line = theirs.__dict__[name].__doc__.splitlines()[0]
        documented = [p.split()[-1] for p in first_line.partition("(")[2].partition(")")[0].split(",") if p.strip()]
        assert list(inspect.signature(getattr(ours, name)).parameters) == documented, name


def test_every_nvrtc_call_exists_unless_it_takes_addresses() -> None:
    from cuda.bindings import nvrtc as theirs

    calls = {name for name in vars(theirs) if name.startswith("nvrtc")}
    left_out = {"nvrtcRemoveBundledHeaders", "nvrtcBundledHeadersInfo"}  # it deletes everything in a folder; a type
    assert calls - left_out <= set(vars(nvrtc))


TILE = """
#include <cuda_tile.h>
__tile_global__ void k(float* a, float* b, int n) {
    namespace ct = cuda::tiles;
    ct::tensor_span from{a, ct::extents<int, ct::dynamic_extent>{n}}, to{b, ct::extents<int, ct::dynamic_extent>{n}};
    ct::partition_view x{from, ct::shape<256>{}}, y{to, ct::shape<256>{}};
    y.store(x.load_masked(ct::bid().x) * 2.0f, ct::bid().x);
}
"""


def test_only_tile_code_gives_tile_ir(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 3):
        pytest.skip("tile code came with CUDA 13.3")
    options = ["-arch=compute_90", "-std=c++20", "--enable-tile", *(f"-I{path}" for path in toolchain.headers.paths)]
    sizes = {}
    for text in (TILE, "__global__ void k() {}"):
        with toolchain.nvrtc.program(text.encode(), b"k.cu") as program:
            program.compile([option.encode() for option in options])
            result, sizes[text] = nvrtc.nvrtcGetTileIRSize(program.raw)
            found = bytearray(sizes[text])
            assert (result, nvrtc.nvrtcGetTileIR(program.raw, found)) == (0, (0,))
            assert text is not TILE or found.startswith(b"\x7fTileIR\0")
    assert sizes[TILE] > 500 > sizes["__global__ void k() {}"]


@pytest.mark.parametrize("name", ERRORS)
def test_bare_code_raises_the_documented_error(name: str) -> None:
    error = ERRORS[name](3)
    assert error.status == 3
    assert issubclass(ERRORS[name], ToolError)
    assert "(3)" in str(error)


def test_error_names_a_library_before_its_version_is_known() -> None:
    with raises(nvvm.nvvmError, "tool", "nvvmNothing") as caught:
        ToolLibrary("libNVVM", "nvvm", nvvm.nvvmError).call("nvvmNothing", "nothing")
    assert caught.value.tool == "libNVVM"


# Routes


def test_llvm_ir_becomes_ptx_by_the_documented_calls(program: int) -> None:
    assert nvvm.version() >= (2, 0)
    assert len(nvvm.ir_version()) == 4
    assert program
    assert isinstance(program, int)
    nvvm.add_module_to_program(program, IR, len(IR), "scale.ll")
    nvvm.verify_program(program, 1, ["-arch=compute_90"])
    nvvm.compile_program(program, 1, ["-arch=compute_90"])
    buffer = bytearray(nvvm.get_compiled_result_size(program))
    nvvm.get_compiled_result(program, buffer)
    assert b".visible .entry scale(" in buffer
    log = bytearray(nvvm.get_program_log_size(program))
    nvvm.get_program_log(program, log)
    assert log == b"\0"


def test_refusal_of_nvvm_carries_status_and_log(program: int) -> None:
    with pytest.raises(nvvm.nvvmError) as caught:
        nvvm.compile_program(program, 0, [])
    assert caught.value.status is nvvm.Result.NVVM_ERROR_NO_MODULE_IN_PROGRAM
    nvvm.add_module_to_program(program, b"nonsense", 8, "n.ll")
    with raises(nvvm.nvvmError, "tool", "nvvmCompileProgram", "ERROR_COMPILATION (9)") as caught:
        nvvm.compile_program(program, 0, [])
    assert caught.value.result == "NVVM_ERROR_COMPILATION"
    assert "n.ll (1, 0)" in caught.value.log
    assert nvvm.get_error_string(caught.value.status) == "NVVM_ERROR_COMPILATION"


def test_lazy_modules_alone_are_no_program(program: int) -> None:
    nvvm.lazy_add_module_to_program(program, IR, len(IR), None)
    with pytest.raises(nvvm.nvvmError) as caught:
        nvvm.compile_program(program, 0, [])
    assert caught.value.status == nvvm.Result.ERROR_NO_MODULE_IN_PROGRAM


@pytest.mark.parametrize("cut", ["target datalayout", ""])
def test_verifier_refuses_what_would_end_the_process(program: int, cut: str) -> None:
    text = "\n".join(line for line in SCALE.splitlines() if not cut or not line.startswith(cut)).encode()
    for name in ("a.ll", "b.ll")[: 1 if cut else 2]:  # no layout, or one function twice
        nvvm.add_module_to_program(program, text, len(text), name)
    with pytest.raises(nvvm.nvvmError) as caught:
        nvvm.verify_program(program, 1, ["-arch=compute_100"])
    assert caught.value.status is nvvm.Result.ERROR_INVALID_IR
    assert caught.value.log


def test_llvm_version_of_an_architecture_is_returned() -> None:
    from cujit.toolchain.nvvm import Nvvm

    if Nvvm().release < (13, 1):
        with raises(nvvm.nvvmError, "tool", "nvvmLLVMVersion"):
            nvvm.llvm_version("compute_90")
        return
    assert (nvvm.llvm_version("compute_90"), nvvm.llvm_version("compute_100") > 7) == (7, True)
    with pytest.raises(nvvm.nvvmError):
        nvvm.llvm_version("compute_1")


def test_ptx_becomes_a_cubin_by_the_documented_calls(link: int) -> None:
    assert nvjitlink.version() >= (12, 0)
    nvjitlink.add_data(link, nvjitlink.InputType.NVJITLINK_INPUT_PTX, PTX, len(PTX), "nothing.ptx")
    nvjitlink.complete(link)
    cubin = np.zeros(nvjitlink.get_linked_cubin_size(link), np.uint8)
    nvjitlink.get_linked_cubin(link, cubin)
    assert cubin.tobytes().startswith(b"\x7fELF")
    for size, get in (
        (nvjitlink.get_error_log_size, nvjitlink.get_error_log),
        (nvjitlink.get_info_log_size, nvjitlink.get_info_log),
    ):
        get(link, bytearray(size(link)))


def test_file_is_linked_and_any_lets_the_library_look(link: int, tmp_path: Path) -> None:
    path = tmp_path / "nothing.ptx"
    path.write_bytes(PTX)
    nvjitlink.add_file(link, nvjitlink.InputType.ANY, path)
    nvjitlink.complete(link)
    assert nvjitlink.get_linked_cubin_size(link) > 1000


def test_failed_link_carries_both_logs_and_the_names_of_inputs() -> None:
    wants = b".version 7.8\n.target sm_75\n.address_size 64\n.extern .func f;\n.visible .entry k() { call f; ret; }\n"
    handle = nvjitlink.create(2, ["-arch=sm_90", "-verbose"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, wants, len(wants), "wants_f.ptx")
    litter = [bytes([65 + n % 26]) * 12 for n in range(1000)]  # over the memory that the bindings freed
    with pytest.raises(nvjitlink.nvJitLinkError) as caught:
        nvjitlink.complete(handle)
    assert litter
    assert "Undefined reference to 'f' in 'wants_f.ptx'" in caught.value.error_log
    assert "Compiling entry function 'k'" in caught.value.info_log
    nvjitlink.destroy(handle)


def test_images_become_a_fatbin_by_the_documented_calls(fatbin: int) -> None:
    assert nvfatbin.version() >= (12, 4)
    nvfatbin.add_ptx(fatbin, bytearray(PTX), len(PTX), "75", "nothing", "-O1")
    one = nvfatbin.size(fatbin)
    nvfatbin.add_ptx(fatbin, PTX, len(PTX), "80", "nothing", "")
    buffer = bytearray(nvfatbin.size(fatbin))
    assert len(buffer) > one
    nvfatbin.get(fatbin, buffer)
    assert buffer.startswith(b"\x50\xed\x55\xba")


@pytest.mark.parametrize(
    ("add", "result"),
    [
        (lambda h: nvfatbin.add_cubin(h, b"junk", 4, "75", ""), "ELF_SIZE_MISMATCH"),
        (lambda h: nvfatbin.add_ltoir(h, b"junk", 4, "75", "", ""), "INVALID_NVVM"),
        (lambda h: nvfatbin.add_index(h, b"junk", 4, ""), "INVALID_INDEX"),
        (lambda h: nvfatbin.add_reloc(h, b"junk", 4), "EMPTY_INPUT"),
        (lambda h: nvfatbin.add_ptx(h, PTX, len(PTX), "no", "", ""), "INVALID_ARCH"),
    ],
)
def test_nvfatbin_error_has_its_status(fatbin: int, add: Callable[[int], None], result: str) -> None:
    with pytest.raises(nvfatbin.nvFatbinError) as caught:
        add(fatbin)
    assert caught.value.status is nvfatbin.Result[f"NVFATBIN_ERROR_{result}"]
    assert nvfatbin.get_error_string(caught.value.status)


def test_cpp_becomes_ptx_by_the_documented_calls(cpp: int) -> None:
    assert nvrtc.nvrtcVersion()[1:] >= (12, 0)
    assert nvrtc.nvrtcAddNameExpression(cpp, b"k") == (0,)
    options = [b"-arch=compute_90"]
    (result,) = nvrtc.nvrtcCompileProgram(cpp, len(options), options)
    assert result is nvrtc.nvrtcResult.NVRTC_SUCCESS
    assert nvrtc.nvrtcGetLoweredName(cpp, b"k") == (0, b"_Z1kv")
    _, size = nvrtc.nvrtcGetPTXSize(cpp)
    ptx = bytearray(size)
    assert nvrtc.nvrtcGetPTX(cpp, ptx) == (0,)
    assert b"_Z1kv" in ptx
    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    assert len(nvrtc.nvrtcGetSupportedArchs()[1]) == count


def test_cpp_becomes_ltoir_by_the_documented_calls(cpp: int) -> None:
    assert nvrtc.nvrtcCompileProgram(cpp, 2, [b"-arch=compute_90", b"-dlto"]) == (0,)
    result, size = nvrtc.nvrtcGetLTOIRSize(cpp)
    ltoir = bytearray(size)
    assert (result, nvrtc.nvrtcGetLTOIR(cpp, ltoir)) == (0, (0,))
    assert ltoir.startswith(b"\xed\x43\x4e\x7f")


def test_nvrtc_results_are_returned_and_not_raised(cpp: int) -> None:
    (result,) = nvrtc.nvrtcCompileProgram(cpp, 1, [b"--bogus"])
    assert result == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION
    assert nvrtc.nvrtcGetErrorString(result) == (0, b"NVRTC_ERROR_INVALID_OPTION")
    assert nvrtc.nvrtcGetErrorString(999) == (0, b"NVRTC_ERROR unknown")
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(cpp)[1])
    nvrtc.nvrtcGetProgramLog(cpp, log)
    assert b"--bogus" in log


# Handles

CALLS: dict[str, list[Callable[[Any], object]]] = {
    "nvvm": [
        nvvm.destroy_program,
        nvvm.get_compiled_result_size,
        nvvm.get_program_log_size,
        lambda h: nvvm.compile_program(h, 0, []),
        lambda h: nvvm.verify_program(h, 0, []),
        lambda h: nvvm.add_module_to_program(h, IR, len(IR), "m"),
        lambda h: nvvm.get_program_log(h, bytearray(9)),
        lambda h: nvvm.get_compiled_result(h, bytearray(9)),
    ],
    "nvjitlink": [
        nvjitlink.destroy,
        nvjitlink.complete,
        nvjitlink.get_linked_cubin_size,
        nvjitlink.get_linked_ptx_size,
        nvjitlink.get_error_log_size,
        nvjitlink.get_info_log_size,
        lambda h: nvjitlink.add_data(h, 2, PTX, len(PTX), "p"),
        lambda h: nvjitlink.add_file(h, 2, __file__),
        lambda h: nvjitlink.get_linked_cubin(h, bytearray(9)),
    ],
    "nvfatbin": [
        nvfatbin.destroy,
        nvfatbin.size,
        lambda h: nvfatbin.get(h, bytearray(9)),
        lambda h: nvfatbin.add_ptx(h, PTX, len(PTX), "75", "", ""),
    ],
    "nvrtc": [
        nvrtc.nvrtcDestroyProgram,
        nvrtc.nvrtcGetPTXSize,
        lambda h: nvrtc.nvrtcCompileProgram(h, 0, []),
        lambda h: nvrtc.nvrtcGetPTX(h, bytearray(9)),
    ],
}
MAKE: dict[str, Callable[[], Any]] = {
    "nvvm": nvvm.create_program,
    "nvjitlink": lambda: nvjitlink.create(1, ["-arch=sm_90"]),
    "nvfatbin": lambda: nvfatbin.create([], 0),
    "nvrtc": lambda: nvrtc.nvrtcCreateProgram(b"", b"", 0, [], [])[1],
}


@pytest.mark.parametrize("library", CALLS)
@pytest.mark.parametrize(
    "wrong", [None, 0, 1234, -1, 1 << 70, "handle", b"", 1.5, True, pytest.param(object(), id="object")], ids=repr
)
def test_invalid_handle_is_refused_by_every_call(library: str, wrong: object) -> None:
    for call in CALLS[library]:
        with raises(ERRORS[library], "tool", "handle"):
            call(wrong)


@pytest.mark.parametrize("library", CALLS)
def test_destroyed_handle_is_refused_by_every_call(library: str) -> None:
    handle = MAKE[library]()
    destroy, number = CALLS[library][0], int(handle)
    destroy(handle)
    for call in CALLS[library]:
        with raises(ERRORS[library], "tool", "destroyed"):
            call(handle)
        with raises(ERRORS[library], "tool", "destroyed"):
            call(number)


@pytest.mark.parametrize("call", [nvvm.get_program_log_size, nvvm.destroy_program])
def test_handle_destroyed_during_a_wait_is_refused(call: Callable[[Any], object]) -> None:
    handle: Any = nvvm.create_program()

    class Waiting(contextlib.AbstractContextManager[None]):
        """A lock that another thread has, which destroys the handle before it lets go."""

        def __enter__(self) -> None:
            handle.lock = threading.RLock()
            nvvm.destroy_program(handle)

        def __exit__(self, *_error: object) -> None:
            pass

    handle.lock = Waiting()
    with raises(nvvm.nvvmError, "tool", "NVVM_ERROR_INVALID_PROGRAM"):
        call(handle)


@pytest.mark.parametrize("library", CALLS)
@pytest.mark.parametrize("other", CALLS)
def test_handle_of_another_library_is_refused(library: str, other: str) -> None:
    if library == other:
        return
    handle = MAKE[other]()
    for call in CALLS[library]:
        with raises(ERRORS[library], "tool", "library"):
            call(handle)
    CALLS[other][0](handle)


def test_reused_handle_address_is_a_new_handle() -> None:
    made: dict[int, Any] = {}
    for _ in range(200):
        handle = nvvm.create_program()
        if int(handle) in made:
            with raises(nvvm.nvvmError, "tool", "NVVM_ERROR_INVALID_PROGRAM"):
                nvvm.destroy_program(made[int(handle)])
            nvvm.destroy_program(handle)
            return
        made[int(handle)] = handle
        nvvm.destroy_program(handle)
    pytest.skip("the library never used an address again")


def test_plain_number_of_an_open_handle_serves(program: int) -> None:
    assert nvvm.get_program_log_size(int(program)) == 1


# Buffers, sizes, names, options

READERS: list[tuple[str, str, Callable[[Any], object]]] = [
    ("nvvm", "program", lambda b: lambda h: nvvm.get_program_log(h, b)),
    ("nvjitlink", "link", lambda b: lambda h: nvjitlink.get_error_log(h, b)),
    ("nvfatbin", "fatbin", lambda b: lambda h: nvfatbin.get(h, b)),
    ("nvrtc", "cpp", lambda b: lambda h: nvrtc.nvrtcGetProgramLog(h, b)),
]


@pytest.mark.parametrize(("library", "fixture", "reader"), READERS, ids=[r[0] for r in READERS])
@pytest.mark.parametrize(
    ("buffer", "why"),
    [
        ("s" * 100, "is str"),
        (b"b" * 100, "is bytes, which is immutable"),
        (bytearray(), "too small"),
        (memoryview(b"b" * 100), "is memoryview, which is immutable"),
        (None, "is NoneType"),
        (1 << 40, "is int"),
        ([0] * 100, "is list"),
        (bytearray(200), "not contiguous"),
    ],
    ids=["str", "bytes", "too small", "read-only view", "None", "address", "list", "not contiguous"],
)
def test_unwritable_buffer_is_refused_with_a_hint(
    library: str, fixture: str, reader: Any, buffer: Any, why: str, request: pytest.FixtureRequest
) -> None:
    handle = request.getfixturevalue(fixture)
    if buffer == bytearray(200):
        buffer = memoryview(buffer)[::2]
    if library == "nvjitlink" and buffer == bytearray():
        pytest.skip("the empty log of a new link has no bytes")
    with raises(ERRORS[library], "tool", why, "bytearray") as caught:
        reader(buffer)(handle)
    assert isinstance(caught.value, ValueError | TypeError)


def test_larger_buffer_is_filled_from_its_start(program: int) -> None:
    nvvm.add_module_to_program(program, IR, len(IR), "m")
    nvvm.compile_program(program, 0, [])
    size = nvvm.get_compiled_result_size(program)
    for buffer in (bytearray(b"x" * (size + 4)), array.array("b", b"x" * (size + 4)), np.full(size + 4, 120, np.int8)):
        nvvm.get_compiled_result(program, buffer)
        assert bytes(buffer).endswith(b"\0xxxx")


@pytest.mark.parametrize("wrong", [None, True, "1", 1.5, -1, 1 << 64])
def test_invalid_address_is_refused(cpp: int, wrong: Any) -> None:
    for what, addresses in (("callback", (wrong, 0)), ("payload", (0, wrong))):
        with raises(nvrtc.nvrtcError, "tool", what):
            nvrtc.nvrtcSetFlowCallback(cpp, *addresses)


@pytest.mark.parametrize("wrong", [0, len(IR) - 1, len(IR) + 1, -1, "5", None, True])
def test_size_that_contradicts_the_data_is_refused(program: int, link: int, fatbin: int, wrong: Any) -> None:
    with raises(nvvm.nvvmError, "tool", "buffer"):
        nvvm.add_module_to_program(program, IR, wrong, "m")
    with raises(nvjitlink.nvJitLinkError, "tool", "data"):
        nvjitlink.add_data(link, nvjitlink.InputType.PTX, IR, wrong, "m")
    with raises(nvfatbin.nvFatbinError, "tool", "code"):
        nvfatbin.add_cubin(fatbin, IR, wrong, "90", "m")


@pytest.mark.parametrize("data", ["text", None, 1 << 40, [1, 2]])
def test_nonbytes_data_is_refused(program: int, link: int, fatbin: int, data: Any) -> None:
    with raises(nvvm.nvvmError, "tool", "NVVM_ERROR_INVALID_INPUT"):
        nvvm.add_module_to_program(program, data, 4, "m")
    with raises(nvjitlink.nvJitLinkError, "tool", "NVJITLINK_ERROR_INVALID_INPUT"):
        nvjitlink.add_data(link, 1, data, 4, "m")
    with raises(nvfatbin.nvFatbinError, "tool", "nvFatbin"):
        nvfatbin.add_reloc(fatbin, data, 4)


@pytest.mark.parametrize(
    ("count", "options"),
    [(2, ["-a"]), (0, ["-a"]), (3, "abc"), (1, [5]), (1, ["a\0b"]), (1, ["\ud800"]), (1, 77), ("1", ["-a"])],
)
def test_options_with_a_wrong_count_are_refused(program: int, cpp: int, count: Any, options: Any) -> None:
    with raises(nvvm.nvvmError, "tool", "nvvmCompileProgram"):
        nvvm.compile_program(program, count, options)
    with raises(nvjitlink.nvJitLinkError, "tool", "nvJitLinkCreate"):
        nvjitlink.create(count, options)
    with raises(nvfatbin.nvFatbinError, "tool", "nvFatbinCreate"):
        nvfatbin.create(options, count)
    with raises(nvrtc.nvrtcError, "tool", "nvrtcCompileProgram"):
        nvrtc.nvrtcCompileProgram(cpp, count, options)


@pytest.mark.parametrize("wrong", [99, -1, "PTX", None, True])
def test_unknown_input_type_is_refused_with_known_ones(link: int, wrong: Any) -> None:
    with raises(nvjitlink.nvJitLinkError, "tool", "NVJITLINK_INPUT_PTX"):
        nvjitlink.add_data(link, wrong, PTX, len(PTX), "p")


def test_each_unaddable_file_gets_its_own_error(link: int, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text.cubin").write_text("hello")
    for path in ("missing", "", "empty"):
        with raises(nvjitlink.nvJitLinkError, "tool", "NVJITLINK_ERROR_INVALID_INPUT", tmp_path / path):
            nvjitlink.add_file(link, nvjitlink.InputType.CUBIN, tmp_path / path)
    with pytest.raises(nvjitlink.nvJitLinkError) as caught:
        nvjitlink.add_file(link, nvjitlink.InputType.CUBIN, tmp_path / "text.cubin")
    # The first is what 12.9 says.
    assert caught.value.status in (nvjitlink.Result.ERROR_INVALID_INPUT, nvjitlink.Result.ERROR_INCORRECT_INPUT_TYPE)


def test_headers_with_a_wrong_count_are_refused() -> None:
    for count, headers, names in ((1, [], []), (1, [b""], []), (0, [b""], [b"a.h"])):
        with raises(nvrtc.nvrtcError, "tool", "nvrtcCreateProgram"):
            nvrtc.nvrtcCreateProgram(b"", b"k.cu", count, headers, names)
    with raises(nvrtc.nvrtcError, "tool", "NUL"):
        nvrtc.nvrtcCreateProgram(b"int a;\0int b;", b"k.cu", 0, [], [])


def test_data_may_be_freed_before_it_is_used(program: int) -> None:
    module = bytearray(IR)
    nvvm.add_module_to_program(program, module, len(module), "m")
    module[:] = b"\xff" * len(module)
    nvvm.compile_program(program, 0, [])
