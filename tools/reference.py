"""Pages of the documentation that are written from the code.

``python tools/reference.py cli > docs/cli.md`` writes one anew; a test compares them.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import click

import cujit.errors as errors
from advice_page import advice_page
from api_page import api_page, first_sentence
from cujit.arch.support import dotted
from cujit.cli.app import TASKS, main
from cujit.cli.arches import one_arch
from cujit.cli.common import common_options
from cujit.cli.environment import VARIABLES, EnvironmentVariable
from cujit.cli.exit_codes import ExitCode
from cujit.compiler.options.spelling import Rejects
from cujit.compiler.options.table import OPTIONS, Option, Tool
from cujit.devices.arguments.written import FORMS
from cujit.devices.cpu.codegen.special import SPECIAL_REGISTERS as READABLE
from cujit.devices.cpu.implemented import Implemented, implemented, total
from cujit.errors.codes import CODES, ErrorCode
from cujit.formats.ptx.isa.meanings import MEANINGS
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS, SpecialRegister
from gallery_page import gallery_page
from performance_page import performance_page
from toolkit_page import toolkit_page

__all__ = [
    "PAGES",
    "advice_page",
    "api_page",
    "cli_page",
    "environment_page",
    "errors_page",
    "gallery_page",
    "instructions_page",
    "options_page",
    "toolkit_page",
]

_HEAD = """\
# Command line

This page lists every `cujit` command, option, and exit status. `cujit COMMAND --help` prints the same text.

cujit prints each error as one message on standard error, with a hint. With `--json`, standard output is a single line
of JSON.

cujit replaces an output file only when the new content is complete. If an error occurs, the disk is full, or the
process is killed, the old file stays unchanged. The output directory must be writable. The new file keeps the
permissions of the old file. cujit follows symbolic links and writes directly to devices such as `/dev/stdout`.

| exit status | meaning |
|---|---|
"""

_EVERYWHERE = """
Every command accepts these options, before or after the command name:

| option | meaning |
|---|---|
"""
_ENVIRONMENT = """
For the environment variables that affect all commands, see [Environment variables](environment.md).

## Commands by task

| task | commands |
|---|---|
"""

_STATUSES = {
    ExitCode.GOOD: "success",
    ExitCode.WRONG_INPUT: "the input is wrong: it doesn't compile or load, is damaged, or exceeds a budget",
    ExitCode.USAGE: "the command line is wrong: an unknown option, a malformed value, or a missing file",
    ExitCode.MISSING: "a required part is missing: a toolkit library, the driver, or the GPU",
}


def cli_page() -> str:
    """Write the page."""
    context = click.Context(main, info_name="cujit")
    statuses = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in _STATUSES.items())
    verbs = [main.get_command(context, name) for name in main.list_commands(context)]
    everywhere = "".join(map(_option, common_options()))
    tasks = "".join(
        f"| {task} | {', '.join(f'[{name}](#cujit-{name})' for name in names)} |\n" for task, names in TASKS.items()
    )
    head = f"{_HEAD}{statuses}{_EVERYWHERE}{everywhere}{_ENVIRONMENT}{tasks}"
    return head + "".join(_verb(verb) for verb in verbs if verb) + _arguments()


def _verb(verb: click.Command, path: str = "cujit") -> str:
    """Describe a command; a group, by each of its commands, a level below."""
    path = f"{path} {verb.name}"
    title, text = f"\n##{'#' * (path.count(' ') - 1)} {path}\n\n", inspect.cleandoc(verb.help or "")
    if isinstance(verb, click.Group):
        return f"{title}{text}\n" + "".join(_verb(one, path) for one in verb.commands.values())
    common = {option.name for option in common_options()}
    rows = [_option(p) for p in verb.params if isinstance(p, click.Option) and p.name not in common]
    usage = " ".join([path, *verb.collect_usage_pieces(click.Context(verb, info_name=verb.name))])
    table = f"\n| option | meaning |\n|---|---|\n{''.join(rows)}" if rows else ""
    return f"{title}```\n{usage}\n```\n\n{text}\n{table}"


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}{_value(option)}`" for name in sorted(option.opts, key=len))
    remarks = [
        "required" if option.required else "",
        "can be repeated" if option.multiple and option.callback is not one_arch else "",
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


def _arguments() -> str:
    rows = "".join(f"| `{form}` | {means} |\n" for form, means in FORMS)
    return f"\n## Kernel arguments\n\nThe values that `--arg` accepts:\n\n| VALUE | meaning |\n|---|---|\n{rows}"


_ENVIRONMENT_HEAD = """\
# Environment variables

This page lists every environment variable that cujit reads. `cujit --help` lists the same variables.

* cujit reads a variable when it needs the value, never when it is imported.
* An empty variable counts as unset. An invalid value raises an `OptionError`.
* A command-line option (`--dir`, `--trust`) takes precedence over its variable.
* NVIDIA's compilers read additional variables. Every variable that can change their output is part of the
  [cache key](cache.md).

