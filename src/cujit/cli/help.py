"""How help texts are laid out: a command's options by group, and one form for defaults."""

from __future__ import annotations

import click

from cujit.cli.console import note

_GENERAL = "General options"

_GROUP_OF_OPTION = {
    name: group
    for group, names in {
        "Compiler options": "option_words include define libdevice jit_arch",
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

RENAMED_OPTIONS = {
    "budget": {"--shared-bytes": "--static-shared-bytes"},
    "compat": {"--device": "--arch"},
    "size": {"--limit": "--max-bytes"},
}
"""Names that options had in the last release, by command. They still work, with a warning."""


class Command(click.Command):
    """A command whose help lists its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; replace the names that options had in the last release, with a warning."""
        renamed = RENAMED_OPTIONS.get(self.name or "", {})
        found = []
        for word in args:
            name, equals, value = word.partition("=")
            if name in renamed:
                note(f"warning: {name} is now {renamed[name]}")
            found.append(f"{renamed[name]}{equals}{value}" if name in renamed else word)
        return super().parse_args(ctx, found)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each group under its heading."""
        for group, options in options_by_group(self, ctx).items():
            with formatter.section(group):
                formatter.write_dl([record for one in options if (record := one.get_help_record(ctx))])


class CommandGroup(click.Group):
    """A command that has commands below it."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)  # type: ignore[arg-type]
