"""Architectures on the command line: ``--arch`` can be repeated and accepts ``native`` in every command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from cujit.arch import Arch, ArchKind
from cujit.arch.arch import known_names
from cujit.cli.console import note

if TYPE_CHECKING:
    from cujit.devices.device import Device

F = TypeVar("F", bound=Callable[..., object])

_NATIVE = "native"
_JIT = "jit_arches"


def complete_arch(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """List the architectures that begin so, for shells."""
    names = [name for kind in ArchKind for name in known_names(kind)]
    return [name for name in (*names, _NATIVE) if name.startswith(begun)]


def arches_option(help: str, *names: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--arch`` to a command, as a tuple of architectures called ``arches``.

    Args:
        help: what the command does with them.
        names: other names of the option and of its parameter.
    """
    declared = ("--arch", *(names or ("arches",)))
    return click.option(
        *declared, multiple=True, metavar="ARCH", callback=_named, shell_complete=complete_arch, help=help
    )


def jit_arches_option(help: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--arch`` to a command that launches; ``arch_for`` chooses one of several."""
    return arches_option(help, _JIT)


def arch_option(help: str) -> Callable[[F], F]:
    """Return a decorator that adds ``-a`` and ``--arch`` to a command that makes one image, as ``arch``."""
    return click.option(
        "-a", "--arch", metavar="ARCH", multiple=True, callback=one_arch, shell_complete=complete_arch, help=help
    )


def takes_several_arches(command: click.Command) -> bool:
    """Whether a command launches code for the best of several architectures."""
    return any(option.name == _JIT for option in command.params)


def arch_for(arches: Sequence[str], device: Device | None) -> str | None:
    """Choose the architecture to compile for: the best that runs on the device, or the highest without a GPU.

    Raises:
        ArchError: a name is malformed or unknown.
    """
    if len(arches) <= 1:
        return arches[0] if arches else None
    given = [Arch.parse(arch) for arch in arches]
    best = max(given)
    if device is not None and device.is_gpu:
        best = next((arch for arch in device.arch.served_by() if arch in given), best)
    note(f"compiling for {best}: a launch runs code for one architecture")
    return str(best)


def _named(ctx: click.Context, _option: click.Parameter, arches: Sequence[str]) -> tuple[str, ...]:
    """Replace ``native`` by the architectures of the GPUs of this machine; list each architecture once."""
    if ctx.resilient_parsing or _NATIVE not in arches:
        return tuple(arches)
    from cujit.program import present_arches  # start-up: only `native` needs the driver

    here = [str(arch) for arch in present_arches()]
    return tuple(dict.fromkeys(name for arch in arches for name in (here if arch == _NATIVE else [arch])))


def one_arch(ctx: click.Context, option: click.Parameter, arches: Sequence[str]) -> str | None:
    """Return a decorator that adds an option for one architecture. ``native`` means that of the first GPU."""
    if len(arches) > 1:
        listed = " ".join(f"--arch {arch}" for arch in arches)
        raise click.UsageError(
            f"{ctx.info_name} creates one image for one architecture; for several architectures, run cujit "
            f"build FILE {listed}"
        )
    return next(iter(_named(ctx, option, arches)), None)
