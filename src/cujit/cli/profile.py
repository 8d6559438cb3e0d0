"""``cujit profile``: prints the costs of a kernel launch by line, counted on the CPU device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cujit.artifact.reading import quoted_lines
from cujit.artifact.writing import write_file
from cujit.cli.arches import jit_arches_option
from cujit.cli.compiler_options import WrittenOptions, compiler_options
from cujit.cli.console import PlotOptions, Rows, json_option, plot_options, print_json, show
from cujit.cli.files import file_argument
from cujit.cli.launch_shape import ShapeOptions
from cujit.cli.launching import KernelOptions, forms_of_arguments, kernel_of, launch_options, options_for, placed_on
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.cli.saved_launches import is_saved_file, profiled_again, refuse_options
from cujit.devices.watch import Text
from cujit.errors import FormatError, counted, spell
from cujit.loading import Module
from cujit.machine import cpu
from cujit.values import NamedTuple, dataclass

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.measures import ProfiledInstruction, ProfiledKernel, ProfiledLine
    from cujit.profile.advice import Advice
    from cujit.profile.bounding import KernelBounds
    from cujit.profile.comparing import CostComparison

_MOST_TEXT = 48
"""Characters of a line of source that the table shows."""

_MUCH = 2
"""Times that each sector of a line comes, for the table to have a column of that."""


@click.command("profile", cls=CompilerCommand, epilog=forms_of_arguments())
@file_argument
@launch_options
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OTHER",
    help="Compare with another source or image, launched the same way, or with a .json file written with --json.",
)
@click.option(
    "--on",
    metavar="GPU",
    help="Print lower bounds for the run time on a GPU model, such as H200 or 'RTX 4090'. No GPU is needed.",
)
@plot_options("With --on: write a roofline plot to PATH (.svg or .png).")
@click.option(
    "--html",
    "page",
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a self-contained HTML report: source, PTX, and SASS by line, with all counters.",
)
@jit_arches_option("Architecture to compile FILE for. Default: the architecture of the device.")
@compiler_options
@json_option
def command(
    file: Path,
    called: KernelOptions,
    against: Path | None,
    on: str | None,
    drawing: PlotOptions,
    page: Path | None,
    compiler: WrittenOptions,
    as_json: bool,
    **shape: Any,
) -> None:
    """Count memory traffic, bank conflicts, and divergence.

    cujit runs one launch on the CPU device and computes the counters from the addresses that the threads access.
    docs/profile.md lists which counters are exact. At the end, cujit prints findings with advice. FILE is CUDA C++
    (.cu), LLVM IR (.ll, .bc), an image that contains PTX, or a saved launch, which runs in a sandboxed process.
    """
    if drawing.plot is not None and on is None:
        raise click.UsageError("--plot draws lower bounds: specify --on GPU")
    # start-up: brings the CPU device
    from cujit.profile import bounds, compare, peaks, plot
    from cujit.profile.records import kernel_record

    gpu = None if on is None else peaks(on).name
    if is_saved_file(file):
        refuse_options("kernel_name arguments option_words include define libdevice jit_arches", *shape)
    request = _ProfileRequest(called, shape, compiler)
    launched = request.launched(file)
    profiled = launched.profile
    if page is not None:
        from cujit.report import of as report_of  # start-up: for who asks

        write_file(page, report_of(launched.image, profile=profiled, on=gpu, texts=launched.texts).html())
    if drawing.plot is not None and gpu is not None:
        plot(drawing.plot, profiled, gpu, dark=drawing.dark)
    if against is not None:
        before = _read(against) if against.suffix == ".json" else request.launched(against).profile
        compared = compare(before, profiled, on=gpu)
        if as_json:
            print_json({"schema": 1, **compared.to_json()})
        else:
            show(render_cost_changes(compared, against.name, file.name))
    elif as_json:
        print_json({"schema": 1, "kernels": [kernel_record(profiled, gpu)]})
    else:
        show(render_costs(profiled, gpu))
        if gpu is not None:
            show(render_bounds(bounds(profiled, gpu)))


class _Launched(NamedTuple):
    """The costs of a launch, its image, and its in-memory sources."""

    profile: ProfiledKernel
    image: Module | bytes
    texts: Mapping[str, Text]


@dataclass(frozen=True)
class _ProfileRequest:
    """One launch, of any file."""

    called: KernelOptions
    shape: Mapping[str, Any]
    compiler: WrittenOptions

    def launched(self, file: Path) -> _Launched:
        """Run the launch, and return its costs."""
        from cujit.devices.cpu.observe.profile import Profile  # start-up: brings the CPU device

        if is_saved_file(file):
            profiled, saved = profiled_again(file)
            return _Launched(
                profiled, saved.images[0], {text.name: Text(text.shown, text.text) for text in saved.texts}
            )
        shape, profile = ShapeOptions(**self.shape), Profile()
        device = cpu(profile=profile)
        options = options_for(file, self.compiler)
        module, kernel = kernel_of(file, self.called.kernel_name, device, options, self.compiler)
        launch = shape.of(kernel)
        if launch.shape is None:
            raise click.UsageError("--over must be at least 1, not 0")
        launch(*placed_on(device, self.called.values))
        return _Launched(profile.kernels[0], module, {})


# -- one launch -----------------------------------------------------------------------------------------------


def render_costs(kernel: ProfiledKernel, on: str | None = None) -> Iterator[str | Rows]:
    """Yield the costs of a kernel line by line, and the advice for it with estimates for a GPU."""
    total = kernel.totals
    yield f"{kernel.name}: {total.active:,} thread instructions, {total.warps:,} warp instructions, counted in PTX"
    if total.sectors:
        yield (
            f"global memory: {total.requests:,} requests, {total.sectors:,} sectors "
            f"({kernel.distinct_sectors:,} distinct), {total.moved_bytes:,} bytes moved for {total.asked_bytes:,} "
            "requested bytes"
        )
    if total.wavefronts:
        yield f"shared memory: {total.wavefronts:,} wavefronts, {total.bank_conflicts:,} for bank conflicts"
    yield ""
    yield from _table(kernel)
    for advice in _advice(kernel, on):
        yield f"\n{advice.rule}: {advice}"
        yield advice.estimate


def _table(kernel: ProfiledKernel) -> Iterator[str | Rows]:
    """Yield the source lines, or the PTX lines if no source line is known."""
    rows = [_cells_of_line(line) for line in kernel.lines() if line.measures.warps]
    by_ptx = [] if any(row["line"] for row in rows) else _cells_of_ptx(kernel)
    if by_ptx:
        yield "no source lines are known (compile with -O lineinfo, or nvcc -lineinfo), so the rows are PTX lines:"
        rows = by_ptx
    columns = [name for name in (rows or [{}])[0] if _has_values(name, [row[name] for row in rows])]
    right = [name for name in columns if name not in ("line", "source")]
    yield Rows(columns, [[row[name] for name in columns] for row in rows], right)


def _has_values(column: str, cells: Sequence[str]) -> bool:
    return any(cells) and (column != "reuse" or max(float(cell or 0) for cell in cells) >= _MUCH)


def _advice(kernel: ProfiledKernel, on: str | None) -> tuple[Advice, ...]:
    from cujit.profile.advice import advice_for  # start-up: brings the CPU device

    return advice_for(kernel, on)


_BOUND_COLUMNS = ("unit", "work", "lower bound", "share of the highest", "most work at", "cause")
_TELLING = (
    "divergent_branches", "requests", "local_requests", "shared_requests", "texture_requests", "flops"
)  # fmt: skip


def _cells_of_ptx(kernel: ProfiledKernel) -> list[dict[str, str]]:
    """Return a row for each instruction that counts in some column, besides being executed."""
    return [
        _cells(f"PTX:{row.ptx_line}", row.text, row)
        for row in kernel.instructions
        if not row.measures.to_json().keys().isdisjoint(_TELLING)
    ]


def _cells_of_line(line: ProfiledLine) -> dict[str, str]:
    source = line.source
    if source is None:
        return _cells("", "", line)
    lines = quoted_lines(source.file)
    text = lines[source.line - 1].strip() if 0 < source.line <= len(lines) else ""
    return _cells(line.place, text, line)


def _cells(line: str, text: str, part: ProfiledLine | ProfiledInstruction) -> dict[str, str]:
    m = part.measures
    return {
        "line": line,
        "source": text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…",
        "warps": _count(m.warps),
        "lanes": f"{m.active_lanes:.1f}",
        "divergent": _count(m.divergent_branches),
        "requests": _count(m.requests),
        "sectors": _count(m.sectors),
        "each": f"{m.sectors_per_request:.1f}" if m.requests else "",
        "reuse": f"{part.reuse:.1f}" if m.sectors else "",
        "local sectors": _count(m.local_sectors),
        "wavefronts": _count(m.wavefronts),
        "conflicts": _count(m.bank_conflicts) if m.wavefronts else "",
        "at one word": _count(m.most_contended),
        "textures": _count(m.texture_requests),
        "their sectors": _count(m.texture_sectors),
        "flops": _count(m.flops),
    }


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def render_bounds(found: KernelBounds) -> Iterator[str | Rows]:
    """Yield the lower bound on the time of each unit of a GPU."""
    from cujit.profile.bounding import NOT_MODELLED, micros  # start-up: brings the CPU device

    yield f"\n{found}"
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
    if rows:
        yield ""
        yield Rows(_BOUND_COLUMNS, rows, ("work", "lower bound"))
    if found.flops_per_byte:
        each = f", {found.flops_per_l1_byte:.3g} per byte moved" if found.flops_per_l1_byte else ""
        yield f"\n{found.flops_per_byte:.3g} floating-point operations per distinct byte of global memory{each}"
    yield from (f"no throughput is known for {missing}" for missing in found.unknown)
    yield f"\nthese are lower bounds, not predicted run times; not modeled: {NOT_MODELLED}"


# -- two launches -----------------------------------------------------------------------------------------------


def _read(path: Path) -> ProfiledKernel:
    """Read the output of ``--json``.

    Raises:
        FormatError: the file contains something else.
    """
    from cujit.profile.reading import read_profile  # start-up: brings the CPU device

    kernels = read_profile(path)
    if len(kernels) != 1:
        raise FormatError(
            f"{spell(path.name)} contains {counted(len(kernels), 'kernel')}; a comparison requires exactly one"
        )
    return kernels[0]


def render_cost_changes(
    comparison: CostComparison, old_name: str = "before", new_name: str = "after"
) -> Iterator[str | Rows]:
    """Yield the costs of two launches, each in a column under its name."""
    rows = [
        [each.what, f"{each.before:,}", f"{each.after:,}", f"{each.difference:+,}" if each.difference else ""]
        for each in comparison.changes
    ]
    yield Rows(("", old_name, new_name, "difference"), rows, (old_name, new_name, "difference"))
