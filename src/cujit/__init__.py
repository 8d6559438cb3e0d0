"""Compile CUDA at run time from Python, and run it on a GPU or on the CPU.

Every public name is here. A name is looked up where it lives when it is first used, so importing the package
opens no library and reads nothing but this file.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from cujit.version import __version__

if TYPE_CHECKING:
    from cujit.arch import Arch, ArchKind
    from cujit.artifact import Artifact, Kind
    from cujit.compile.usage import Usage, usage
    from cujit.devices.arrays import DeviceArray
    from cujit.devices.base import Device, Dim3, Limits, Resources
    from cujit.devices.cuda.compat import Verdict, compat
    from cujit.devices.pointers import Pointer
    from cujit.errors import (
        ArchError,
        ArgumentError,
        BundleError,
        ClosedError,
        CompileError,
        CujitError,
        DeviceNotFoundError,
        Diagnostic,
        DriverError,
        DriverNotFoundError,
        FormatError,
        HeaderNotFoundError,
        LaunchError,
        LinkError,
        LoadError,
        MissingError,
        NameNotFoundError,
        OptionError,
        PtxSyntaxError,
        ToolchainNotFoundError,
        ToolError,
        UnsupportedError,
    )
    from cujit.formats.cubin import read_cubin
    from cujit.formats.fatbin import read_fatbin
    from cujit.formats.ptx.retarget import retarget
    from cujit.kernel import Kernel, Launch, Module, cpu, default_device, devices, gpu, jit, load
    from cujit.program import Entry, Options, Request, Source, build, bundle, compile, link, request
    from cujit.signature import Parameter, ParameterClass, Signature

__all__ = [
    "Arch",
    "ArchError",
    "ArchKind",
    "ArgumentError",
    "Artifact",
    "BundleError",
    "ClosedError",
    "CompileError",
    "CujitError",
    "Device",
    "DeviceArray",
    "DeviceNotFoundError",
    "Diagnostic",
    "Dim3",
    "DriverError",
    "DriverNotFoundError",
    "Entry",
    "FormatError",
    "HeaderNotFoundError",
    "Kernel",
    "Kind",
    "Launch",
    "LaunchError",
    "Limits",
    "LinkError",
    "LoadError",
    "MissingError",
    "Module",
    "NameNotFoundError",
    "OptionError",
    "Options",
    "Parameter",
    "ParameterClass",
    "Pointer",
    "PtxSyntaxError",
    "Request",
    "Resources",
    "Signature",
    "Source",
    "ToolError",
    "ToolchainNotFoundError",
    "UnsupportedError",
    "Usage",
    "Verdict",
    "__version__",
    "build",
    "bundle",
    "compat",
    "compile",
    "cpu",
    "default_device",
    "devices",
    "gpu",
    "jit",
    "link",
    "load",
    "read_cubin",
    "read_fatbin",
    "request",
    "retarget",
    "usage",
]

# Where the names live that are not errors; a test holds this, the imports above and __all__ together.
_HOMES = {
    "cujit.arch": "Arch ArchKind",
    "cujit.artifact": "Artifact Kind",
    "cujit.devices.arrays": "DeviceArray",
    "cujit.compile.usage": "Usage usage",
    "cujit.devices.base": "Device Dim3 Limits Resources",
    "cujit.devices.cuda.compat": "Verdict compat",
    "cujit.devices.pointers": "Pointer",
    "cujit.formats.cubin": "read_cubin",
    "cujit.formats.fatbin": "read_fatbin",
    "cujit.formats.ptx.retarget": "retarget",
    "cujit.kernel": "Kernel Launch Module cpu default_device devices gpu jit load",
    "cujit.program": "Entry Options Request Source build bundle compile link request",
    "cujit.signature": "Parameter ParameterClass Signature",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a checker that saw it would take any name for public

    def __getattr__(name: str) -> object:
        """Look a public name up where it lives, once."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(_HOME.get(name, "cujit.errors")), name)
        if name in _NAMESAKES:
            # `import cujit.devices.base as x` looks for `base` below the __name__ of what it finds here.
            found.__name__ = f"{__name__}.{name}"
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return list(__all__)


_NAMESAKES = frozenset({"compile", "devices"})
"""Functions that are called like the package that they are made of; here the name means the function."""


class _Package(ModuleType):
    """This module. Python binds an imported subpackage as an attribute of its parent; not over a function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _NAMESAKES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
