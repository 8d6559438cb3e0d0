"""libNVVM, the compiler of LLVM IR: NVIDIA's documented calls by their names, checked, and an NvvmProgram over them.

The functions take and give what ``cuda.bindings.nvvm`` documents; wrong handles, sizes and buffers are refused
before C sees them. Source: libNVVM API manual; cuda.bindings.nvvm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import install
from cujit.errors import ToolchainNotFoundError
from cujit.forks import cached_property, once
from cujit.toolchain.calls import Buffer, CallError, Readable, ToolLibrary, as_text
from cujit.toolchain.handles import LibraryHandle
from cujit.toolchain.libraries import library_path, load_binding
from cujit.toolchain.results import NvvmResult as Result

__all__ = [
    "FIRST_OPAQUE",
    "MODULE_HEAD",
    "Nvvm",
    "NvvmProgram",
    "Result",
    "add_module_to_program",
    "compile_program",
    "create_program",
    "destroy_program",
    "find_libdevice",
    "get_compiled_result",
    "get_compiled_result_size",
    "get_error_string",
    "get_program_log",
    "get_program_log_size",
    "ir_version",
    "lazy_add_module_to_program",
    "llvm_version",
    "nvvmError",
    "verify_program",
    "version",
]

FIRST_OPAQUE = 100
"""From this architecture on, NVVM is made of an LLVM with opaque pointers; below, of LLVM 7.

Source: NVVM IR specification, "Introduction"; measured with 12.9, 13.0 and 13.4.
"""


class nvvmError(CallError):  # noqa: N801  # NVIDIA's name
    """An error of libNVVM. ``status`` is a Result, and ``log`` is the program's log."""

    codes = Result
    bad_handle, bad_argument = Result.ERROR_INVALID_PROGRAM, Result.ERROR_INVALID_INPUT


@once
def _library() -> ToolLibrary:
    library = ToolLibrary("libNVVM", "nvvm", nvvmError)
    major, minor = library.call("nvvmVersion", "version")
    library.tool = f"libNVVM {major}.{minor}"
    return library


def version() -> tuple[int, int]:
    """Return the version of the library's interface, (major, minor).

    Raises:
        ToolchainNotFoundError: libNVVM or cuda-bindings is not installed; so for every call here.
    """
    major, minor = _library().call("nvvmVersion", "version")
    return major, minor


def ir_version() -> tuple[int, int, int, int]:
    """Return the version of NVVM IR and of its debug metadata: (major, minor, debug major, debug minor)."""
    major, minor, debug_major, debug_minor = _library().call("nvvmIRVersion", "ir_version")
    return major, minor, debug_major, debug_minor


def llvm_version(arch: str) -> int:
    """Return the version of LLVM whose IR is accepted for ``arch`` (``compute_90``).

    Raises:
        nvvmError: there is no such architecture, or this libNVVM (before 13.1) cannot tell.
    """
    library, function = _library(), "nvvmLLVMVersion"
    number: int = library.call(function, "llvm_version", library.text(function, "arch", arch))
    return number


def get_error_string(result: int) -> str:
    """Return the library's text for a Result."""
    text: str = _library().call("nvvmGetErrorString", "get_error_string", int(result))
    return text


def create_program() -> int:
    """Create an empty program, and return its handle."""
    library, function = _library(), "nvvmCreateProgram"
    return library.made("libNVVM program", library.call(function, "create_program"))


def destroy_program(prog: int) -> None:
    """Release a program and everything that it holds.

    Raises:
        nvvmError: it is no open program of libNVVM.
    """
    library, function = _library(), "nvvmDestroyProgram"
    with library.ending(function, prog) as raw:
        library.call(function, "destroy_program", raw)


def add_module_to_program(prog: int, buffer: Readable, size: int, name: str | None) -> None:
    """Add a module of NVVM IR as text or bitcode. ``size`` is its size in bytes, and ``name`` its name in the log.

    Raises:
        nvvmError: the handle or the size is wrong, or the module is rejected.
    """
    _add(prog, "nvvmAddModuleToProgram", "add_module_to_program", buffer, size, name)


