"""Shared parts of commands that launch: a kernel of a file, its arguments, and their notation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from cujit.cli.arches import arch_for
from cujit.cli.compiler_options import WrittenOptions
from cujit.cli.console import settings
from cujit.cli.files import complete_kernel
from cujit.cli.launch_shape import shape_options
from cujit.devices.arguments.written import FORMS, Value, argument
from cujit.devices.device import Device
from cujit.errors import OptionError, counted, listed
from cujit.kernel import Kernel
from cujit.loading import Module, jit, load
from cujit.program import Options, Source
from cujit.values import NamedTuple

_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".ll", ".bc")
"""Endings of files that are compiled; every other file is an image, whose kind its content tells."""

_SHOWN = 12
"""Kernels that a message lists."""


def _argument(text: str) -> tuple[str, Value]:
    try:
        return text, argument(text)
    except OptionError as e:
        raise click.BadParameter(e.message) from None


def forms_of_arguments() -> str:
    """Return a description of the argument notation for the end of a help text."""
    width = max(len(form) for form, _ in FORMS)
    return "\b\nVALUE of --arg is one of:\n" + "\n".join(f"  {form:{width}}  {means}" for form, means in FORMS)


class KernelOptions(NamedTuple):
    """The kernel and its arguments from ``--kernel`` and ``--arg``, as text."""

    kernel_name: str | None
    arguments: Sequence[tuple[str, Value]]

    @property
    def values(self) -> list[Value]:
        """The values of the arguments."""
        return [value for _, value in self.arguments]


launch_options = settings(
    "called",
    KernelOptions,
    click.option(
        "-k",
        "--kernel",
        "kernel_name",
        metavar="NAME",
        shell_complete=complete_kernel,
        help="Kernel to launch, such as 'axpy<float>'. Default: the only kernel in FILE.",
    ),
    shape_options,
    click.option(
        "--arg",
        "arguments",
        type=_argument,
        metavar="VALUE",
        multiple=True,
        help="Kernel argument. Repeat this option for each argument, in order.",
    ),
)


def options_for(file: Path, compiler: WrittenOptions) -> Options | None:
    """Return the compiler options for a source. Return None for an image, which has no compiler options."""
    if file.suffix in _SOURCES:
        return compiler.read()
    if any(compiler):
        raise click.UsageError(
            f"-O, -I, -D, --arch and --libdevice apply only to source files (.cu), but {file.name} is an image"
        )
    return None


def kernel_of(
    file: Path, kernel_name: str | None, device: Device, options: Options | None, compiler: WrittenOptions
) -> tuple[Module, Kernel]:
    """Compile a file for the device if there are ``options``, otherwise load it. Return its kernel."""
    source = None if options is None else compiler.source(file)
    module = (
        load(file, device) if source is None else _compile(source, kernel_name, device, options, compiler.jit_arches)
    )
    return module, module[kernel_name or _only(module, file)]


def placed_on(device: Device, values: Sequence[Value]) -> list[object]:
    """Copy the arrays among arguments to a device."""
    return [device.array(value) if isinstance(value, np.ndarray) else value for value in values]


def _compile(
    source: Source, kernel_name: str | None, device: Device, options: Options | None, arches: Sequence[str]
) -> Module:
    """Compile for the device. For a template, the kernel's name selects the instance to compile."""
    names = [kernel_name] if kernel_name and "<" in kernel_name else []
    return jit(source, names=names, device=device, arch=arch_for(arches, device), options=options)


def _only(module: Module, file: Path) -> str:
    """Name the kernel of a module that has one.

    Raises:
        click.UsageError: it has several.
    """
    names = list(module)
    if len(names) != 1:
        raise click.UsageError(
            f"{file.name} contains {counted(len(names), 'kernel')}: specify --kernel with one of "
            f"{listed(names, _SHOWN)}"
        )
    return names[0]
