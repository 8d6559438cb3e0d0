"""``cujit profile``: what one launch of a kernel costs, by line, counted on the CPU device."""

from __future__ import annotations

import json
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cujit.cli.compiler_options import compiler_options
from cujit.cli.console import json_option, print_json, print_table
from cujit.cli.files import file_argument
from cujit.cli.launching import forms_of_arguments, kernel_of, launch_options, options_for, placed_on
from cujit.cli.shaping import AskedShape
from cujit.devices.arguments.written import Value
from cujit.errors import FormatError, spell
from cujit.machine import cpu
from cujit.values import dataclass

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.measures import ProfiledKernel, ProfiledLine

_MOST_TEXT = 48
"""Characters of a line of source that the table shows."""


@click.command("profile", epilog=forms_of_arguments())
@file_argument
@launch_options
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OTHER",
    help="Compare with another source or image, launched likewise, or with what --json wrote (.json).",
)
@click.option("--on", metavar="GPU", help="Tell how long it takes a GPU at least: H200, 'RTX 4090', …; none is needed.")
@click.option(
    "--plot", metavar="PATH", type=click.Path(path_type=Path), help="With --on: draw bounds, as .svg or .png."
)
@click.option("--dark", is_flag=True, help="Draw for a dark page.")
@compiler_options
@json_option
def command(
    file: Path,
    kernel_name: str | None,
    arguments: Sequence[tuple[str, Value]],
    against: Path | None,
    on: str | None,
    plot: Path | None,
    dark: bool,
    said: Sequence[str],
    include: Sequence[str],
    define: Sequence[str],
    libdevice: bool,
    as_json: bool,
    **shape: Any,
) -> None:
    """Count what one launch of a kernel of FILE costs: sectors of memory, bank conflicts, divergence, arithmetic.

    It runs on the CPU device, and counts by the addresses of the threads what a GPU counts; docs/profile.md says which
    counters are exact. FILE is CUDA C++ (.cu), LLVM IR (.ll, .bc), or an image with PTX.
    """
    if plot is not None and on is None:
        raise click.UsageError("--plot draws bounds, so say --on which GPU")
    # start-up: brings the CPU device
    from cujit.profile import peaks
    from cujit.profile import plot as draw

    gpu = None if on is None else peaks(on).name
    asked = _Asked(
        kernel_name, [value for _, value in arguments], AskedShape(**shape), libdevice, said, include, define
    )
    profiled = asked.profiled(file)
    if plot is not None and gpu is not None:
        draw(plot, profiled, gpu, dark=dark)
    if against is not None:
        before = _read(against) if against.suffix == ".json" else _record(asked.profiled(against), gpu)
        _compare(against.name, before, file.name, _record(profiled, gpu), as_json=as_json)
    elif as_json:
        print_json({"schema": 1, "kernels": [_record(profiled, gpu)]})
    else:
        _tell(profiled)
        if gpu is not None:
            _tell_bounds(profiled, gpu)


def _record(profiled: ProfiledKernel, gpu: str | None) -> dict[str, Any]:
    from cujit.profile import bounds  # start-up: brings the CPU device

    said = profiled.to_json()
    return said if gpu is None else {**said, "bounds": bounds(profiled, gpu).to_json()}


@dataclass(frozen=True)
class _Asked:
    """One launch, of any file."""

    kernel_name: str | None
    values: list[Value]
    shape: AskedShape
    libdevice: bool
    said: Sequence[str]
    include: Sequence[str]
    define: Sequence[str]

    def profiled(self, file: Path) -> ProfiledKernel:
        """Make the launch, and give what it cost."""
        from cujit.devices.cpu.observe.profile import Profile  # start-up: brings the CPU device

        profile = Profile()
        device = cpu(profile=profile)
        options = options_for(file, self.said, self.include, self.define, libdevice=self.libdevice)
        _, kernel = kernel_of(file, self.kernel_name, device, options, libdevice=self.libdevice)
        launch = self.shape.of(kernel)
        if launch.shape is None:
            raise click.UsageError("there is nothing to cover, so nothing is launched")
        launch(*placed_on(device, self.values))
        return profile.kernels[0]


# -- one launch -----------------------------------------------------------------------------------------------


