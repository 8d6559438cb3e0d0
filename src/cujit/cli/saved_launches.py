"""Saved launches for ``cujit run`` and ``cujit profile``: read, run in a separate process, and printed."""

from __future__ import annotations

import io
import linecache
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt
from click.core import ParameterSource

from cujit.artifact.writing import write_file
from cujit.cli.compiler_options import memory_option
from cujit.cli.console import note, print_json, settings, shown_time
from cujit.cli.observers import WatchOptions
from cujit.errors import spell
from cujit.formats.saved_launch import SavedLaunch, is_saved
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.measures import ProfiledKernel
    from cujit.reproducer.running import Rerun

_MAGIC_BYTES = 8


class SavingOptions(NamedTuple):
    """Where a launch is saved, and the sandbox that a saved launch runs in."""

    save: Path | None
    memory_mib: int | None
    trusted: bool


saving_options = settings(
    "saving",
    SavingOptions,
    click.option(
        "--save",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Before launching, save the launch with its image, source, and arguments to FILE, such as bug.launch.",
    ),
    memory_option("Maximum address space of the sandbox for a saved launch, in MiB."),
    click.option(
        "--unsandboxed",
        "trusted",
        is_flag=True,
        help="Run a saved launch even if the system can't filter system calls.",
    ),
)


def output_file(text: str) -> tuple[int, Path]:
    """Read ``N=FILE``, where N is the index of an argument from 1 on.

    Raises:
        click.BadParameter: the value is invalid.
    """
    number, separator, path = text.partition("=")
    if not (separator and path and number.isascii() and number.isdigit() and int(number)):
        raise click.BadParameter(f"{spell(text)} is not N=FILE, such as 1=y.npy for the first argument")
    return int(number), Path(path)


class ResultOptions(NamedTuple):
    """Which results of a launch are saved and printed."""

    out: Sequence[tuple[int, Path]]
    shown: Sequence[int]
    timed: bool


result_options = settings(
    "results",
    ResultOptions,
    click.option(
        "--out",
        type=output_file,
        metavar="N=FILE",
        multiple=True,
        help="Save array argument N to FILE (.npy) after the launch. The first argument is number 1.",
    ),
    click.option(
        "--print",
        "shown",
        type=click.IntRange(min=1),
        multiple=True,
        metavar="N",
        help="Print array argument N after the launch. The first argument is number 1.",
    ),
    click.option("--time", "timed", is_flag=True, help="Print the load time and the launch times."),
)


def is_saved_file(path: Path) -> bool:
    """Return whether a file is a saved launch, by its first bytes. Only a regular file is opened, as opening others may
    block.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return is_saved(file.read(_MAGIC_BYTES))
    except OSError:
        return False


def refuse_options(names: str, *more: str) -> None:
    """Refuse options that don't apply to a saved launch, by their parameter names.

    Raises:
        click.UsageError: such an option is set.
    """
    context = click.get_current_context()
    wrong = {*names.split(), *more}
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name in wrong:
            raise click.UsageError(
                f"{parameter.opts[-1]} doesn't apply to a saved launch, which already contains its kernel and arguments"
            )


def run_again(file: Path, watch: WatchOptions, sandbox: SavingOptions) -> Rerun:
    """Run a saved launch with the options.

    Raises:
        CujitError: as ``reproducer.run``, except for errors that end the launch early.
    """
    from cujit.reproducer.running import TIMEOUT_S, run_once  # start-up: for who has a saved launch

    return run_once(
        file,
        device=watch.device_name,
        check=watch.check,
        trace=None if watch.traced is None else (*watch.traced, watch.trace_limit),
        timeout_s=TIMEOUT_S if watch.timeout_s is None else watch.timeout_s,
        memory_mib=sandbox.memory_mib,
        trusted=sandbox.trusted,
    )


def report_rerun(rerun: Rerun, wanted: ResultOptions, *, as_json: bool) -> None:
    """Print the results of a saved launch, and raise the error that ended it."""
    for index, path in wanted.out:
        save_array(path, _array(rerun, index))
    arrays = {index: _array(rerun, index) for index in wanted.shown}
    _print_words(rerun, as_json=as_json)
    if rerun.error is not None:
        raise rerun.error
    if as_json:
        print_json(_report(rerun, arrays))
        return
    saved = rerun.saved
    how = f"grid {'x'.join(map(str, saved.grid))}, block {'x'.join(map(str, saved.block))}"
    note(f"{saved.kernel} on {rerun.device}: {how}, as it was saved on {saved.device} ({rerun.route})")
    if wanted.timed:
        note(f"the launch took {shown_time(rerun.seconds)}")
    for index, array in arrays.items():
        prefix = f"{index}: " if len(arrays) > 1 else ""
        click.echo(prefix + np.array2string(array, separator=" ", prefix=prefix))


def _print_words(rerun: Rerun, *, as_json: bool) -> None:
    """Print the kernel's output and the trace. With JSON output, ``_report`` contains both after a
    successful launch.
    """
    from cujit.workers.answers import printable  # start-up: for saved launches

    if rerun.without_filter:
        note(f"system calls of the launch were not filtered: {rerun.without_filter}")
    if not as_json:
        click.echo(printable(rerun.printed), nl=False)
    if rerun.dropped_bytes:
        note(f"the kernel printed {rerun.dropped_bytes:,} bytes more")
    if rerun.trace is not None and (rerun.error is not None or not as_json):
        click.echo(printable(str(rerun.trace["text"])), err=as_json)


def _report(rerun: Rerun, arrays: Mapping[int, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return the rerun as plain values, for machines."""
    saved = rerun.saved
    return {
        "kernel": saved.kernel,
        "lowered_name": saved.lowered,
        "device": rerun.device,
        "route": rerun.route,
        "saved_on": saved.device,
        "grid": list(saved.grid),
        "block": list(saved.block),
        "shared_bytes": saved.shared_bytes,
        "launch_s": [rerun.seconds],
        "printed": rerun.printed,
        "arrays": {index: array.tolist() for index, array in arrays.items()},
        **({} if rerun.trace is None else {"trace": rerun.trace["launches"]}),
    }


def _array(rerun: Rerun, number: int) -> npt.NDArray[Any]:
    if number > len(rerun.arguments):
        raise click.UsageError(f"there is no argument {number}: {rerun.saved.kernel} has {len(rerun.arguments)}")
    if rerun.saved.arguments[number - 1].place is None:
        raise click.UsageError(f"argument {number} is not an array, so it can't hold a result")
    value = rerun.arguments[number - 1]
    return np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as NumPy reads it."""
    content = io.BytesIO()  # NumPy writes to a file past Python, and does not hear of a full disk
    np.save(content, array, allow_pickle=False)  # in place: memory
    write_file(path, content.getvalue())


def profiled_again(file: Path) -> tuple[ProfiledKernel, SavedLaunch]:
    """Profile a saved launch, and return the costs and the sources for printing lines.

    Raises:
        CujitError: as ``reproducer.run``.
    """
    from cujit.reproducer.running import run  # start-up: for who has a saved launch

    rerun = run(file, profile=True)
    assert rerun.profile is not None
    for text in rerun.saved.texts:
        linecache.cache[text.shown] = len(text.text), None, text.text.splitlines(keepends=True), text.shown
    return rerun.profile, rerun.saved
