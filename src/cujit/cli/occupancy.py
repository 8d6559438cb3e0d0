"""``cujit occupancy``: how many blocks of a kernel a GPU holds at a time, over block sizes; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from cujit.cli.console import PlotOptions, Rows, json_option, note, plot_options, print_json, settings, show
from cujit.cli.files import FILE, complete_kernel
from cujit.cli.help import Command
from cujit.cli.launch_shape import sizes_option
from cujit.devices.device import Device
from cujit.devices.process import is_device_name, process_devices
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError, LaunchError, MissingError
from cujit.kernel import Kernel
from cujit.loading import load
from cujit.occupancy.choosing import NextStep, SharedBytes
from cujit.occupancy.result import Occupancy
from cujit.occupancy.subject import Subject, subject
from cujit.occupancy.subject import plot as plot_occupancy
from cujit.values import NamedTuple, attributes

_USUAL = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


class SubjectOptions(NamedTuple):
    """The kernel, with the values of options about the kernel and the GPU."""

    kernel: str | None
    processors: int | None
    registers: int | None
    static_shared_bytes: int | None


class OccupancyOptions(NamedTuple):
    """The launch configuration whose occupancy is computed, except its block."""

    shared_bytes: int
    shared_per_thread: int
    grid: tuple[int, ...] | None
    cluster: tuple[int, ...] | None

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of ``Subject.at`` and ``Subject.best``."""
        shared: SharedBytes = self.shared_bytes
        if self.shared_per_thread:
            shared = lambda threads: self.shared_bytes + self.shared_per_thread * threads  # noqa: E731
        cluster = None if self.cluster is None else Dim3.of(self.cluster, "cluster").volume
        return {"shared_bytes": shared, "grid": self.grid, "cluster": cluster}


_subject_options = settings(
    "subject_options",
    SubjectOptions,
    click.option(
        "--kernel",
        metavar="NAME",
        shell_complete=complete_kernel,
        help="Kernel to analyze. Default: the only kernel in FILE.",
    ),
    click.option("--processors", metavar="N", type=int, help="Number of SMs, for a GPU that isn't in the table."),
    click.option("--registers", metavar="N", type=int, help="Registers per thread. Default: the number in the image."),
    click.option(
        "--static-shared-bytes",
        metavar="N",
        type=int,
        help="Static shared memory per block, in bytes. Default: the size in the image.",
    ),
)

_launch_options = settings(
    "launch",
    OccupancyOptions,
    click.option(
        "--shared-bytes",
        metavar="BYTES",
        type=int,
        default=0,
        help="Dynamic shared memory per block, in bytes. Default: 0.",
    ),
    click.option(
        "--shared-per-thread",
        metavar="N",
        type=int,
        default=0,
        help="Additional dynamic shared memory per thread, in bytes. Default: 0.",
    ),
    sizes_option("--grid", "Number of blocks along x, y, and z, to compute the number of waves."),
    sizes_option(
        "--cluster", "Number of blocks per cluster along x, y, and z, to compute the number of resident clusters."
    ),
)


@click.command("occupancy", cls=Command)
@click.argument("file", required=False, type=FILE)
@_subject_options
@click.option(
    "--on",
    metavar="GPU",
    help="GPU to compute the occupancy for, such as H200, 'RTX 5090', sm_90, or cuda:0. "
    "Default: the architecture of the image.",
)
@sizes_option(
    "--block",
    "Number of threads per block along x, y, and z, such as 256 or 16x16. Default: common block sizes.",
    multiple=True,
)
@_launch_options
@plot_options("Write a plot to PATH (.svg or .png).")
@json_option
def command(
    file: Path | None,
    subject_options: SubjectOptions,
    on: str | None,
    block: tuple[tuple[int, ...], ...],
    launch: OccupancyOptions,
    drawing: PlotOptions,
    as_json: bool,
) -> None:
    """Compute the occupancy of a kernel for a named GPU.

    FILE is a cubin, a fatbin, or a host file. Without FILE, specify --registers and --on. cujit prints the resident
    blocks and the limiting resource for each block size, and marks the largest block size with the highest occupancy.
    If a GPU of that architecture is present, cujit also queries its driver.
    """
    if file is None and (subject_options.registers is None or on is None):
        raise click.UsageError("without FILE, specify --registers and --on")
    found = subject(file, on=gpu(on), **subject_options._asdict())
    how = launch.keywords()
    best = found.best(**how)
    rows = [found.at(n, **how) for n in block or _sizes(found, best)]
    is_own = subject_options.registers is None and subject_options.static_shared_bytes is None
    driver_answers = _ask_driver(file, found, rows) if file is not None and is_own else {}
    if drawing.plot is not None:
        shown = block[0] if block else best.block
        plot_occupancy(drawing.plot, found, shown, shared_bytes=how["shared_bytes"], dark=drawing.dark)
    if as_json:
        print_json(_record(found, best, rows, driver_answers))
    else:
        show(render_occupancy(best, rows, driver_answers))


def gpu(on: str | None) -> str | Device | None:
    """Read ``--on``: the name of a device of this machine, or of a GPU in the product table."""
    return process_devices().named(on) if on is not None and is_device_name(on) else on