def _tell(kernel: ProfiledKernel) -> None:
    total = kernel.totals
    click.echo(f"{kernel.name}: {total.active:,} instructions of threads, {total.warps:,} of warps, counted in PTX")
    if total.sectors:
        click.echo(
            f"global memory: {total.requests:,} requests, {total.sectors:,} sectors, {total.moved_bytes:,} bytes moved "
            f"for {total.asked_bytes:,} asked; {kernel.distinct_sectors:,} sectors are distinct"
        )
    if total.wavefronts:
        click.echo(f"shared memory: {total.wavefronts:,} wavefronts, {total.bank_conflicts:,} for bank conflicts")
    click.echo("")
    rows = [_cells(line) for line in kernel.lines() if line.measures.warps]
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    right = [name for name in columns if name not in ("line", "source")]
    print_table(columns, [[row[name] for name in columns] for row in rows], right=right)


def _cells(line: ProfiledLine) -> dict[str, str]:
    source, m = line.source, line.measures
    text = linecache.getline(source.file, source.line).strip() if source is not None else ""
    return {
        "line": f"{Path(source.file).name}:{source.line}" if source is not None else "",
        "source": text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…",
        "warps": _count(m.warps),
        "lanes": f"{m.active_lanes:.1f}",
        "divergent": _count(m.divergent_branches),
        "requests": _count(m.requests),
        "sectors": _count(m.sectors),
        "each": f"{m.sectors_per_request:.1f}" if m.requests else "",
        "local sectors": _count(m.local_sectors),
        "wavefronts": _count(m.wavefronts),
        "conflicts": _count(m.bank_conflicts) if m.wavefronts else "",
        "at one word": _count(m.most_contended),
        "flops": _count(m.flops),
    }


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _tell_bounds(profiled: ProfiledKernel, gpu: str) -> None:
    # start-up: brings the CPU device
    from cujit.profile import bounds
    from cujit.profile.bounding import NOT_MODELLED, micros

    found = bounds(profiled, gpu)
    click.echo(f"\n{found}\n")
    rows = [
        [
            bound.unit,
            f"{bound.amount:,.0f} {bound.what}",
            micros(bound.seconds),
            f"{bound.seconds / found.seconds:.0%}",
            f"{bound.place}, {bound.share:.0%}" if bound.place else "",
            bound.cause,
        ]
        for bound in found.bounds
    ]
    print_table(("part of the GPU", "has", "bound", "of the tightest", "most at", "for"), rows, right=("has", "bound"))
    if found.flops_per_byte:
        each = f", {found.flops_per_l1_byte:.3g} per byte moved" if found.flops_per_l1_byte else ""
        click.echo(f"\n{found.flops_per_byte:.3g} floating-point operations per distinct byte of global memory{each}")
    for missing in found.unknown:
        click.echo(f"no throughput is known for {missing}")
    click.echo(f"\na bound is no time; not modelled are {NOT_MODELLED}")


# -- two launches -----------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    """Read what ``--json`` wrote.

    Raises:
        FormatError: it is something else.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())["kernels"][0]
        _numbers(found)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise FormatError(f"{spell(path.name)} is not what cujit profile --json writes") from None
    return found


def _numbers(kernel: dict[str, Any]) -> dict[str, int]:
    """List what two launches are compared by."""
    rows = kernel.get("bounds", {}).get("bounds", ())
    bounds = {f"bound in ns: {row['unit']}": round(row["bound_s"] * 1e9) for row in rows}
    return {**kernel["totals"], "distinct_sectors": kernel["distinct_sectors"], **kernel["metrics"], **bounds}


def _compare(old: str, before: dict[str, Any], new: str, after: dict[str, Any], *, as_json: bool) -> None:
    first, second = _numbers(before), _numbers(after)
    names = [name for name in {**first, **second} if first.get(name, 0) or second.get(name, 0)]
    found = {name: (first.get(name, 0), second.get(name, 0)) for name in names}
    if as_json:
        differences = {name: {"before": a, "after": b, "difference": b - a} for name, (a, b) in found.items()}
        print_json({"schema": 1, "before": before["kernel"], "after": after["kernel"], "measures": differences})
        return
    rows = [[name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if a != b else ""] for name, (a, b) in found.items()]
    print_table(("", old, new, "difference"), rows, right=(old, new, "difference"))
