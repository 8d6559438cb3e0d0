"""Support for nvcc arguments in commands that compile: ``-gencode``, ``-lineinfo``, ``-Xptxas -v``, and others."""

from __future__ import annotations

from collections.abc import Container, Mapping

import click

from cujit.arch import Arch, ArchKind
from cujit.cli.arches import takes_several_arches
from cujit.cli.help import Command
from cujit.compiler.options.nvcc import NvccLine, like_nvcc, read_nvcc
from cujit.errors import CujitError, OptionError, alike

_ALL = {"all": "all", "all-major": "all", "native": "native"}


class CompilerCommand(Command):
    """A command that compiles, expected arguments of nvcc as well as its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; arguments of nvcc are written as the command's own first."""
        args = self.renamed(ctx, args)
        return super().parse_args(ctx, args if ctx.resilient_parsing else self._as_own(ctx, args))

    def _as_own(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        own = {name: not (one.is_flag or one.count) for one in options for name in (*one.opts, *one.secondary_opts)}
        try:
            line = read_nvcc(args, own)
        except OptionError as e:
            raise click.UsageError(f"{e.message}: {e.help}", ctx) from None
        _refuse_unknown(ctx, line, own)
        is_lto = "dlto" in line.option_words and ("--target" in own or self.name == "compile")
        option = [word for option in line.option_words if not (is_lto and option == "dlto") for word in ("-O", option)]
        written = _built(ctx, line, is_lto) if "--target" in own else _compiled(ctx, line, own, is_lto)
        return [*option, *written, *(["-o", line.output] if line.output else []), *line.rest]


def _refuse_unknown(ctx: click.Context, line: NvccLine, own: Mapping[str, bool]) -> None:
    for word in line.unknown:
        name = word.partition("=")[0]
        raise click.NoSuchOption(name, possibilities=list({*alike(name, own), *like_nvcc(name)}), ctx=ctx)


def _built(ctx: click.Context, line: NvccLine, is_lto: bool) -> list[str]:
    """Write the targets of a fatbin."""
    if line.kind not in ("", "fatbin"):
        raise click.UsageError(f"cujit {ctx.info_name} writes a fatbin: use cujit compile -{line.kind}", ctx)
    targets = [target.replace("sm_", "lto_") if is_lto else target for target in line.targets]
    return [word for target in targets for word in ("--target", _ALL.get(target, target))]


def _compiled(ctx: click.Context, line: NvccLine, own: Container[str], is_lto: bool) -> list[str]:
    """Write the kind of an image and its architecture."""
    kind = "ltoir" if is_lto else line.kind
    if not kind and takes_several_arches(ctx.command):
        return [word for target in line.targets for word in ("--arch", target)]
    if kind and ("--to" not in own or kind == "fatbin"):
        why = "use cujit build for a fatbin" if kind == "fatbin" else "the command writes no image"
        raise click.UsageError(f"cujit {ctx.info_name} does not accept -{kind}: {why}", ctx)
    arch = _arch_of(ctx, line, kind)
    return [*(["--to", kind] if kind else []), *(["--arch", arch] if arch else [])]


def _arch_of(ctx: click.Context, line: NvccLine, kind: str) -> str:
    """Return the single architecture of the targets, with code for it unless the image kind requires another form."""
    try:
        arches = [Arch.parse(target) for target in line.targets]
    except CujitError as e:
        raise click.UsageError(str(e), ctx) from None
    if len({(arch.number, arch.suffix) for arch in arches}) > 1:
        raise click.UsageError(f"{', '.join(line.targets)} are several architectures: use cujit build", ctx)
    first = next((arch for arch in arches if arch.is_real), arches[0] if arches else None)
    if first is None or not kind:
        return str(first or "")
    wanted = {"ptx": ArchKind.VIRTUAL, "ltoir": ArchKind.LTO}.get(kind, ArchKind.REAL)
    return str(Arch(wanted, first.number, first.suffix))
