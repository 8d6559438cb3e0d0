"""``--check``, ``--trace``, ``--coverage``, ``--schedule``, ``--contract`` and ``--timeout`` of ``cujit run``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cujit.cli.choose_device import device_option
from cujit.cli.console import settings
from cujit.devices.device import Device
from cujit.devices.options import MAX_TIMEOUT_S
from cujit.devices.shapes import LaunchShape
from cujit.errors import LaunchError, OptionError, spell
from cujit.machine import cpu
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.coverage import Coverage
    from cujit.devices.cpu.observe.trace import Trace

_TRACE_LIMIT = 100_000


class TracedPlace(NamedTuple):
    """A thread: the indices of its block and of the thread."""

    block: tuple[int, ...]
    thread: tuple[int, ...]


def place(text: str) -> TracedPlace:
    """Read ``BLOCK,THREAD``, each a linear number or ``x:y:z``.

    Raises:
        click.BadParameter: the value is invalid.
    """
    numbers = [part.split(":") for part in text.split(",")]
    right = len(numbers) == 2 and all(
        1 <= len(part) <= 3 and all(n.isascii() and n.isdigit() for n in part) for part in numbers
    )
    if not right:
        raise click.BadParameter(f"{spell(text)} is not BLOCK,THREAD, such as 0,5 or 1:2,3:4:0")
    block, thread = (tuple(map(int, part)) for part in numbers)
    return TracedPlace(block, thread)


check_option = click.option(
    "--check",
    metavar="WHAT",
    help="Errors to check for: memory, race, sync, init, a comma-separated list of these, all, or none. Uses the CPU "
    "device. Default for cujit run: memory if the kernel runs on the CPU device.",
)


class WatchOptions(NamedTuple):
    """The device of a launch, and its observers."""

    check: str | None
    traced: TracedPlace | None
    trace_limit: int
    coverage: Path | None
    schedule: int | None
    contract: str | None
    schedules: int | None
    timeout_s: float | None
    device_name: str | None


watch_options = settings(
    "watch",
    WatchOptions,
    check_option,
    click.option(
        "--trace",
        "traced",
        type=place,
        metavar="BLOCK,THREAD",
        help="Print each instruction that this thread executes, with its values. BLOCK and THREAD are linear indices "
        "or have the form x:y:z. Uses the CPU device.",
    ),
    click.option(
        "--trace-limit",
        type=click.IntRange(min=1),
        default=_TRACE_LIMIT,
        metavar="N",
        help=f"Maximum number of instructions in a trace. Default: {_TRACE_LIMIT}.",
    ),
    click.option(
        "--coverage",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Write line coverage to FILE in lcov format. Uses the CPU device.",
    ),
    click.option(
        "--schedule",
        type=click.IntRange(0, (1 << 64) - 1),
        metavar="SEED",
        help="Seed for the order in which warps and blocks run and asynchronous copies complete. Uses the CPU device.",
    ),
    click.option(
        "--schedules",
        type=click.IntRange(min=2),
        metavar="N",
        help="Launch with N different schedules, and exit with status 1 if the results differ. Uses the CPU device.",
    ),
    click.option(
        "--contract",
        type=click.Choice(["ptxas", "off"]),
        help="Fuse products and sums as ptxas does (ptxas), or round each operation separately (off). Default: off, "
        "or chosen by the --schedule seed. Uses the CPU device.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, MAX_TIMEOUT_S, min_open=True),
        metavar="SECONDS",
        help="Stop a launch that runs longer than this, and print where its blocks are. Uses the CPU device.",
    ),
    device_option,
)


class Watching:
    """The requested observers. ``trace`` and ``coverage`` are None if they weren't requested."""

    def __init__(self, options: WatchOptions) -> None:
        self.options = options
        self.trace: Trace | None = None
        self.coverage: Coverage | None = None
        if options.traced is not None:
            from cujit.devices.cpu.observe.trace import Trace  # start-up: brings the CPU device

            self.trace = Trace(*options.traced, limit=options.trace_limit)
        if options.coverage is not None:
            from cujit.devices.cpu.observe.coverage import Coverage  # start-up: brings the CPU device

            self.coverage = Coverage()

    @property
    def default_check(self) -> str | None:
        """The default check of a CPU device without requested observers."""
        return None if self.options.check or self.trace or self.coverage else "memory"

    def device(self) -> Device | None:
        """Return a CPU device with the observers and the time limit, or None without observers.

        Raises:
            click.UsageError: a GPU or an unknown check was requested.
        """
        options, name = self.options, self.options.device_name
        wanted = {
            "--check": options.check, "--trace": self.trace, "--coverage": self.coverage,
            "--timeout": options.timeout_s,
            "--schedule": options.schedule, "--contract": options.contract,
        }  # fmt: skip
        given = [option for option, value in wanted.items() if value is not None]
        if not given:
            return None
        if name not in (None, "cpu"):
            raise click.UsageError(f"{given[0]} requires the CPU device: remove --device {name}")
        try:
            return cpu(
                check=options.check or self.default_check,
                trace=self.trace,
                coverage=self.coverage,
                timeout_s=options.timeout_s,
                schedule=options.schedule,
                contract=options.contract,
            )
        except OptionError as e:
            raise click.UsageError(f"--check: {e}") from None
        except LaunchError as e:
            raise click.UsageError(f"--timeout: {e.message}") from None

    def require_thread(self, shape: LaunchShape | None) -> None:
        """Check that the launch has the thread to trace.

        Raises:
            click.UsageError: the block or the thread doesn't exist.
        """
        missing = "" if self.trace is None or shape is None else self.trace.missing(shape)
        if missing:
            raise click.UsageError(f"--trace: {missing}")

    @contextlib.contextmanager
    def telling(self, *, as_json: bool) -> Iterator[None]:
        """Print the trace and write the coverage of the block, even if it fails.

        With JSON output, ``report`` returns the trace. After a failed launch, the trace goes to standard error.
        """
        failed = True
        try:
            yield
            failed = False
        finally:
            if self.trace is not None and (failed or not as_json):
                click.echo(str(self.trace), err=as_json)
            if self.coverage is not None and self.options.coverage is not None:
                self.coverage.save(self.options.coverage)

    def report(self) -> dict[str, Any]:
        """Return the trace as plain values for JSON, or an empty list without a trace."""
        return {} if self.trace is None else {"trace": [launch.to_json() for launch in self.trace.launches]}
