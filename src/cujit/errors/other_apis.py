"""Names in CuPy, PyCUDA, Numba, PyTorch, Warp, and cuda.core, with their equivalents in cujit.

A user who types such a name receives an error with the line to type. Each text is a sentence that begins with this
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cujit.errors import AttributeNotFoundError, LaunchError, spell
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    Class = TypeVar("Class", bound=type)

_LAUNCH = "kernel[grid, block](…) launches a kernel, and kernel.over(n)(…) launches one thread for each of n elements"
_RESOURCES = "kernel.resources lists registers, shared and local memory, and the largest block"
_COMPILE = "cujit.compile(source, arch='sm_90', names=['axpy<float>']) compiles CUDA C++"
_JIT = "cujit.jit(source)['kernel'] compiles CUDA C++, loads it and finds a kernel"
_ARRAY = "cujit.default_device().array(x) copies a NumPy array to the device"
_MAKE = "cujit.default_device().zeros(shape, dtype) creates an array, as does empty(shape, dtype)"
_NUMPY = "array.numpy() copies the elements to a NumPy array"
_COPY_FROM = "array.copy_from(x) copies the elements of x into the array"
_ADDRESS = "array.address is the address of the first element"
_FIND = "module['kernel'] finds a kernel by its name"
_VARIABLE = "module.globals['name'] reads and writes a variable, and module.variable('name', dtype) is its array"
_INCLUDE = "include=['directory'] adds directories to search for headers"
_NAMES = "names=['axpy<float>'] lists the instances of templates to build"
_EXTRA = "extra=['--flag'] passes arguments to the tool unchanged"
_SHAPE = "kernel[grid, block](…) specifies the grid and block at the launch"

_SENTENCES: dict[str, dict[str, str]] = {
    "cujit": {
        **dict.fromkeys(("RawKernel", "RawModule", "SourceModule", "load_inline", "compile_kernel"), _JIT),
        **dict.fromkeys(("_compile_kernel", "Program", "ProgramOptions", "nvrtc", "compile_ptx"), _COMPILE),
        "ObjectCode": "cujit.load(image) loads a cubin, PTX or fatbin, from a file or from bytes",
        "Linker": "cujit.link([image, other], arch='sm_90') links images",
        **dict.fromkeys(("LaunchConfig", "launch"), _LAUNCH),
        **dict.fromkeys(("array", "asarray", "to_device", "to_gpu"), _ARRAY),
        **dict.fromkeys(("zeros", "empty", "ones", "zeros_like", "empty_like"), _MAKE),
        **dict.fromkeys(("get_device", "current_device", "select_device"), "cujit.gpu(0) is the first GPU"),
        "synchronize": "cujit.default_device().synchronize() waits for all work on the device",
        "is_available": "cujit.all_devices() lists the devices, the CPU device last",
        "benchmark": "cujit.time(kernel[grid, block], …) measures how long a launch takes",
        "autotune": "cujit.tune(…) finds the fastest of several variants",
    },
    "options": {
        **dict.fromkeys(("name_expressions", "instances", "template_args"), _NAMES),
        **dict.fromkeys(("include_dirs", "include_path", "include_paths", "extra_include_paths"), _INCLUDE),
        **dict.fromkeys(("flags", "extra_cuda_cflags", "extra_compile_args", "cuda_include_dirs"), _EXTRA),
        **dict.fromkeys(("grid", "block", "blockdim", "griddim", "grid_dim", "block_dim"), _SHAPE),
        **dict.fromkeys(("kernel_name", "function_name", "entry"), _FIND),
        **dict.fromkeys(("code", "compute_capability", "cc", "gpu_arch"), "arch='sm_90' specifies the architecture"),
        **dict.fromkeys(("defines", "macros"), "define={'N': 4} defines macros"),
        "header_code": "headers={'name.h': text} passes headers as text",
    },
    "DeviceArray": {
        **dict.fromkeys(("get", "copy_to_host", "to_host", "asnumpy", "cpu", "tolist", "item", "to_numpy"), _NUMPY),
        **dict.fromkeys(("set", "copy_from_host", "copy_to_device", "assign"), _COPY_FROM),
        **dict.fromkeys(("ptr", "gpudata", "data_ptr", "device_ptr", "handle", "data"), _ADDRESS),
        **dict.fromkeys(("ravel", "flatten"), "array.reshape(-1) is a view of the elements along one axis"),
        "itemsize": "array.dtype.itemsize is the number of bytes of an element",
        "astype": "device.array(array.numpy().astype(dtype)) converts the elements on the host",
        "copy": "device.array(array) copies the elements to a new array",
        "free": "array.close() releases the memory",
    },
    "Kernel": {
        **dict.fromkeys(("launch", "prepared_call", "configure", "call"), _LAUNCH),
        "forall": "kernel.over(n)(…) launches one thread for each of n elements",
        **dict.fromkeys(("attributes", "num_regs", "regs_per_thread", "shared_size_bytes"), _RESOURCES),
        **dict.fromkeys(("local_size_bytes", "max_threads_per_block", "get_regs_per_thread"), _RESOURCES),
        **dict.fromkeys(
            ("inspect_asm", "ptx", "inspect_sass"), "cujit.inspect(kernel.artifact) shows its PTX and SASS"
        ),
        "specialize": "cujit.jit(source, names=['axpy<float>']) builds an instance of a template",
    },
    "Module": {
        **dict.fromkeys(("get_function", "get_kernel", "getFunction", "function"), _FIND),
        **dict.fromkeys(("get_global", "get_variable", "getGlobal"), _VARIABLE),
        **dict.fromkeys(("functions", "kernels", "function_names"), "list(module) lists the kernels' names"),
        "get_texref": "device.textures() makes textures, which a kernel takes as arguments",
    },
}
"""By what has the name: the package, the keywords of calls that compile, and three classes."""


class _NameOfAnotherApi:
    """An attribute that a class doesn't have. Reading it raises an error that shows the equivalent in cujit."""

    __slots__ = ("_name", "_sentence")

    def __init__(self, name: str, sentence: str) -> None:
        self._name = name
        self._sentence = sentence

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeNotFoundError(f"'{owner.__name__}' has no attribute '{self._name}'", help=self._sentence)


