"""``cujit bundle``: images for several architectures in one fatbin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.artifact import ImageKind
from cujit.cli.compiler_options import limit_options
from cujit.cli.console import json_option
from cujit.cli.files import FILE, kind_of_output, output_option
from cujit.cli.help import Command
from cujit.cli.images import compress_option, print_fatbin
from cujit.program import bundle


@click.command("bundle", cls=Command)
@click.argument("files", nargs=-1, required=True, type=FILE)
@output_option("Fatbin to write.", required=True)
@compress_option
@limit_options
@json_option
def command(files: Sequence[Path], output: Path, compress: str | None, as_json: bool, **limits: Any) -> None:
    """Combine PTX, cubins, and LTO-IR into one fatbin.

    If an input file is a fatbin, cujit adds each image that it contains. To bundle source files, use cujit build.
    """
    kind_of_output(output, None, (ImageKind.FATBIN,))
    print_fatbin(bundle(files, compress=compress, **limits), output, as_json)
