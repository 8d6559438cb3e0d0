"""``cujit doctor``: lists what is installed, whether it is compatible, and fixes. It also writes a
report for an issue.
"""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import cujit.version
from cujit.artifact.writing import write_file
from cujit.cache import admin
from cujit.cache.process import default_cache
from cujit.cli.console import json_option, print_json, print_table
from cujit.cli.environment import VARIABLES
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import output_option
from cujit.cli.help import Command
from cujit.cli.shell_hints import for_the_shell
from cujit.errors import CujitError
from cujit.machine.health import Component, Health, doctor
from cujit.values import attributes

_STYLES = {"ok": "green", "absent": "", "missing": "red", "mismatch": "yellow"}
_PARTS = ("part", "state", "version", "found via")
_DEVICES = ("device", "product", "architecture", "processors")


@click.command("doctor", cls=Command)
@click.option(
    "--report",
    "as_report",
    is_flag=True,
    help="Print details for a bug report as Markdown, without user and host names.",
)
@output_option("With --report: write the report to FILE.")
@json_option
@click.pass_context
def command(ctx: click.Context, as_report: bool, output: Path | None, as_json: bool) -> None:
    """Check the libraries, headers, and devices that cujit uses.

    The exit status is 3 if a required part is missing, doesn't work, or has an incompatible version. A GPU isn't
    required. With --report, cujit prints a Markdown report with versions, wheels, the system, environment variables,
    and the state of the cache. The report replaces your home directory with ~ and omits user names, host names, and the
    addresses in URLs.
    """
    if as_report and as_json:
        raise click.UsageError("--report and --json are mutually exclusive")
    if output is not None and not as_report:
        raise click.UsageError("--output requires --report")
    report = doctor()
    if as_json:
        print_json(_as_data(report))
    elif as_report:
        _write(_markdown(report), output)
    else:
        _print_health(report)
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


def _print_health(report: Health) -> None:
    rows = [(*_part(p), p.purpose) for p in report.parts]
    styles = [_STYLES[p.state] for p in report.parts]
    print_table((*_PARTS, "for"), rows, styles=styles)
    for p in report.parts:
        if p.problem:
            click.echo(_remark(p))
    click.echo("")
    print_table(_DEVICES, _devices(report), right=("processors",))
    click.echo("")
    if report.is_good:
        click.echo("All required parts are installed.")
        return
    for fix in report.fixes:
        click.echo(f"fix with: {for_the_shell(fix)}")


def _part(part: Component) -> tuple[str, ...]:
    return part.name, part.state, part.version, part.found_via


def _devices(report: Health) -> list[tuple[str, ...]]:
    """Return a row for each device; the CPU device behaves like a GPU of its architecture, which it is not."""
    return [
        (d.name, d.product, f"like {d.arch}" if d.name == "cpu" else str(d.arch), str(d.limits.processors))
        for d in report.devices
    ]


def _remark(part: Component) -> str:
    fix = part.fix if part.state != "absent" else ""
    return f"{part.name}: {part.problem}" + (f"\n  hint: {for_the_shell(fix)}" if fix else "")


# -- the report -------------------------------------------------------------------------------------------------------


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text)
        return
    write_file(output, f"{text}\n")
    click.echo(f"{output}: {len(text.splitlines())} lines; read them before you send them")


def _markdown(report: Health) -> str:
    """Return the report for an issue, in which no text contains the user's name."""
    remarks = [f"* {_remark(part)}".replace("\n  ", ", ") for part in report.parts if part.problem]
    variables = list(_variables())
    blocks = [
        "### cujit doctor --report",
        _grid(("", ""), list(_system())),
        _grid((*_PARTS, "where"), [(*_part(part), part.path) for part in report.parts]),
        "\n".join(map(anonymous, remarks or ["All required parts are installed."])),
        _grid(_DEVICES, _devices(report)),
        _grid(("cache", "writes", "entries", "size in bytes"), list(_cache())),
        _grid(("variable", "value"), variables) if variables else "No variable that cujit reads is set.",
        f"<details><summary>wheels</summary>\n\n{', '.join(_wheels())}\n\n</details>",
    ]
    return "\n\n".join(blocks)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *([anonymous(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)


def _system() -> Iterator[tuple[str, str]]:
    yield "cujit", f"{cujit.version.__version__}, {Path(cujit.version.__file__).parent}"
    lock = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without a global lock"
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}{lock}"
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = "unknown distribution"
    libc = " ".join(filter(None, platform.libc_ver()))
    yield "system", f"{name}, {platform.system()} {platform.release()}, {platform.machine()}, {libc}"


def _cache() -> Iterator[tuple[str, ...]]:
    try:
        cache = default_cache()
        root = admin.info(cache).root
        for store in cache.stores:
            sizes = [entry.size_bytes for entry in store.entries()]
            yield str(store.root), "yes" if store.root == root else "no", str(len(sizes)), str(sum(sizes))
        yield from ((tier.url, "no", "", "") for tier in cache.tiers)
        if not cache.stores:
            yield "nothing is kept", "no", "", ""
    except (CujitError, OSError) as e:
        yield str(e).replace("\n ", ","), "no", "", ""


def _variables() -> Iterator[tuple[str, str]]:
    """Yield the variables that cujit reads and that are set, and other set variables with cujit's prefix."""
    known = {one.name for one in VARIABLES}
    yield from ((name, os.environ[name]) for name in sorted(known) if os.environ.get(name))
    yield from (
        (n, "(cujit does not read this variable)") for n in sorted(os.environ) if n[:6] == "CUJIT_" and n not in known
    )


_RELATED = re.compile(
    r"(nvidia|cuda|cupy|jax|numba|torch|triton|mlx)\b.*|pytorch[-_]triton|"
    r"click|llvmlite|lz4|numpy|obstore|pyelftools|pynacl|rich|tomli|zstandard"
)
"""What cujit needs, and what its users have beside it."""


def _wheels() -> list[str]:
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return sorted(f"{name} {version}" for name, version in found.items() if name and _RELATED.fullmatch(name.lower()))


def anonymous(text: str) -> str:
    """Remove the home directory, the user, the host, and the parts of URLs after the scheme from a text."""
    text = re.sub(r"\b([a-z][a-z0-9+.-]*://)[^\s|]+", r"\1…", text)
    homes = {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))} - {"/"}
    for home in sorted(homes, key=len, reverse=True):
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    names = {platform.node(): "HOST", platform.node().partition(".")[0]: "HOST", _user(): "USER"}
    for name, stands in names.items():
        if name:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", stands, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # it has no name, as in a container
        return ""
