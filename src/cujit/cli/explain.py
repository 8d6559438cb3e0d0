"""``cujit explain``: prints the meaning of an error code and a fix."""

from __future__ import annotations

import click

from cujit.cli.console import json_option, print_json, print_table
from cujit.cli.help import Command
from cujit.errors.codes import CODES, explain


@click.command("explain", cls=Command)
@click.argument("code", required=False)
@json_option
def command(code: str | None, as_json: bool) -> None:
    """Explain an error code.

    The error code is in brackets after an error message. In Python, the code is error.code. Without CODE, cujit lists
    all codes.
    """
    found = CODES if code is None else {code: explain(code)}
    if as_json:
        print_json({name: row._asdict() | {"errors": row.errors.split()} for name, row in found.items()})
    elif code is None:
        print_table(("code", "meaning"), [(name, row.meaning) for name, row in found.items()])
    else:
        row = found[code]
        click.echo(f"{code} ({row.errors.replace(' ', ', ')})\n\n{row.meaning}\n{row.remedy}")
