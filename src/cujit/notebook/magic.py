"""``%load_ext cujit``: the magic ``%%cuda``, a cell of CUDA C++, and displays of results."""

from __future__ import annotations

import builtins
import functools
import keyword
import linecache
import os
import shlex
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from cujit.artifact import ImageKind
from cujit.cli.arches import arch_option
from cujit.cli.choose_device import device_option
from cujit.cli.compiler_options import WrittenOptions, define_options, names_option
from cujit.cli.console import settings, text_of
from cujit.cli.observers import check_option
from cujit.cli.shell_hints import for_the_shell
from cujit.compiler.options.values import Tool
from cujit.devices.cpu.observe.profile import Profile
from cujit.devices.name_table import without_arguments
from cujit.emulator.settings import VARIABLE
from cujit.errors import CujitError, MissingError, OptionError, spell
from cujit.errors.stories import Story
from cujit.formats.mangling import entity_name
from cujit.kernel import Kernel
from cujit.loading import Module, jit
from cujit.machine import cpu
from cujit.notebook import failures
from cujit.notebook.displays import RENDERERS, Rendered, html_of, rows_of
from cujit.program import Options, Source, compile
from cujit.report.report import of
from cujit.values import NamedTuple


def load(shell: Any) -> None:
    """Bring ``%%cuda`` and the displays into an ``InteractiveShell``; nothing of IPython has to be imported for it.

    Raises:
        MissingError: there is no shell of IPython.
    """
    if shell is None:
        raise MissingError("this function requires IPython", help="run %load_ext cujit in a notebook or in ipython")
    names: dict[str, str] = {}

    def cuda(line: str, cell: str) -> None:
        _cuda(shell, names, line, cell)

    cuda.__doc__ = _command.get_help(_command.make_context("%%cuda", []))
    shell.register_magic_function(cuda, "cell", "cuda")
    for (module, name), render in RENDERERS.items():
        shell.display_formatter.formatters["text/html"].for_type_by_name(module, name, functools.partial(_html, render))
    failures.load(shell)


def unload(shell: Any) -> None:
    """Remove the cell magic, the HTML renderers, and the display of errors from a shell.

    Values that cells left in the namespace remain.
    """
    shell.magics_manager.magics["cell"].pop("cuda", None)
    for module, name in RENDERERS:
        shell.display_formatter.formatters["text/html"].pop(f"{module}.{name}", None)
    failures.unload(shell)


def _html(render: Callable[[object], Any], value: object) -> str:
    linecache.checkcache()  # a file may be another since
    return html_of(render(value))


# -- a cell -------------------------------------------------------------------------------------------------


def _name(cell: str, names: dict[str, str], count: int) -> str:
    """Return the notebook's name for a cell, with a number if several texts share the cell.

    A loop can run several texts in one cell. An unchanged text keeps its name, so that the cache contains it.
    """
    name = f"In[{count}]"
    others = sum(other.partition(".")[0] == name for other in names.values())
    return names.setdefault(cell, f"{name}.{others + 1}" if others else name)


def _cuda(shell: Any, names: dict[str, str], line: str, cell: str) -> None:
    """Compile a cell."""
    name = _name(cell, names, shell.displayhook.prompt_count)
    # Where a profile looks for lines of source; the line of the magic is the first, as it is for who reads the cell.
    linecache.cache[name] = (len(cell), None, ["\n", *cell.splitlines(keepends=True)], name)
    try:
        _compile(line, _Cell(name, cell, shell))
    except CujitError as e:
        e.help = e.help and for_the_shell(e.help, "%%cuda")
        failures.end_cell(shell, e)
        del names[cell]
        raise


def _compile(line: str, cell: _Cell) -> None:
    try:
        _command.main(shlex.split(line), "%%cuda", standalone_mode=False, obj=cell)
    except (click.ClickException, ValueError) as e:
        if isinstance(e, CujitError):
            raise
        message = e.format_message() if isinstance(e, click.ClickException) else str(e)
        raise OptionError(f"%%cuda {line}: {message}", help="run %%cuda? to list the options") from None


class _Cell:
    """The name and the text of a cell, the namespace for its kernels, and the function that displays its output."""

    def __init__(self, name: str, text: str, shell: Any) -> None:
        self.name = name
        # The line of the magic is the first of the cell.
        self.text = f"\n{text}"
        self._space: dict[str, object] = shell.user_ns
        self._publish = shell.display_pub.publish

    def require_free(self, name: str, what: str) -> None:
        """Check that a name is free, or refers to a value that an earlier cell left.

        Raises:
            OptionError: the name is not a Python identifier, or refers to another value.
        """
        taken = ""
        if not name.isidentifier() or keyword.iskeyword(name):
            taken = "which Python does not take for a name"
        elif name in self._space:
            value = self._space[name]
            taken = (
                ""
                if _LEFT.get(name, self) is value
                else f"which is the name of something else here ({type(value).__name__})"
            )
        elif hasattr(builtins, name):
            taken = "which is the name of a function of Python's"
        if taken:
            raise OptionError(
                f"{what} is named {name}, {taken}",
                help=f"use %%cuda --module cell to keep the kernels together (cell[{spell(name)}]), or rename it",
            )

    def leave(self, found: Mapping[str, object]) -> None:
        """Store values in the namespace, and record that a cell left them."""
        self._space.update(found)
        _LEFT.update(found)

    def show_tile_ir(self, names: Sequence[str], options: Options) -> None:
        """Display the Tile IR of the cell's tile kernels, with the source line of each operation."""
        source = Source.cuda(self.text, name=self.name)
        lined = Options.of({"lineinfo": True}, options.only(Tool.NVRTC))
        page = of(compile(source, to="tileir", names=names, options=lined), texts={source.program_name: self.text})
        self._show([*page.notes, *(rows_of(listing) for listing in page.listings if listing.kind == "tileir")])

    def show_report(self, module: Module, options: Options) -> None:
        """Display the resources and the occupancy of the cell's kernels; PTX is assembled for that."""
        is_ptx = module.artifact.kind is ImageKind.PTX
        assembler = dict(options.only(Tool.NVJITLINK, extra=False)) if is_ptx else None
        self._show(RENDERERS["cujit.report.report", "ReportPage"](of(module, assembler=assembler, title=self.name)))

    def _show(self, rendered: Rendered) -> None:
        parts = [*rendered]
        text = "\n".join(str(each) if isinstance(each, Story) else text_of(each) for each in parts)
        self._publish(data={"text/plain": text, "text/html": html_of(parts)}, metadata={})