| variable | value | meaning | default | page |
|---|---|---|---|---|
"""


def environment_page() -> str:
    """Write the page ``docs/environment.md``."""
    return _ENVIRONMENT_HEAD + "".join(map(_variable, VARIABLES))


def _variable(one: EnvironmentVariable) -> str:
    page = f"[{one.page}]({one.page}.md)" if one.page else ""
    return f"| `{one.name}` | {one.takes} | {one.meaning} | {one.unset} | {page} |\n"


_ERRORS_HEAD = """\
# Errors

All errors that cujit raises on purpose derive from `CujitError`, so `except cujit.errors.CujitError` catches them all.
The message states what is wrong and where. The `help` attribute contains a hint for fixing the error, if there is one.
The `code` attribute identifies the error and doesn't change between versions; see [Error codes](#error-codes). In tests
and scripts, compare codes, because messages may change.

```
"""


def errors_page() -> str:
    """Write the page ``docs/errors.md``."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("::\n\n")[2].replace("``", "")
    tree = re.sub(r" +\(\w+\)$", "", tree, flags=re.MULTILINE)  # bases of Python: the table has them
    rows = [_error(getattr(errors, name)) for name in errors.__all__]
    table = "| error | base classes | exit status of `cujit` | when |\n|---|---|---|---|\n" + "".join(
        filter(None, rows)
    )
    codes = "".join(_code(code, row) for code, row in CODES.items())
    return f"{_ERRORS_HEAD}{inspect.cleandoc(tree)}\n```\n\n{table}{_CODES_HEAD}{codes}"


_CODES_HEAD = """
## Error codes

A traceback ends with a `cujit explain` command, which explains the error. `cujit` commands print the code in brackets
after the message. With `--json`, the commands print `{"error": {"code": …, "message": …, "help": …}}`.

```console
$ cujit explain grid-missing
grid-missing (LaunchError)

A kernel is called without a launch configuration.
Write kernel[grid, block](…), or kernel.over(n)(…) for n elements.
```

| code | error | meaning | what to do |
|---|---|---|---|
"""


def _code(code: str, row: ErrorCode) -> str:
    kinds = ", ".join(f"`{name}`" for name in row.errors.split())
    return f'| <a id="{code}"></a>`{code}` | {kinds} | {_in_table(row.meaning)} | {_in_table(row.remedy)} |\n'


def _in_table(text: str) -> str:
    return re.sub(r"[|*_<\[]", r"\\\g<0>", text)


def _error(kind: type) -> str:
    if not issubclass(kind, Exception):
        return ""
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    status = ExitCode.MISSING if issubclass(kind, errors.MissingError) else ExitCode.WRONG_INPUT
    shown = "continues" if issubclass(kind, Warning) else status.value
    name = kind.__name__
    return f'| `{name}` <a id="{name.lower()}"></a> | {bases} | {shown} | {first_sentence(kind)} |\n'


_INSTRUCTIONS_HEAD = """\
# PTX instructions of the CPU device

This page lists every form of every PTX instruction, and whether the CPU device executes the form. Words in braces are
optional, `|` separates alternatives, and words in capitals stand for sets of modifiers
(`src/cujit/formats/ptx/isa/sets.py`). `...` stands for modifiers that the table doesn't list yet. *section* is the
section in the PTX ISA 9.1 manual. *since* is the first ISA version and architecture that support the form. Individual
modifiers can require later versions. *scope* is the set of threads that must arrive at the instruction before any
thread executes it. For example, an instruction with the scope `warpgroup` holds each warp until all four warps of the
warpgroup have arrived. If the warps arrive at different instructions, the launch ends with an error that names the
warps and the source lines. `cujit inspect --needs FILE` lists the unsupported instructions in a file.

"""


_MEANINGS_HEAD = """\
If an instruction matches several rows, the row with the most words applies. Other words can stand between the words of
a row: `ld.relaxed.gpu.global.u32` matches `ld.global`. The [explorer](explore.md) and the [report](report.md) show
these sentences when you point to an instruction.

"""


def instructions_page() -> str:
    """Write the page ``docs/instructions.md``."""
    whole = total()
    said = (
        f"Of the {whole.rows - whole.unknown} rows with listed forms, the CPU device executes {whole.whole} completely "
        f"and {whole.partly} in part. That is {whole.share:.1%} of the forms if every row counts the same. "
        f"{whole.unknown} rows don't list their forms yet.\n\n"
    )
    table = "| form | section | since | scope | CPU device |\n|---|---|---|---|---|\n"
    table += "".join(map(_form, implemented()))
    registers = "| register | section | since | CPU device |\n|---|---|---|---|\n"
    registers += "".join(map(_register, SPECIAL_REGISTERS.values()))
    meanings = "| instruction | meaning |\n|---|---|\n"
    meanings += "".join(f"| `{words}` | {sentence} |\n" for words, sentence in MEANINGS.items())
    return (
        f"{_INSTRUCTIONS_HEAD}{said}{table}\n{_refused()}\n## Meanings\n\n{_MEANINGS_HEAD}{meanings}"
        f"\n## Special registers\n\n{registers}"
    )


