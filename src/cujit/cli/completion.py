"""``cujit completion``: verbs, options, files and kernels, completed by the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what SHELL (bash, zsh or fish) evaluates to complete verbs, options, architectures, files and kernels.

    Into ~/.bashrc goes: eval "$(cujit completion bash)". Into ~/.zshrc: eval "$(cujit completion zsh)". Into
    ~/.config/fish/config.fish: cujit completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    maker = kind(ctx.find_root().command, {}, "cujit", "_CUJIT_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