def lazy_add_module_to_program(prog: int, buffer: Readable, size: int, name: str | None) -> None:
    """Add a module, such as libdevice, from which only referenced functions are linked.

    Raises:
        nvvmError: the handle or the size is wrong, or the module is rejected.
    """
    _add(prog, "nvvmLazyAddModuleToProgram", "lazy_add_module_to_program", buffer, size, name)


def verify_program(prog: int, num_options: int, options: Sequence[str]) -> None:
    """Check the modules against the specification of NVVM IR.

    For compute_100 and later the program is compiled first: a function that two modules define, or a module
    without a data layout, makes libNVVM's verifier end the process, and its compiler give an error (measured,
    12.9 to 13.4).

    Raises:
        nvvmError: a module is invalid, or an option is wrong; ``log`` says which.
    """
    function = "nvvmVerifyProgram"
    listed = _library().texts(function, "options", num_options, options)
    if _is_opaque(listed):
        try:
            _run(prog, function, "compile_program", listed)
        except nvvmError as e:
            if e.status is Result.ERROR_COMPILATION:
                raise _library().error(Result.ERROR_INVALID_IR, function, e.log) from None
            raise
    _run(prog, function, "verify_program", listed)


def compile_program(prog: int, num_options: int, options: Sequence[str]) -> None:
    """Link the modules, and compile them to PTX, or to LTO-IR with ``-gen-lto``. Other threads run meanwhile.

    Raises:
        nvvmError: the program doesn't compile, or an option is wrong. ``log`` contains the reason.
    """
    function = "nvvmCompileProgram"
    _run(prog, function, "compile_program", _library().texts(function, "options", num_options, options))


def get_compiled_result_size(prog: int) -> int:
    """Return the size of the result, in bytes. PTX has a NUL at its end.

    Raises:
        nvvmError: it is no open program of libNVVM.
    """
    return _library().size(prog, "nvvmGetCompiledResultSize", "compiled_result")


def get_compiled_result(prog: int, buffer: Buffer) -> None:
    """Write the result into a buffer.

    Raises:
        nvvmError: the buffer is too small or immutable.
    """
    _library().get(prog, "nvvmGetCompiledResult", "compiled_result", buffer)


def get_program_log_size(prog: int) -> int:
    """Return the size of the log, in bytes, with the NUL at its end.

    Raises:
        nvvmError: it is no open program of libNVVM.
    """
    return _library().size(prog, "nvvmGetProgramLogSize", "program_log")


def get_program_log(prog: int, buffer: Buffer) -> None:
    """Write the log into a buffer.

    Raises:
        nvvmError: the buffer is too small or immutable.
    """
    _library().get(prog, "nvvmGetProgramLog", "program_log", buffer)


def _add(prog: int, function: str, method: str, buffer: Readable, size: int, name: str | None) -> None:
    library = _library()
    content = library.data(function, "buffer", buffer, size)
    shown = library.text(function, "name", name, optional=True) or "<unnamed>"
    with library.using(function, prog, content) as raw:
        library.call(function, method, raw, content, len(content), shown, log=lambda: library.log(raw, "program_log"))


def _run(prog: int, function: str, method: str, options: list[str]) -> None:
    library = _library()
    with library.using(function, prog) as raw:
        library.call(function, method, raw, len(options), options, log=lambda: library.log(raw, "program_log"))


_ARCH = re.compile(r"-arch=compute_(\d+)[af]?")


def _is_opaque(options: Sequence[str]) -> bool:
    numbers = [int(match[1]) for option in options if (match := _ARCH.fullmatch(option))]
    return bool(numbers) and numbers[-1] >= FIRST_OPAQUE


# What every NVVM takes: no pointer, so no dialect. Source: NVVM IR specification, "Data Layout", "Target Triple".
_LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
MODULE_HEAD = f'target triple = "nvptx64-nvidia-cuda"\ntarget datalayout = "{_LAYOUT}"\n'
"""What every module begins with, in both dialects."""

_EMPTY = (
    MODULE_HEAD + "define void @cujit_empty() {\n  ret void\n}\n!nvvmir.version = !{!0}\n!0 = !{i32 2, i32 0}\n"
).encode()
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")


