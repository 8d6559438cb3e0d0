"""``--findings FILE``: errors and warnings as SARIF, as JUnit XML, or as annotations of GitHub Actions."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import click

from cujit.artifact.writing import write_file
from cujit.errors import CompileError, CujitError, Diagnostic, KernelFaultError
from cujit.values import NamedTuple
from cujit.version import __version__

GITHUB = "github"
"""The word for annotations, which go to standard error."""

_LEVELS = {"error": "error", "warning": "warning"}
_LEAST = ("note", "notice")
"""The level of remarks and notes: of SARIF, and of GitHub."""

_UNSAFE = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""


class CommandFindings(NamedTuple):
    """The findings of one command, and the file that it read, if any."""

    command: str
    file: str
    found: Sequence[Diagnostic]


def _errors(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [each for each in found if each.severity == "error"]


def _of_end(ended: BaseException | None, is_known: bool) -> list[Diagnostic]:
    """Return the finding for the end of a command: an error, wrong usage, or an otherwise unexplained exit status."""
    if isinstance(ended, CujitError):
        return _of_error(ended)
    if isinstance(ended, click.ClickException):
        return [Diagnostic("error", ended.format_message(), code="usage")]
    if isinstance(ended, click.exceptions.Exit) and (not ended.exit_code or is_known):
        return []
    return [] if ended is None else [Diagnostic("error", "the command failed or was interrupted", code="failed")]


def _of_error(error: CujitError) -> list[Diagnostic]:
    """Return the compiler's messages. Otherwise return the error itself with its source line, if it is known."""
    if isinstance(error, CompileError) and _errors(error.diagnostics):
        return list(error.diagnostics)
    file, _, line = (error.source if isinstance(error, KernelFaultError) else "").rpartition(":")
    with contextlib.suppress(ValueError):  # services annotate only files that are named from the checkout on
        file = str(PurePath(file).relative_to(os.getcwd())) if file else ""
    text = f"{error.message}\nhint: {error.help}" if error.help else error.message
    return [Diagnostic("error", text, file, int(line or 0), code=error.code)]


# -- the three forms --------------------------------------------------------------------------------------------


def sarif(report: CommandFindings) -> str:
    """Write findings as SARIF 2.1.0."""
    ids = sorted({_rule(each) for each in report.found})
    run = {
        "tool": {"driver": {"name": "cujit", "version": __version__, "rules": [{"id": name} for name in ids]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not _errors(report.found)}],
        "results": [_result(each, report.file) for each in report.found],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(each: Diagnostic, file: str) -> dict[str, Any]:
    """Return one finding. GitHub rejects a result without a line, so that line 1 represents the whole file."""
    level = _LEVELS.get(each.severity, _LEAST[0])
    result: dict[str, Any] = {"ruleId": _rule(each), "level": level, "message": {"text": each.message}}
    if each.file or file:
        region = {"startLine": each.line or 1} | ({"startColumn": each.column} if each.column else {})
        path = PurePath(each.file or file)
        location = {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}
        result["locations"] = [{"physicalLocation": {"artifactLocation": location, "region": region}}]
    return result


def junit(report: CommandFindings) -> str:
    """Write findings as JUnit XML: each error is a test that failed; without errors, the command is one that passed."""
    errors = _errors(report.found)
    suite = ElementTree.Element("testsuite", name="cujit", tests=str(len(errors) or 1), failures=str(len(errors)))
    name = f"cujit {report.command}"
    for each in errors:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=f"{_place(each, report)}: {_rule(each)}")
        text = _UNSAFE.sub("?", each.message)
        failure = ElementTree.SubElement(case, "failure", type=_rule(each), message=text.partition("\n")[0])
        failure.text = text
    if not errors:
        ElementTree.SubElement(suite, "testcase", classname=name, name=report.file or name)
    others = [_UNSAFE.sub("?", str(each)) for each in report.found if each.severity != "error"]
    if others:
        ElementTree.SubElement(suite, "system-err").text = "\n".join(others)
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def _annotation(each: Diagnostic) -> str:
    """Write a command of GitHub Actions that annotates a line."""
    place = {"file": each.file, "line": each.line, "col": each.column, "title": _rule(each)}
    given = ",".join(f"{name}={_quoted(str(value), ':,')}" for name, value in place.items() if value)
    return f"::{_LEVELS.get(each.severity, _LEAST[1])} {given}::{_quoted(each.message)}\n"


def _quoted(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _rule(each: Diagnostic) -> str:
    return each.code or "compile"


def _place(each: Diagnostic, report: CommandFindings) -> str:
    return ":".join(map(str, filter(None, (each.file or report.file or report.command, each.line))))


_WRITERS = {".sarif": sarif, ".xml": junit}


class FindingsFile(NamedTuple):
    """The file of ``--findings``, its command, and the findings so far."""

    to: str
    command: click.Context
    found: list[Diagnostic]

    def write(self, ended: BaseException | None) -> None:
        """Write the findings. ``ended`` is the reason why the command ended.

        Raises:
            FileError: the file can't be written.
        """
        found = [*self.found, *_of_end(ended, bool(_errors(self.found)))]
        if self.to == GITHUB:
            click.echo("".join(map(_annotation, found)), nl=False, err=True)
            return
        file = self.command.params.get("file")
        report = CommandFindings(self.command.info_name or "", str(file) if isinstance(file, PurePath) else "", found)
        write_file(self.to, _WRITERS[PurePath(self.to).suffix.lower()](report))


def read_target(ctx: click.Context, parameter: click.Parameter, to: str) -> FindingsFile:
    """Read the value of ``--findings``.

    Raises:
        click.BadParameter: no form has this ending.
    """
    if to != GITHUB and PurePath(to).suffix.lower() not in _WRITERS:
        message = f"{to} has no known extension: use a name such as out.sarif or out.xml, or the word github"
        raise click.BadParameter(message, ctx, parameter)
    return FindingsFile(to, ctx, [])
