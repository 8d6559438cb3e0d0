"""Compile CUDA at run time from Python, and run it on a GPU or on the CPU.

Compile a kernel, load it and launch it::

    import cujit
    import numpy as np

    SOURCE = r'''
    extern "C" __global__ void scale(float* x, float a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= a;
    }'''
    device = cujit.default_device()                     # the first GPU, or else the CPU device
    kernel = cujit.jit(SOURCE, device=device)["scale"]
    x = device.array(np.ones(1000, np.float32))
    kernel.over(x.size)(x, 2.0, x.size)                 # or kernel[grid, block](…)
    print(x)

Calls, by what they do:

* compile and link: ``jit``, ``compile``, ``link``, ``bundle``, ``build``, ``load``, ``Source``, ``Options``
* devices: ``default_device``, ``gpu``, ``cpu``, ``all_devices``; a ``Device`` makes arrays, streams and textures
* look into images: ``inspect``, ``usage``, ``requirements``, ``compare``, ``compat``, ``retarget``
* measure: ``time``, ``tune``, ``Coverage``, ``Trace``
* ship: ``module``, ``default_registry``, ``default_cache``, ``record_worklist``
* this machine: ``doctor``; ``emulate`` stands in for the driver

Every error is a ``cujit.errors.CujitError`` and shows what to write. PYTEST_DONT_REWRITE: no tests are here.
"""

# A name is looked up in its module when it is first used, so importing the package opens no library and reads only this
# file. ``__init__.pyi`` lists the same names for type checkers.

from __future__ import annotations

import importlib
import sys

from cujit.version import __version__ as __version__

if sys.platform != "linux":
    raise ImportError(f"cujit runs on Linux, but this is {sys.platform}; on Windows, install cujit in WSL 2")

_HOMES = {
    "cujit.arch": "Arch",
    "cujit.artifact": "Artifact ImageKind",
    "cujit.cache.cache": "Cache",
    "cujit.cache.process": "default_cache",
    "cujit.devices.arrays.array": "DeviceArray",
    "cujit.devices.cpu.observe.coverage": "Coverage",
    "cujit.devices.cpu.observe.trace": "Trace",
    "cujit.devices.cuda.compat": "compat",
    "cujit.devices.device": "Device",
    "cujit.devices.arguments.pointers": "Pointer",
    "cujit.devices.shapes": "Dim3 Limits Resources",
    "cujit.devices.green_contexts": "GreenContext",
    "cujit.devices.streams": "Event Graph Stream",
    "cujit.devices.arguments.written": "argument",
    "cujit.devices.tensormaps.tiling": "TensorMap",
    "cujit.devices.textures.texture": "Surface Texels Texture",
    "cujit.emulator.start": "emulate",
    "cujit.formats.ptx.retarget": "retarget",
    "cujit.inspection.compare": "compare",
    "cujit.inspection.needs": "requirements",
    "cujit.inspection.read": "inspect",
    "cujit.inspection.usage": "usage",
    "cujit.kernel": "Kernel Launch",
    "cujit.loading": "Module jit load",
    "cujit.machine.health": "doctor",
    "cujit.machine": "all_devices cpu default_device gpu",
    "cujit.compiler.inputs.entry": "Entry",
    "cujit.program": "Options Request Source build bundle compile link request",
    "cujit.registry.registry": "default_registry module",
    "cujit.registry.spec": "ModuleSpec",
    "cujit.timing": "Timing time",
    "cujit.tuning.tuner": "tune",
    "cujit.worklist.recording": "record_worklist",
}
"""Where each name lives."""

_ROOMS = ["arch", "budget", "cache", "errors", "farm", "inspection", "occupancy", "registry", "signature", "tuning"]
"""Packages with public names of their own: errors, and values that other calls give."""

_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

_RENAMED = {"Built": "ModuleSpec", "Kind": "ImageKind", "needs": "requirements", "record": "record_worklist"}
"""Names of the last release that still work, with a warning."""

__all__ = sorted([*_HOME, *_ROOMS, "__version__"])


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings = importlib.import_module("warnings")
        warnings.warn(f"cujit.{name} is now cujit.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(__name__), new)
    if name not in __all__:
        raise _no_attribute(name)
    if _is_subinterpreter():
        raise importlib.import_module(f"{__name__}.errors").UnsupportedError(
            "cujit works only in the main interpreter of a process, and this is a subinterpreter",
            help="use cujit in the main interpreter, or in a separate process: multiprocessing.Process(target=…)",
        )
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    with importlib.import_module(f"{__name__}.values.garbage").importing():
        found: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def _no_attribute(name: str) -> AttributeError:
    if name.startswith("__"):  # what Python looks for
        return AttributeError(f"module '{__name__}' has no attribute '{name}'")
    other_apis = importlib.import_module(f"{__name__}.errors.other_apis")
    errors = importlib.import_module(f"{__name__}.errors")
    near = errors.alike(name, __all__)
    listed = f"did you mean {' or '.join(f'cujit.{n}' for n in near)}?" if near else None
    return errors.AttributeNotFoundError(
        f"module '{__name__}' has no attribute '{name}'", help=other_apis.sentence_for("cujit", name) or listed
    )


def _is_subinterpreter() -> bool:
    """Return whether this is a subinterpreter, which would load NumPy, LLVM, and NVIDIA's libraries a second time.

    Before Python 3.12, the module that answers this takes half a millisecond to import. ``__main__`` therefore decides
    first: it usually has a file in the main interpreter, but never in a subinterpreter.
    """
    thread = importlib.import_module("_thread")
    if hasattr(thread, "_is_main_interpreter"):
        return not thread._is_main_interpreter()
    if hasattr(importlib.import_module("__main__"), "__file__"):
        return False
    known = importlib.import_module("_xxsubinterpreters")
    return bool(known.get_current() != known.get_main())


def __dir__() -> list[str]:
    return list(__all__)


def load_ipython_extension(shell: object) -> None:
    """Register ``%%cuda`` and the displays of results in a notebook. ``%load_ext cujit`` calls this function."""
    importlib.import_module(f"{__name__}.notebook.magic").load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Unregister ``%%cuda`` and the displays of results. ``%unload_ext cujit`` calls this function."""
    importlib.import_module(f"{__name__}.notebook.magic").unload(shell)
