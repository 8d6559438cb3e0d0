"""``cujit doctor``: what is here, whether it fits together, and what to do."""

from __future__ import annotations

from typing import Any

import click

from cujit.cli.console import attributes, json_option, print_json, print_table
from cujit.cli.exit_codes import ExitCode
from cujit.cli.speech import for_the_shell
from cujit.machine.health import Component, Health, doctor

_STYLES = {"ok": "green", "absent": "", "missing": "red", "mismatch": "yellow"}


@click.command("doctor")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Tell which libraries, headers and devices are found, how, and whether they match.

    The status is 3 when something that is needed is missing or does not match; a GPU is not needed.
    """
    report = doctor()
    if as_json:
        print_json(_as_data(report))
    else:
        _tell(report)
    if not report.is_good:
        ctx.exit(ExitCode.MISSING)


def _as_data(report: Health) -> dict[str, Any]:
    return {
        "good": report.is_good,
        "parts": [attributes(p, "name state needed version path found_via problem fix") for p in report.parts],
        "devices": [
            {"name": d.name, "product": d.product, "arch": str(d.arch), "processors": d.limits.processors}
            for d in report.devices
        ],
        "fixes": list(report.fixes),
    }


def _tell(report: Health) -> None:
    rows = [(p.name, p.state, p.version, p.found_via, p.purpose) for p in report.parts]
    styles = [_STYLES[p.state] for p in report.parts]
    print_table(("part", "state", "version", "found via", "for"), rows, styles=styles)
    for p in report.parts:
        if p.problem:
            click.echo(_remark(p))
    click.echo("")
    rows_of_devices = [(d.name, d.product, str(d.arch), str(d.limits.processors)) for d in report.devices]
    print_table(("device", "product", "runs code of", "processors"), rows_of_devices, right=("processors",))
    click.echo("")
    if report.is_good:
        click.echo("Everything that is needed is here.")
        return
    for fix in report.fixes:
        click.echo(f"fix with: {for_the_shell(fix)}")


def _remark(part: Component) -> str:
    return f"{part.name}: {part.problem}" + (f"\n  try: {for_the_shell(part.fix)}" if part.fix else "")
