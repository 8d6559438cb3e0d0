"""``cujit run``: one kernel of a source or an image, on arrays from files or made here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from cujit.cli.arches import jit_arches_option
from cujit.cli.choose_device import choose_device
from cujit.cli.compiler_options import WrittenOptions, compiler_options
from cujit.cli.console import add_findings, json_option, note, print_json, shown_time
from cujit.cli.files import file_argument
from cujit.cli.launch_shape import ShapeOptions
from cujit.cli.launching import KernelOptions, forms_of_arguments, kernel_of, launch_options, options_for, placed_on
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.cli.observers import Watching, WatchOptions, watch_options
from cujit.cli.saved_launches import (
    ResultOptions,
    SavingOptions,
    is_saved_file,
    refuse_options,
    report_rerun,
    result_options,
    run_again,
    save_array,
    saving_options,
)
from cujit.devices.arguments.written import Value, shown_values
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import Diagnostic, KernelFaultError
from cujit.kernel import Kernel, Launch
from cujit.machine import cpu
from cujit.values import dataclass


@click.command("run", cls=CompilerCommand, epilog=forms_of_arguments())
@file_argument
@launch_options
@result_options
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Launch the kernel N times in a row. Default: 1.",
)
@saving_options
@watch_options
@jit_arches_option("Architecture to compile FILE for. Default: the architecture of the device.")
@compiler_options
@json_option
def command(
    file: Path,
    called: KernelOptions,
    results: ResultOptions,
    repeat: int,
    saving: SavingOptions,
    watch: WatchOptions,
    compiler: WrittenOptions,
    as_json: bool,
    **shape: Any,
) -> None:
    """Run a kernel; --check finds memory errors and races.

    FILE is CUDA C++ (.cu), LLVM IR (.ll, .bc), PTX, a cubin, a fatbin, or a launch saved with --save. Specify --grid
    and --block, or --over, or --cooperative. A saved launch contains its kernel and arguments, and runs in a sandboxed
    process.
    """
    if is_saved_file(file):
        refuse_options(
            "kernel_name arguments repeat save coverage schedule schedules contract "
            "option_words include define libdevice jit_arches",
            *shape,
        )
        report_rerun(run_again(file, watch, saving), results, as_json=as_json)
        return
    launch_shape = ShapeOptions(**shape)
    _check_numbers([*results.shown, *(number for number, _ in results.out)], called.values)
    options = options_for(file, compiler)
    watching = Watching(watch)
    device = _device(watching, timed=results.timed)

    begin = time.perf_counter()
    module, kernel = kernel_of(file, called.kernel_name, device, options, compiler)
    loaded_s = time.perf_counter() - begin
    launch = launch_shape.of(kernel)
    watching.require_thread(launch.shape)
    placed = placed_on(device, called.values)
    if watch.schedules is not None:
        _compare(launch, placed, watch.schedules, watch, as_json=as_json)
        return
    if saving.save is not None:
        note(f"{launch.save(saving.save, *placed)}: cujit run {saving.save} runs this launch again")
    try:
        with watching.telling(as_json=as_json):
            seconds = [_timed(launch, placed, device) for _ in range(repeat)]
    except KernelFaultError:
        if saving.save is None:
            note("to replay this launch on any machine, save it with --save bug.launch")
        raise

    for number, path in results.out:
        save_array(path, _array(placed, number))
    arrays = {number: shown_values(called.arguments[number - 1][0], _array(placed, number)) for number in results.shown}
    done = Done(kernel, module.route, launch.shape, arrays, loaded_s, tuple(seconds))
    if as_json:
        print_json({**done.report(), **watching.report()})
    else:
        done.print(results.timed)


def _device(watching: Watching, *, timed: bool) -> Device:
    """Return the device with observers, or the requested device. A CPU device has the default check."""
    watched = watching.device()
    device = watched or choose_device(watching.options.device_name)[0]
    if watched is None and not device.is_gpu:
        device = cpu(check=watching.default_check)
    if timed and not device.is_gpu and watching.default_check is not None:
        note("these times include the memory check; specify --check none to turn it off")
    return device


def _compare(
    launch: Launch, arguments: Sequence[object], schedules: int, watch: WatchOptions, *, as_json: bool
) -> None:
    """Launch under many schedules, print whether the results are equal, and exit with 1 if they aren't."""
    report = launch.under_schedules(
        *arguments, schedules=schedules, first_seed=watch.schedule or 0, check=watch.check, contract=watch.contract
    )
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(str(report))
        if report.difference is not None and report.difference.story is not None:
            click.echo(f"\n{report.difference.story}")
    if not report.equal:
        add_findings([Diagnostic("error", str(report), code="schedules")])
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class Done:
    """Facts to print after the launches. ``shape`` is None if there were no elements to cover."""

    kernel: Kernel
    route: str
    shape: LaunchShape | None
    arrays: Mapping[int, npt.NDArray[Any]]
    loaded_s: float
    seconds: tuple[float, ...]

    def report(self) -> dict[str, Any]:
        """Return the result as plain values, for machines."""
        shape = self.shape
        return {
            "kernel": self.kernel.name,
            "lowered_name": self.kernel.lowered_name,
            "device": self.kernel.device.name,
            "route": self.route,
            "grid": list(shape.grid) if shape else None,
            "block": list(shape.block) if shape else None,
            "shared_bytes": shape.shared_bytes if shape else 0,
            "load_s": self.loaded_s,
            "launch_s": list(self.seconds),
            "arrays": {index: array.tolist() for index, array in self.arrays.items()},
        }

    def print(self, timed: bool) -> None:
        """Print it for people: the arrays on standard output, the rest on standard error."""
        shape = self.shape
        how = (
            f"grid {_by(shape.grid)}, block {_by(shape.block)}"
            if shape
            else "there are no elements, so nothing was launched"
        )
        note(f"{self.kernel.name} on {self.kernel.device.name}: {how} ({self.route})")
        if timed:
            best = f", the best of {len(self.seconds)} {shown_time(min(self.seconds))}" if self.seconds[1:] else ""
            note(f"loading took {shown_time(self.loaded_s)}, the first launch {shown_time(self.seconds[0])}{best}")
        for index, array in self.arrays.items():
            prefix = f"{index}: " if self.arrays.keys() - {index} else ""
            click.echo(prefix + np.array2string(array, separator=" ", prefix=prefix))


def _by(sizes: Dim3) -> str:
    return "x".join(map(str, sizes[: 3 if sizes.z > 1 else 2 if sizes.y > 1 else 1]))


def _check_numbers(numbers: Sequence[int], arguments: Sequence[Value]) -> None:
    for number in numbers:
        if number > len(arguments):
            raise click.UsageError(f"there is no argument {number}: you passed --arg {len(arguments)} times")
        if not isinstance(arguments[number - 1], np.ndarray):
            raise click.UsageError(f"argument {number} is not an array, so it can't hold a result")


def _timed(launch: Launch, arguments: Sequence[object], device: Device) -> float:
    """Launch, wait, and return the elapsed seconds."""
    begin = time.perf_counter()
    launch(*arguments)
    device.synchronize()
    return time.perf_counter() - begin


def _array(placed: Sequence[object], number: int) -> npt.NDArray[Any]:
    array = placed[number - 1]
    assert isinstance(array, DeviceArray)
    return array.numpy()
