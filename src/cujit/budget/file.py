"""Budget files in TOML, for the command line and for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from cujit.artifact.reading import path_of, read_file
from cujit.budget.budgets import Budget
from cujit.errors import FormatError, LaunchError, OptionError, alike, spell


def read_budgets(path: str | os.PathLike[str]) -> dict[str, Budget]:
    r"""Read a dict of name patterns to budgets from a TOML file, in the order of the file.

    Each ``[[budget]]`` has ``kernel`` (a pattern; default: ``"*"``) and the fields of a Budget.

    Args:
        path: path of the file.

    Raises:
        FormatError: the file is not TOML.
        OptionError: a budget is malformed, or a pattern appears twice.
        LaunchError: a ``block`` is malformed.
        FileError: the file can't be read.

    Example::

        Path("budgets.toml").write_text('[[budget]]\nkernel = "axpy*"\nregisters = 64\n')
        cujit.budget.check(cubin, cujit.budget.read_budgets("budgets.toml"))
    """
    path = path_of(path)
    found = _toml(path)
    if unknown := set(found) - {"budget"}:
        raise OptionError(
            f"{path}: {spell(sorted(unknown)[0])} is not a valid key in a budget file",
            help=_TOML,
            code="option-unknown",
        )
    entries = found.get("budget")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f"{path} contains no [[budget]] table", help=_TOML)
    budgets: dict[str, Budget] = {}
    for number, entry in enumerate(entries, 1):
        pattern, budget = _entry(entry, f"{path}: budget {number}")
        if pattern in budgets:
            raise OptionError(f"{path} contains two budgets for {spell(pattern)}", help="merge them into one")
        budgets[pattern] = budget
    return budgets


_TOML = '[[budget]], and under it kernel = "axpy*", registers = 64'


def _toml(path: str) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib  # start-up: budgets are seldom in a file
    else:
        import tomli as tomllib  # start-up: budgets are seldom in a file
    data = read_file(path)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path} is not valid TOML: {e}", help=_TOML) from e


def _entry(entry: Mapping[str, object], place: str) -> tuple[str, Budget]:
    fields = dict(entry)
    pattern = fields.pop("kernel", "*")
    names = Budget.__match_args__
    for name in fields:
        if name not in names:
            near = alike(name, names, most=1) or names
            raise OptionError(
                f"{place}: unknown limit {spell(name)}", help=f"did you mean {', '.join(near)}?", code="option-unknown"
            )
    if not isinstance(pattern, str):
        raise OptionError(f"{place}: kernel is {spell(pattern)}, expected a name or a pattern")
    try:
        return pattern, Budget(**fields)  # type: ignore[arg-type]
    except (OptionError, LaunchError) as e:
        raise type(e)(f"{place}: {e.message}", help=e.help) from e
