"""How help texts are laid out: a command's options by group, and one form for defaults."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import click

from cujit.cli.console import note
from cujit.compiler.options.nvcc import NVCC_ARGUMENTS

_GENERAL = "General options"

_GROUP_OF_OPTION = {
    name: group
    for group, names in {
        "Compiler options": "option_words include define libdevice jit_arches",
        "Launch options": "kernel_name arguments grid block over cluster cooperative shared_bytes",
        "Debugging options": "check traced trace_limit coverage save",
        "Limits": "timeout_s deadline_s isolate memory_mib trusted",
        "Output options": "output as_json page plot dark",
        _GENERAL: "quiet verbose color",
    }.items()
    for name in names.split()
}
"""Groups of options that several commands have, by the names of the parameters; all others are plain options."""

_PLAIN = "Options"


def options_by_group(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options of a command by the heading that its help lists them under, in the order of the help."""
    found: dict[str, list[click.Option]] = {group: [] for group in (_PLAIN, *_GROUP_OF_OPTION.values())}
    for option in command.get_params(ctx):
        if isinstance(option, click.Option) and not option.hidden:
            is_general = not {"--version", *ctx.help_option_names}.isdisjoint(option.opts)
            found[_GENERAL if is_general else _GROUP_OF_OPTION.get(option.name or "", _PLAIN)].append(option)
    return {group: options for group, options in found.items() if options}


RENAMED_COMMANDS = {"check": "budget"}
"""Names that commands had in the last release. They still work."""

_ADD_PTX = {"--ptx": "--add-ptx"}
_ARG = {"-a": "--arg"}
_KERNELS = {"--kernel": "--kernels"}

RENAMED_OPTIONS = {
    "budget": {"--shared-bytes": "--static-shared-bytes", "--log": "--assembler-log", **_KERNELS},
    "cache keygen": {"--name": "--key-name"},
    "cache why": {"--source": "--file"},
    "compat": {"--device": "--arch"},
    "embed": {"--name": "--prefix", "-n": "-p"},
    "emulate": {"--needs": "--unsupported"},
    "explore": _ARG,
    "farm build": _ADD_PTX,
    "inspect": {"--log": "--assembler-log", **_KERNELS},
    "pack build": _ADD_PTX,
    "pack merge": {"--compress": "--zstd"},
    "pack size": {"--limit": "--max-bytes"},
    "profile": _ARG,
    "retarget": {"--ptx": "--ptx-version"},
    "run": _ARG,
    "worklist build": _ADD_PTX,
    "worklist show": {"--source": "--recipe"},
}
"""Names that options had in the last release, by command. They still work, with a warning."""


def with_new_names(command: click.Command, renamed: Mapping[str, str], words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the new names of options.

    Option values stay unchanged, and so do words after ``--`` and the words of a nested command.
    """
    takes_value = {
        name: not (option.is_flag or option.count)
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
    }
    takes_value |= {old: takes_value.get(new, False) for old, new in renamed.items()}
    mixes = command.context_settings.get("allow_interspersed_args", True)
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            if not mixes:
                found.append(word)
                break
        elif word == "--":
            found.append(word)
            break
        elif name in renamed:
            word = f"{renamed[name]}{equals}{value}"
        elif len(word) > 2 and word[:2] in renamed and word[1] != "-" and not _is_nvccs(word):
            new = renamed[word[:2]]
            word = f"{new}{'=' * new.startswith('--')}{word[2:]}"
        found.append(word)
        if takes_value.get(name) and not equals:
            found += itertools.islice(rest, 1)
    return [*found, *rest]


def _is_nvccs(word: str) -> bool:
    """Whether a word is an argument of nvcc, or a misspelled one with a value, such as ``-arhc=sm_90``."""
    return "=" in word or word[1:] in NVCC_ARGUMENTS


class Command(click.Command):
    """A command whose help lists its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and accept the option names of the last release."""
        return super().parse_args(ctx, self.renamed(ctx, args))

    def renamed(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """Replace the option names of the last release, with a warning for each."""
        renamed = RENAMED_OPTIONS.get(_path_of(ctx), {})
        found = with_new_names(self, renamed, args)
        changed = ((_option_in(old), _option_in(new)) for old, new in zip(args, found, strict=True) if old != new)
        for old, new in dict.fromkeys(changed):
            note(f"warning: {old} is now {new}")
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each group under its heading."""
        for group, options in options_by_group(self, ctx).items():
            with formatter.section(group):
                formatter.write_dl([record for one in options if (record := one.get_help_record(ctx))])


def _path_of(ctx: click.Context) -> str:
    """Return the names of a command and the groups above it, without the name of the program."""
    above = "" if ctx.parent is None or ctx.parent.parent is None else f"{_path_of(ctx.parent)} "
    return f"{above}{ctx.command.name}"


def _option_in(word: str) -> str:
    return word.partition("=")[0] if word.startswith("--") else word[:2]


class CommandGroup(click.Group):
    """A command that has commands below it."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)  # type: ignore[arg-type]
