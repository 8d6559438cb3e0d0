"""Pages of the documentation that are written from the code.

``python -m cujit.cli.reference cli > docs/cli.md`` writes one anew.
"""

from __future__ import annotations

import inspect
import sys

import click

import cujit.errors as errors
from cujit.cli.app import main
from cujit.cli.exit_codes import ExitCode
from cujit.cli.kernel_arguments import FORMS

__all__ = ["PAGES", "api_page", "cli_page", "errors_page"]

_HEAD = """\
# The command line

`cujit VERB --help` says the same as this page, which is written from the verbs; do not edit it by hand.
An error is one message on standard error, with what to try. With `--json`, standard output is one line of
JSON and nothing else.

| status | meaning |
|---|---|
"""


def cli_page() -> str:
    """Write the page."""
    context = click.Context(main, info_name="cujit")
    statuses = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    verbs = [main.get_command(context, name) for name in main.list_commands(context)]
    return _HEAD + statuses + "".join(_verb(verb) for verb in verbs if verb) + _arguments()


def _verb(verb: click.Command, path: str = "cujit") -> str:
    """Describe a verb; one that is a group of verbs, by each of them, a level below."""
    path = f"{path} {verb.name}"
    title, text = f"\n##{'#' * (path.count(' ') - 1)} {path}\n\n", inspect.cleandoc(verb.help or "")
    if isinstance(verb, click.Group):
        return f"{title}{text}\n" + "".join(_verb(one, path) for one in verb.commands.values())
    places = [_place(p) for p in verb.params if isinstance(p, click.Argument)]
    rows = [_option(p) for p in verb.params if isinstance(p, click.Option)]
    usage = " ".join([path, *places, "[OPTIONS]"])
    return f"{title}```\n{usage}\n```\n\n{text}\n\n| option | meaning |\n|---|---|\n{''.join(rows)}"


def _place(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}{_value(option)}`" for name in sorted(option.opts, key=len))
    remarks = [
        "required" if option.required else "",
        "may be repeated" if option.multiple else "",
        f"default `{_default(option)}`" if option.show_default else "",
    ]
    said = "; ".join(filter(None, remarks))
    meaning = f"{option.help} ({said})" if said else f"{option.help}"
    return f"| {names} | {meaning.replace('<', '&lt;')} |\n"


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "\\|".join(option.type.choices)
    return f" {option.metavar}"


def _default(option: click.Option) -> str:
    default = option.default
    return ", ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)


def _arguments() -> str:
    rows = "".join(f"| `{form}` | {means} |\n" for form, means in FORMS)
    return f"\n## Arguments of a kernel\n\nWhat `cujit run --arg` takes.\n\n| VALUE | means |\n|---|---|\n{rows}"


_ERRORS_HEAD = """\
# Errors

Every error that cujit raises on purpose is one of these, so `except cujit.CujitError` catches them all. Its
text says what was wrong and where; `help`, if there is any, what to try. This page is written from
`src/cujit/errors.py`; do not edit it by hand.

```
"""


def errors_page() -> str:
    """Write the page ``docs/errors.md``."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("::\n\n")[2]
    rows = [_error(getattr(errors, name)) for name in errors.__all__]
    table = "| error | is a | status of `cujit` | when |\n|---|---|---|---|\n" + "".join(filter(None, rows))
    return f"{_ERRORS_HEAD}{inspect.cleandoc(tree)}\n```\n\n{table}"


def _error(kind: type) -> str:
    if not issubclass(kind, errors.CujitError):
        return ""
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    status = ExitCode.MISSING if issubclass(kind, errors.MissingError) else ExitCode.WRONG_INPUT
    return f"| `{kind.__name__}` | {bases} | {status.value} | {_first_sentence(kind)} |\n"


_API_HEAD = """\
# Names

Every public name is an attribute of `cujit`: `import cujit` and write `cujit.build(…)`. The docstrings say the
rest; the errors have [their own page](errors.md), options of the compiler [theirs](options.md). This page is
written from the code; do not edit it by hand.

| name | what it is |
|---|---|
"""


def api_page() -> str:
    """Write the page ``docs/api.md``."""
    # The package as users see it: described here and not used.
    root = sys.modules["cujit"]
    names = [name for name in dir(root) if name not in errors.__all__ and not name.startswith("_")]
    return _API_HEAD + "".join(f"| `cujit.{name}` | {_first_sentence(getattr(root, name))} |\n" for name in names)


def _first_sentence(thing: object) -> str:
    paragraph = inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`").replace("|", "\\|")


PAGES = {"api": api_page, "cli": cli_page, "errors": errors_page}
"""The pages by the names of their files in ``docs``."""

if __name__ == "__main__":
    print(PAGES[sys.argv[1]](), end="")