def _sizes(found: Subject, best: Occupancy) -> list[int]:
    possible = set(found.blocks)
    return sorted({n for n in _USUAL if n in possible} | {best.block, max(possible)})


# -- what the driver says -----------------------------------------------------------------------------------


def _ask_driver(file: Path, found: Subject, rows: list[Occupancy]) -> dict[int, float]:
    """Ask the driver of a GPU of that architecture, if there is one; answers are by block size."""
    try:
        gpus = process_devices().gpus()
    except MissingError:
        return {}
    device = next((gpu for gpu in gpus if gpu.arch.number == found.product.arch.number), None)
    if device is None:
        return {}
    try:
        with load(file, device) as module:
            kernel = module[found.lowered_name]
            return {row.block: _driver_occupancy(kernel, row) for row in rows}
    except CujitError as e:
        note(f"cujit couldn't query the driver of {device.name}: {e.message}")
        return {}


def _driver_occupancy(kernel: Kernel, row: Occupancy) -> float:
    try:
        return kernel.occupancy(row.block, row.shared_bytes)
    except LaunchError:  # such a block does not run
        return 0.0


# -- printing -----------------------------------------------------------------------------------------------


def _record(found: Subject, best: Occupancy, rows: list[Occupancy], driver_answers: dict[int, float]) -> dict[str, Any]:
    demand = found.demand
    return {
        "schema": 1,
        "kernel": found.kernel,
        "gpu": found.product.name,
        "arch": str(found.product.arch),
        "processors": found.product.processors,
        "registers": demand.registers,
        "static_shared_bytes": demand.shared_bytes,
        **attributes(demand, "barriers max_threads virtual_resources"),
        "best_block": best.block,
        "rows": [row.to_json() | _answer(row, driver_answers) for row in rows],
    }


def _answer(row: Occupancy, driver_answers: dict[int, float]) -> dict[str, Any]:
    return {"driver_occupancy": driver_answers[row.block]} if row.block in driver_answers else {}


def render_occupancy(
    best: Occupancy, rows: Sequence[Occupancy] = (), driver_answers: Mapping[int, float] = MappingProxyType({})
) -> Iterator[str | Rows]:
    """Yield how many blocks are active at a time, for one block size or for several sizes with the best marked."""
    processors = f", {best.product.processors} multiprocessors" if best.product.processors else ""
    yield f"{best.kernel} on {best.product}{processors}"
    yield (
        f"{best.demand.registers} registers a thread, {best.demand.shared_bytes:,} bytes of static shared memory, "
        f"blocks of {best.demand.largest_block} at most\n"
    )
    columns = _columns(best, rows or [best], driver_answers)
    if not rows:
        columns.pop("", None)  # which of several is the best
    styles = ["dim" if not row.active_blocks else "bold green" if row.block == best.block else "" for row in rows]
    right = [name for name in columns if name not in ("", "limited by", "one block more")]
    yield Rows(tuple(columns), list(zip(*columns.values(), strict=True)), right, styles)
    if rows:
        yield from _render_best(best, rows)


def _columns(best: Occupancy, rows: Sequence[Occupancy], driver_answers: Mapping[int, float]) -> dict[str, list[str]]:
    """Return the columns that contain information, by their headings."""
    heads = [_cells(row, best, driver_answers) for row in rows]
    columns = {name: [cells[name] for cells in heads] for name in heads[0]}
    return {name: cells for name, cells in columns.items() if any(cells)}


def _cells(row: Occupancy, best: Occupancy, driver_answers: Mapping[int, float]) -> dict[str, str]:
    """Return the cells of one block size, by the column headings."""
    return {
        "block": str(row.block),
        "shared": f"{row.shared_bytes:,}" if best.shared_bytes else "",
        "occupancy": f"{row.fraction:.1%}",
        "driver": f"{driver_answers[row.block]:.1%}" if row.block in driver_answers else "",
        "": "best" if row.block == best.block and row.active_blocks else "",
        "blocks": str(row.active_blocks),
        "warps": f"{row.active_warps} of {row.max_warps}",
        "limited by": " and ".join(limiter.value for limiter in row.limited_by),
        "resident grid": _count(row.cooperative_blocks),
        "clusters at most": _count(row.clusters_bound),
        "waves": f"{row.waves.count:.2f}" if row.waves else "",
        "slots used": f"{row.waves.efficiency:.0%}" if row.waves else "",
        "one block more": _needs(row.next_step),
    }


def _needs(step: NextStep | None) -> str:
    if step is None:
        return ""
    limits = (("registers", step.registers), ("shared", step.shared_bytes), ("barriers", step.barriers))
    return ", ".join(f"{what} ≤ {most:,}" for what, most in limits if most is not None)


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _render_best(best: Occupancy, rows: Sequence[Occupancy]) -> Iterator[str]:
    if not best.active_blocks:
        yield "\nno block of this kernel runs there"
    elif best.block not in [row.block for row in rows] and best.fraction > max(map(float, rows)):
        yield f"\na block of {best.block} would give {best.fraction:.1%}"