def _refused() -> str:
    """List what the CPU device refuses, with the reasons."""
    reasons: dict[tuple[str, str], None] = {}
    for one in implemented():
        for reason in one.reasons:
            reasons[one.row.opcode, reason] = None
    rows = "".join(f"| `{opcode}` | {reason} |\n" for opcode, reason in reasons)
    head = (
        "## Rejected forms\n\n"
        "The CPU device rejects these forms when it loads PTX. The error names the instruction, the line and the "
        "reason.\n\n"
    )
    return f"{head}| instruction | reason |\n|---|---|\n{rows}"


def _form(one: Implemented) -> str:
    row = one.row
    some = f" ({one.taken} of {one.forms})" if one.taken and one.taken < one.forms else ""
    form = row.form.replace("|", "\\|")
    cells = (
        f"`{form}`",
        row.section,
        f"{dotted(row.ptx)}, sm_{row.sm}",
        one.scope.name.lower(),
        one.answer.value + some,
    )
    return f"| {' | '.join(cells)} |\n"


def _register(row: SpecialRegister) -> str:
    names = [f"{row.name[1:]}.{c}" if c else row.name[1:] for c in row.components or ("",)]
    answer = "yes" if READABLE.issuperset(names) else "no"
    return f"| `{row.name}` | {row.section} | {dotted(row.ptx)}, sm_{row.sm} | {answer} |\n"


_OPTIONS_HEAD = """\
# Compiler options

This page lists the options of `cujit.compile`, `cujit.link` and `cujit.build`. Specify an option as a keyword argument
or in `options={…}`. cujit passes only the options that you specify. `extra=("--flag",)` passes arguments to the tool
unchanged. A dash means that the tool rejects the option with a message that explains why.

| option | value | meaning | since CUDA | NVRTC | nvJitLink | libNVVM | tileiras |
|---|---|---|---|---|---|---|---|
"""


_PRECOMPILED = """
## Precompiled headers

A process that compiles many sources with the same includes can parse the headers once. The first compile with
`pch=True` writes a precompiled header, and later compiles in the same process use the precompiled header. Without the
option, cujit writes the precompiled header in the third compile with the same includes. cujit does this only if each
earlier compile took at least 0.5 s, and if at least 8 GiB of disk space is free. With `pch=False`, cujit never
precompiles headers. The image is the same with and without precompiled headers, so the option isn't part of the cache
key.

CPU time of a compile with NVRTC 13.5 (`benchmarks/pch.py`, medians of 7 runs on a shared machine):

| header | without precompiled header | writing the precompiled header | with precompiled header | size on disk |
|---|---|---|---|---|
| `cuda_fp16.h` | 0.04 s | 0.06 s | 0.03 s | 9 MiB |
| `curand_kernel.h` | 1.07 s | 2.45 s | 0.55 s | 252 MiB |
| `cooperative_groups.h` | 1.20 s | 1.74 s | 0.48 s | 246 MiB |
| `cuda/std/complex` | 1.27 s | 1.82 s | 0.44 s | 243 MiB |
| `cub/block/block_reduce.cuh` | 1.48 s | 2.13 s | 0.57 s | 297 MiB |
| two CUB headers | 1.70 s | 2.36 s | 0.59 s | 319 MiB |

Precompiled headers save nothing in a process that compiles only one source. cujit doesn't precompile headers for
LTO-IR, with `lineinfo` or `debug`, in a separate process (`isolate=True`), or for a source without a cache key.

cujit keeps up to two precompiled headers per process in the directory for temporary files (`TMPDIR`) and removes them
when the process ends. If the disk is full, cujit compiles without precompiled headers and writes no more of them. cujit
enlarges NVRTC's heap for precompiled headers to 1 GiB. If 1 GiB is too small, cujit prints a warning and enlarges the
heap again. `create_pch`, `use_pch` and `pch_dir` are NVRTC's own options. With these options, NVRTC doesn't notice a
changed in-memory header, or a changed header of the same size.
"""


def options_page() -> str:
    """Write the page ``docs/options.md``."""
    return _OPTIONS_HEAD + "".join(map(_compiler_option, OPTIONS.values())) + _PRECOMPILED


def _compiler_option(option: Option) -> str:
    takes = " ".join(f"`{choice}`" for choice in option.choices) or option.type.value
    if option.low is not None:
        takes += f" from {option.low}" + (f" to {option.high}" if option.high is not None else "")
    since = dotted(option.since) if option.since else ""
    cells = [f"`{option.name}`", takes, option.doc, since, *(_spelled(option, tool) for tool in Tool)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _spelled(option: Option, tool: Tool) -> str:
    spelling = option.spelling(tool)
    if isinstance(spelling, Rejects):
        return "–"
    code, comma, words = spelling.text.partition(", ")
    return f"`{code}`{comma}{words}" if code.startswith("-") else spelling.text


PAGES = {
    "advice": advice_page,
    "api": api_page,
    "cli": cli_page,
    "environment": environment_page,
    "errors": errors_page,
    "gallery": gallery_page,
    "instructions": instructions_page,
    "options": options_page,
    "performance": performance_page,
    "toolkit": toolkit_page,
}
"""The pages by the names of their files in ``docs``."""

if __name__ == "__main__":
    print(PAGES[sys.argv[1]](), end="")
