"""``cujit budget``: kernels held against budgets, for continuous integration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from cujit.budget.budgets import Budget, Budgets, examine
from cujit.budget.file import read_budgets
from cujit.budget.report import COLUMNS, BudgetReport, BudgetRow
from cujit.cli.arches import arches_option
from cujit.cli.console import Rows, json_option, print_json, several, show
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import FILE, complete_kernel, file_argument, open_built
from cujit.cli.help import Command
from cujit.cli.launch_shape import sizes_option
from cujit.cli.occupancy import gpu
from cujit.cli.shell_hints import for_the_shell
from cujit.errors import LaunchError, OptionError
from cujit.values import attributes

_COUNTS = {
    "registers": "Maximum number of registers per thread.",
    "spills": "Maximum total size of spill stores and spill loads, in bytes; see --assembler-log.",
    "stack_bytes": "Maximum stack size per thread, in bytes.",
    "shared_bytes": "Maximum static shared memory per block, in bytes.",
    "code_bytes": "Maximum size of the SASS, in bytes.",
    "constant_bytes": "Maximum total size of all constant banks, in bytes.",
    "barriers": "Maximum number of named barriers per block.",
}
_COSTS = {
    "sectors": "For a profile: maximum number of global-memory sectors.",
    "local_sectors": "For a profile: maximum number of local-memory sectors.",
    "wavefronts": "For a profile: maximum number of shared-memory wavefronts.",
    "bank_conflicts": "For a profile: maximum number of bank conflicts.",
    "divergent_branches": "For a profile: maximum number of divergent branches.",
    "most_contended": "For a profile: maximum number of threads in a warp that update the same word.",
    "flops": "For a profile: maximum number of floating-point operations.",
}


def _option_of(limit: str) -> str:
    # Elsewhere --shared-bytes is the dynamic shared memory of a launch.
    return "--static-shared-bytes" if limit == "shared_bytes" else f"--{limit.replace('_', '-')}"


_limits = several(
    *(
        click.option(_option_of(name), name, type=click.IntRange(min=0), metavar="N", help=text)
        for name, text in {**_COUNTS, **_COSTS}.items()
    ),
    click.option(
        "--occupancy",
        type=click.FloatRange(0, 1),
        metavar="PART",
        help="Minimum occupancy, from 0 to 1; see --block and --on.",
    ),
    click.option(
        "--sectors-per-request",
        type=click.FloatRange(min=0),
        metavar="N",
        help="For a profile: maximum number of global-memory sectors per request.",
    ),
    sizes_option(
        "--block",
        "Number of threads per block along x, y, and z, for --occupancy. "
        "Default: the kernel's launch bounds, otherwise the best block size.",
    ),
    click.option(
        "--dynamic-shared-bytes",
        type=click.IntRange(min=0),
        metavar="N",
        help="Dynamic shared memory per block for --occupancy, in bytes.",
    ),
)


@click.command("budget", cls=Command)
@file_argument
@_limits
@click.option(
    "--budget",
    "budget_file",
    type=FILE,
    metavar="FILE",
    help="TOML file with a budget for each kernel, to use instead of limit options. Example: [[budget]], kernel = "
    "'axpy*', registers = 64.",
)
@click.option(
    "--kernels",
    "kernels",
    multiple=True,
    metavar="PATTERN",
    shell_complete=complete_kernel,
    help="Check only kernels with a matching name, such as axpy, 'axpy<*>' or '_Z4axpy*'.",
)
@arches_option("Check only the code for this architecture, such as sm_90.")
@click.option(
    "--on",
    metavar="GPU",
    help="Check the code that this GPU runs, and its occupancy. Examples: H200, 'RTX 4090', sm_90, cuda:0.",
)
@click.option(
    "--assembler-log",
    "log_file",
    type=FILE,
    metavar="FILE",
    help="Assembler log, from -O verbose or -Xptxas -v. Spills are reported only in this log.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: Path,
    budget_file: Path | None,
    kernels: Sequence[str],
    arches: Sequence[str],
    on: str | None,
    log_file: Path | None,
    as_json: bool,
    **limits: object,
) -> None:
    """Fail if a kernel's registers or spills exceed a budget.

    FILE is a cubin, a fatbin, an object, a library, or a .json file from cujit profile --json. For a profile, the
    budget applies to the counters, and cujit prints advice. The exit status is 1 if a kernel exceeds its budget or if
    its resource usage can't be determined.
    """
    budgets = _budgets(budget_file, {name: value for name, value in limits.items() if value is not None})
    is_profile = file.suffix == ".json"
    if is_profile and log_file is not None:
        raise click.UsageError("--assembler-log is for cubins, but FILE is a profile")
    report = examine(
        file if is_profile else open_built(file, log_file),
        budgets,
        kernel=kernels or None,
        arch=arches or None,
        on=gpu(on),
    )
    if as_json:
        print_json({"schema": 1, "file": str(file), "within": report.is_within, **_record(report)})
    else:
        show(render_budgets(report))
    if not report.is_within:
        ctx.exit(ExitCode.WRONG_INPUT)


def _budgets(path: Path | None, limits: Mapping[str, object]) -> Budgets:
    """Return the budgets from a file or from the limits on the command line."""
    if path is not None and limits:
        raise click.UsageError("--budget can't be combined with other limits: add the limit to the budget file")
    if path is not None:
        return read_budgets(path)
    try:
        return Budget(**limits)  # type: ignore[arg-type]
    except (LaunchError, OptionError) as e:
        raise click.UsageError(str(e)) from e


def _record(report: BudgetReport) -> dict[str, object]:
    return {"rows": [_row(row) for row in report.rows], "unchecked": report.unchecked}


def _row(row: BudgetRow) -> dict[str, object]:
    return {
        **attributes(row, "kernel lowered_name"),
        "arch": str(row.arch or "") or None,
        **attributes(row, "what allowed"),
        "is": row.measured,
        **attributes(row, "slack verdict"),
        "line": str(row.line or "") or None,
        "note": row.note or None,
        "help": row.help or None,
    }


_STYLES = {"ok": "", "over": "red", "not known": "yellow"}


def render_budgets(report: BudgetReport) -> Iterator[str | Rows]:
    """Yield which limits are kept, and hints for the other limits."""
    styles = [_STYLES[row.verdict] for row in report.rows]
    yield Rows(COLUMNS, [row.cells for row in report.rows], ("allowed", "is", "slack"), styles)
    yield from report.notes
    yield from (f"hint: {for_the_shell(text)}" for text in report.helps)
    yield from (f"not checked: {left}" for left in report.unchecked)
    yield report.summary