def find_libdevice(library: Path) -> Path:
    """Return the path of the libdevice that belongs to a libNVVM, from the place of its file, without opening either.

    Raises:
        ToolchainNotFoundError: it doesn't exist. The message lists the searched places.
    """
    places = [parent / part for parent in library.parents[:3] for part in ("nvvm/libdevice", "libdevice")]
    for place in places:
        for file in sorted(place.glob("libdevice.*.bc")):
            return file
    raise ToolchainNotFoundError(
        "libdevice is not installed; cujit searched for libdevice.*.bc in " + ", ".join(map(str, places)),
        help=f"run {install('cu13')} to install it with libNVVM (for CUDA 12.9: {install('cu12')})",
    )


class Nvvm:
    """The libNVVM that is installed.

    ``version`` is that of its interface, ``ir_version`` that of the IR and of its debug metadata; ``release`` is
    the CUDA release that it came with, ``arches`` the numbers of the architectures it builds for, rising.
    """

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: libNVVM or cuda-bindings is not installed.
            nvvmError: the library answers with an error.
        """
        load_binding("nvvm", "libNVVM")  # it may be gone since the last time
        self.version = version()
        self.ir_version = ir_version()
        self.ledger = _library().ledger
        self.release: tuple[int, int] = self._release()
        self.tool = f"libNVVM {self.release[0]}.{self.release[1]}"

    @cached_property
    def arches(self) -> tuple[int, ...]:
        """The architectures, found by asking: the library has no list of them."""
        return tuple(number for number in sorted(KNOWN_ARCHES) if self._takes(number))

    @property
    def library_path(self) -> str | None:
        """The file of the open library, or None if cuda.pathfinder doesn't report it."""
        return library_path("nvvm")

    @cached_property
    def libdevice_path(self) -> Path:
        """The path of NVIDIA's math library as bitcode, next to the libNVVM in use.

        Raises:
            ToolchainNotFoundError: it doesn't exist. The message lists the searched places.
        """
        return find_libdevice(Path(self.library_path or "/"))

    def __repr__(self) -> str:
        return f"<{self.tool} for {', '.join(f'compute_{n}' for n in self.arches)}>"

    def program(self) -> NvvmProgram:
        """Make an empty program."""
        return NvvmProgram(create_program())

    def _release(self) -> tuple[int, int]:
        with self.program() as program:
            program.add(_EMPTY, "empty.ll")
            program.compile([])
            match = _RELEASE.search(program.result())
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def _takes(self, number: int) -> bool:
        with self.program() as program:
            program.add(_EMPTY, "empty.ll")
            try:
                _run(program.raw, "nvvmVerifyProgram", "verify_program", [f"-arch=compute_{number}"])
            except nvvmError as e:
                if e.status is Result.ERROR_INVALID_OPTION:
                    return False
                raise
        return True


class NvvmProgram(LibraryHandle):
    """One nvvmProgram: add modules, compile once, take the result. Use it in a ``with`` statement."""

    destroy = staticmethod(destroy_program)

    def add(self, module: bytes, name: str, *, lazy: bool = False) -> None:
        """Add a module as text or bitcode. From a ``lazy`` module, only referenced functions are linked.

        Raises:
            nvvmError: the module is rejected.
        """
        add = lazy_add_module_to_program if lazy else add_module_to_program
        add(self.raw, module, len(module), name)

    def compile(self, options: Sequence[str]) -> None:
        """Verify and compile, in the order in which a bad module is an error and not the end of the process.

        LLVM 7 dies of modules that its verifier refuses; of the newer LLVM it is the verifier that dies.

        Raises:
            nvvmError: a module is invalid or does not compile, or an option is wrong.
        """
        if _is_opaque(options):
            compile_program(self.raw, len(options), options)
            _run(self.raw, "nvvmVerifyProgram", "verify_program", list(options))
        else:
            verify_program(self.raw, len(options), options)
            compile_program(self.raw, len(options), options)

    def result(self) -> bytes:
        """The PTX with the NUL that ends it, or the LTO-IR."""
        return _library().take(self.raw, "nvvmGetCompiledResult", "compiled_result")

    def log(self) -> str:
        """The compiler's log."""
        return as_text(_library().take(self.raw, "nvvmGetProgramLog", "program_log"))
