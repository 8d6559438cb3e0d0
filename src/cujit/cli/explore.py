"""``cujit explore``: serves a page with an editor on this machine only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cli.arches import arch_for, jit_arches_option
from cujit.cli.compiler_options import WrittenOptions, define_options, memory_option
from cujit.cli.console import json_option, note, print_json, settings
from cujit.cli.files import file_argument
from cujit.cli.launching import KernelOptions, forms_of_arguments, launch_options
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.devices.options import MAX_TIMEOUT_S
from cujit.values import NamedTuple


class ServerOptions(NamedTuple):
    """Where the page is served, and whether the browser opens it."""

    port: int
    opens_browser: bool


class SandboxOptions(NamedTuple):
    """Limits of a launch, and whether it needs a sandbox."""

    timeout_s: float
    memory_mib: int | None
    trusted: bool


_server_options = settings(
    "server",
    ServerOptions,
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=0,
        metavar="N",
        help="Port to listen on. Default: 17440 if it is free, otherwise any free port.",
    ),
    click.option("--open", "opens_browser", is_flag=True, help="Open the page in the browser."),
)

_sandbox_options = settings(
    "sandbox",
    SandboxOptions,
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True, max=MAX_TIMEOUT_S),
        default=10.0,
        metavar="SECONDS",
        help="Maximum time per launch, in seconds. Default: 10.",
    ),
    memory_option("Maximum address space of the sandbox for each launch, in MiB."),
    click.option("--unsandboxed", "trusted", is_flag=True, help="Launch even if the system can't filter system calls."),
)


@click.command("explore", cls=CompilerCommand, epilog=forms_of_arguments())
@file_argument
@launch_options
@jit_arches_option("Architecture to compile FILE for. Default: the architecture of the --on GPU, otherwise sm_90.")
@click.option(
    "--on", default="", metavar="GPU", help="GPU model for lower bounds and occupancy, such as H200 or 'RTX 4090'."
)
@click.option("--check", default="all", metavar="WHAT", help="Checks to enable for launches, or none. Default: all.")
@_server_options
@_sandbox_options
@define_options
@json_option
def command(
    file: Path,
    called: KernelOptions,
    on: str,
    check: str,
    server: ServerOptions,
    sandbox: SandboxOptions,
    compiler: WrittenOptions,
    as_json: bool,
    **shape: Any,
) -> None:
    """Edit, compile, and profile FILE in the browser.

    cujit serves a page on 127.0.0.1 with an editor for FILE (.cu, .ll). On each change, cujit recompiles and reruns the
    kernel. The page shows PTX, SASS, registers, occupancy, counters, and messages by line. Kernels run in a sandboxed
    process with checks enabled. The printed address contains a token, and the server rejects requests without the
    token. With --json, cujit prints the data of the first view and doesn't start a server.
    """
    # start-up: brings the CPU device
    from cujit.explore import Scene, analyze, serve
    from cujit.explore.editor import EditedFile

    scene = Scene(
        "",
        arch=arch_for(compiler.jit_arches, None) or "",
        options=shlex.join(compiler.words),
        kernel=called.kernel_name or "",
        arguments=shlex.join(text for text, _ in called.arguments),
        on=on,
        check="" if check == "none" else check,
        cooperative=shape["cooperative"],
        shared_bytes=str(shape["shared_bytes"] or ""),
        **{what: _sizes(shape[what]) for what in ("grid", "block", "over", "cluster")},
    )
    if as_json:
        edited = EditedFile(file)
        print_json(analyze(edited.scene(scene), path=edited.path, **sandbox._asdict()).record())
        return
    serve(file, scene, **server._asdict(), say=_print_url, **sandbox._asdict())


def _sizes(sizes: Sequence[int] | None) -> str:
    return "x".join(map(str, sizes or ()))


def _print_url(url: str) -> None:
    click.echo(url)
    note("press Ctrl-C to stop; anyone with this address can compile and run code as you")