class _CellKernels(dict[str, Kernel]):
    """A dict of the kernels that share a name, by full name.

    Unlike a plain dict, it supports the weak references in ``_LEFT``.
    """


_LEFT: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
"""What cells left under a name last, as long as somebody has it."""


class _WatchOptions(NamedTuple):
    """The device, and the options for checks and profiles."""

    device_name: str | None
    check: str | None
    profile: str | None


class _OutputOptions(NamedTuple):
    """The name for the module, and the options for displayed output."""

    module: str | None
    report: bool
    tile: bool
    quiet: bool


@click.command("%%cuda", context_settings={"help_option_names": ["-h", "--help"]})
@names_option
@arch_option("Compile for another architecture than the device's: sm_90a.")
@click.option("--std", metavar="DIALECT", help="C++ dialect, such as c++20.")
@define_options
@settings(
    "watch",
    _WatchOptions,
    device_option,
    check_option,
    click.option(
        "--profile", metavar="NAME", help="Count the costs of launches, and store them in NAME. Runs on the CPU device."
    ),
)
@settings(
    "output",
    _OutputOptions,
    click.option("--module", metavar="NAME", help="Store the module, instead of its kernels, in NAME."),
    click.option("--report", is_flag=True, help="Show registers, shared memory, spills, and occupancy of each kernel."),
    click.option(
        "--tile",
        is_flag=True,
        help="Show the Tile IR by source line. Requires tileirdisasm: pip install 'cujit[tile]'.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Hide names and warnings."),
)
@click.pass_obj
def _command(
    cell: _Cell,
    names: Sequence[str],
    arch: str | None,
    std: str | None,
    compiler: WrittenOptions,
    watch: _WatchOptions,
    output: _OutputOptions,
) -> None:
    """Compile a cell of CUDA C++ as cujit.jit does, and store its kernels in the namespace by name.

    Kernels that share a name, such as instances of a template, are stored as a dict: axpy["axpy<float>"]. A kernel
    replaces only values from earlier cells. Any other value with its name is an error.
    """
    for name in filter(None, (watch.profile, output.module)):
        cell.require_free(name, "what is asked for")
    counts = None
    # The GPU of the emulator is for other programs.
    device: Any = watch.device_name or ("cpu" if VARIABLE in os.environ else None)
    if watch.check is not None or watch.profile is not None:
        if watch.device_name not in (None, "cpu"):
            raise click.UsageError(f"--check and --profile require the CPU device: remove --device {watch.device_name}")
        counts = None if watch.profile is None else Profile()
        device = cpu(check=watch.check, profile=counts)
    if std is not None:
        compiler = compiler._replace(option_words=(*compiler.option_words, f"std={std}"))
    options = compiler.read()
    made = jit(cell.text, names=names, device=device, arch=arch, options=options, name=cell.name)
    found: dict[str, object] = {watch.profile: counts} if watch.profile is not None else {}
    found |= {output.module: made} if output.module is not None else _by_name(made, cell)
    cell.leave(found)
    if output.tile:
        cell.show_tile_ir(names, options)
    if output.report:
        cell.show_report(made, options)
    if not output.quiet:
        for text in (*_spelled(found), made.artifact.log.strip()):
            if text:
                click.echo(text)


def _by_name(module: Module, cell: _Cell) -> dict[str, object]:
    """Return the kernels by name without scopes, template arguments, and parameter types."""
    groups: dict[str, _CellKernels] = {}
    for shown, kernel in module.items():
        entity = without_arguments(entity_name(kernel.lowered_name) or kernel.lowered_name)
        groups.setdefault(entity.rpartition("::")[2], _CellKernels())[shown] = kernel
    for name in groups:
        cell.require_free(name, "a kernel")
    return {name: next(iter(group.values())) if len(group) == 1 else group for name, group in groups.items()}


def _spelled(found: Mapping[str, object]) -> Iterator[str]:
    for name, value in found.items():
        if isinstance(value, Kernel):
            yield f"{name}: {value}"
        elif isinstance(value, Mapping):
            yield from (f"{name}[{spell(shown)}]: {kernel}" for shown, kernel in value.items())
