"""``cujit completion``: verbs, options, files and kernels, completed by the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cujit.cli.help import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    The script completes commands, options, architectures, files, and kernels. For bash, add this line to ~/.bashrc:
    eval "$(cujit completion bash)". For zsh, add this line to ~/.zshrc: eval "$(cujit completion zsh)". For fish, add
    this line to ~/.config/fish/config.fish: cujit completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    maker = kind(ctx.find_root().command, {}, "cujit", "_CUJIT_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
