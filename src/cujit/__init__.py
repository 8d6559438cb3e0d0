"""Compile CUDA at run time from Python, and run it on a GPU or on the CPU.

Every public name is here. A name is looked up where it lives when it is first used, so importing the package
opens no library and reads nothing but this file.

PYTEST_DONT_REWRITE: it has no assertions of tests.
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
    from cujit.budget.checking import Budget, check
    from cujit.budget.file import read_budgets
    from cujit.budget.report import BudgetReport, BudgetRow
    from cujit.cache.cache import Cache
    from cujit.cache.provenance import Provenance
    from cujit.cache.trust import CacheRefusedError, CacheWarning
    from cujit.devices.arrays import DeviceArray
    from cujit.devices.base import Device, Dim3, Limits, Resources
    from cujit.devices.cpu.observe.coverage import Coverage
    from cujit.devices.cpu.observe.trace import Trace
    from cujit.devices.cuda.compat import Verdict, compat
    from cujit.devices.globals import Global, Globals
    from cujit.devices.pointers import Pointer
    from cujit.devices.streams import Event, Graph, Stream
    from cujit.devices.tensormaps import TensorMap
    from cujit.devices.textures import Surface, Texels, Texture
    from cujit.errors import (
        ArchError,
        ArgumentError,
        BudgetError,
        BundleError,
        ClosedError,
        CompileError,
        CujitError,
        DeviceNotFoundError,
        Diagnostic,
        DriverError,
        DriverNotFoundError,
        FileError,
        FormatError,
        HeaderNotFoundError,
        KernelFaultError,
        LaunchError,
        LinkError,
        LoadError,
        MissingError,
        NameNotFoundError,
        OptionError,
        PtxSyntaxError,
        ToolchainNotFoundError,
        ToolCrashError,
        ToolError,
        ToolTimeoutError,
        UnsupportedError,
    )
    from cujit.formats.cubin import read_cubin
    from cujit.formats.fatbin import read_fatbin
    from cujit.formats.ptx.retarget import retarget
    from cujit.inspection.compare import Comparison, compare
    from cujit.inspection.read import inspect
    from cujit.inspection.usage import Usage, usage
    from cujit.inspection.values import ImageInfo, Inspection, KernelInfo
    from cujit.kernel import Kernel, Launch
    from cujit.loading import Module, jit, load
    from cujit.machine import cpu, default_device, devices, gpu
    from cujit.occupancy.products import Product
    from cujit.occupancy.residency import Limiter
    from cujit.occupancy.result import Occupancy
    from cujit.occupancy.subject import occupancy, plot_occupancy
    from cujit.program import Entry, Options, Request, Source, build, bundle, cache, compile, link, request
    from cujit.registry.registry import RegisteredModule, Registry, module, registry
    from cujit.registry.spec import Built
    from cujit.signature import Parameter, ParameterClass, Signature
    from cujit.timing import Timing, time

__all__ = [
    "Arch",
    "ArchError",
    "ArchKind",
    "ArgumentError",
    "Artifact",
    "Budget",
    "BudgetError",
    "BudgetReport",
    "BudgetRow",
    "Built",
    "BundleError",
    "Cache",
    "CacheRefusedError",
    "CacheWarning",
    "ClosedError",
    "Comparison",
    "CompileError",
    "Coverage",
    "CujitError",
    "Device",
    "DeviceArray",
    "DeviceNotFoundError",
    "Diagnostic",
    "Dim3",
    "DriverError",
    "DriverNotFoundError",
    "Entry",
    "Event",
    "FileError",
    "FormatError",
    "Global",
    "Globals",
    "Graph",
    "HeaderNotFoundError",
    "ImageInfo",
    "Inspection",
    "Kernel",
    "KernelFaultError",
    "KernelInfo",
    "Kind",
    "Launch",
    "LaunchError",
    "Limiter",
    "Limits",
    "LinkError",
    "LoadError",
    "MissingError",
    "Module",
    "NameNotFoundError",
    "Occupancy",
    "OptionError",
    "Options",
    "Parameter",
    "ParameterClass",
    "Pointer",
    "Product",
    "Provenance",
    "PtxSyntaxError",
    "RegisteredModule",
    "Registry",
    "Request",
    "Resources",
    "Signature",
    "Source",
    "Stream",
    "Surface",
    "TensorMap",
    "Texels",
    "Texture",
    "Timing",
    "ToolCrashError",
    "ToolError",
    "ToolTimeoutError",
    "ToolchainNotFoundError",
    "Trace",
    "UnsupportedError",
    "Usage",
    "Verdict",
    "__version__",
    "build",
    "bundle",
    "cache",
    "check",
    "compare",
    "compat",
    "compile",
    "cpu",
    "default_device",
    "devices",
    "gpu",
    "inspect",
    "jit",
    "link",
    "load",
    "module",
    "occupancy",
    "plot_occupancy",
    "read_budgets",
    "read_cubin",
    "read_fatbin",
    "registry",
    "request",
    "retarget",
    "time",
    "usage",
]

# Where the names live that are not errors; a test holds this, the imports above and __all__ together.
_HOMES = {
    "cujit.arch": "Arch ArchKind",
    "cujit.artifact": "Artifact Kind",
    "cujit.budget.checking": "Budget check",
    "cujit.budget.file": "read_budgets",
    "cujit.budget.report": "BudgetReport BudgetRow",
    "cujit.registry.spec": "Built",
    "cujit.cache.cache": "Cache",
    "cujit.cache.provenance": "Provenance",
    "cujit.cache.trust": "CacheRefusedError CacheWarning",
    "cujit.devices.arrays": "DeviceArray",
    "cujit.devices.base": "Device Dim3 Limits Resources",
    "cujit.devices.cuda.compat": "Verdict compat",
    "cujit.devices.globals": "Global Globals",
    "cujit.devices.pointers": "Pointer",
    "cujit.devices.streams": "Event Graph Stream",
    "cujit.devices.tensormaps": "TensorMap",
    "cujit.devices.textures": "Surface Texels Texture",
    "cujit.formats.cubin": "read_cubin",
    "cujit.formats.fatbin": "read_fatbin",
    "cujit.formats.ptx.retarget": "retarget",
    "cujit.inspection.compare": "Comparison compare",
    "cujit.inspection.read": "inspect",
    "cujit.inspection.usage": "Usage usage",
    "cujit.inspection.values": "ImageInfo Inspection KernelInfo",
    "cujit.kernel": "Kernel Launch",
    "cujit.loading": "Module jit load",
    "cujit.machine": "cpu default_device devices gpu",
    "cujit.devices.cpu.observe.coverage": "Coverage",
    "cujit.devices.cpu.observe.trace": "Trace",
    "cujit.occupancy.subject": "occupancy plot_occupancy",
    "cujit.program": "Entry Options Request Source build bundle cache compile link request",
    "cujit.registry.registry": "RegisteredModule Registry module registry",
    "cujit.signature": "Parameter ParameterClass Signature",
    "cujit.timing": "Timing time",
    "cujit.occupancy.residency": "Limiter",
    "cujit.occupancy.products": "Product",
    "cujit.occupancy.result": "Occupancy",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a checker that saw it would take any name for public

    def __getattr__(name: str) -> object:
        """Look a public name up where it lives, once."""
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        found: object = getattr(importlib.import_module(_HOME.get(name, "cujit.errors")), name)
        if name in _NAMESAKES:
            # `import cujit.devices.base as x` looks for `base` below the __name__ of what it finds here.
            found.__name__ = f"{__name__}.{name}"
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return list(__all__)


_NAMESAKES = frozenset({"cache", "devices", "occupancy", "registry"})
"""Functions that are called like the package that they are made of; here the name means the function."""


class _Package(ModuleType):
    """This module. Python binds an imported subpackage as an attribute of its parent; not over a function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _NAMESAKES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