def sentence_for(place: str, name: str) -> str | None:
    """Return the sentence that explains the equivalent of a name in cujit, or None if the name is unknown.

    Args:
        place: ``cujit``, ``options``, or the name of a class.
        name: the name that the user typed.

    Example::

    assert "module['kernel'] finds a kernel by its name" == sentence_for("Module", "get_function")
    """
    return _SENTENCES[place].get(name)


def with_other_apis(cls: Class) -> Class:
    """Decorate a class so that the names of other libraries raise an error that shows the equivalent in cujit.

    The names are descriptors. A ``__getattr__`` would slow down every attribute of the class (five times in CPython
    3.11). ``dir`` of an instance does not list them.
    """
    names = _SENTENCES[cls.__name__]
    for name, sentence in names.items():
        setattr(cls, name, _NameOfAnotherApi(name, sentence))
    listing: Any = cls.__dir__
    setattr(cls, "__dir__", lambda self: [name for name in listing(self) if name not in names])  # noqa: B010
    return cls


def without_grid(kernel: str, arguments: Sequence[object], keywords: Mapping[str, object]) -> LaunchError:
    """Return the error for a kernel call that has no grid, or has the grid in the notation of another library.

    Args:
        kernel: name of the kernel.
        arguments: arguments of the call. CuPy's are the grid, the block, and a tuple of the kernel's arguments.
        keywords: keywords of the call. PyCUDA's include ``grid=`` and ``block=``.

    Example::

        error = without_grid("axpy", [(4,), (256,), (2.0, x, y)], {})
        assert "kernel[(4,), (256,)](…)" in error.help
    """
    is_cupy = 3 <= len(arguments) <= 4 and all(isinstance(a, tuple) for a in arguments[:3])
    grid, block = arguments[:2] if is_cupy else (keywords.get("grid", 1), keywords.get("block"))
    if block is not None:
        help = f"write kernel[{spell(grid)}, {spell(block)}](…), and pass only the kernel's arguments"
    else:
        help = "write kernel[grid, block](…) or kernel.over(n)(…)"
    return LaunchError(f"{kernel} requires a grid and a block, or a number of elements", help=help, code="grid-missing")
