"""``cujit cache verify``: make a sample of the entries again, and compare the bytes."""

from __future__ import annotations

import click

from cujit.artifact import Artifact
from cujit.cache import admin
from cujit.cache.admin import RecordVerdict, Shown
from cujit.cache.cache import Cache
from cujit.cli.cache.common import cache_option, short
from cujit.cli.console import json_option, print_json, print_table, printable, progress
from cujit.cli.exit_codes import ExitCode
from cujit.cli.help import Command
from cujit.errors import CujitError, FormatError, ToolError
from cujit.program import runner


@click.command("verify", cls=Command)
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1),
    default=0.1,
    metavar="SHARE",
    help="Fraction of the entries to check, from 0 to 1. Default: 0.1.",
)
@click.option("--seed", type=int, default=0, metavar="N", help="Seed for selecting the sample. Default: 0.")
@cache_option
@json_option
@click.pass_context
def verify(ctx: click.Context, cache: Cache, fraction: float, seed: int, as_json: bool) -> None:
    """Verify checksums of a sample of entries and recompile them.

    cujit compares the recompiled bytes with the entry. If the inputs are missing or have changed, cujit verifies only
    the checksum and counts the entry separately. The exit status is 1 if an entry is damaged or differs.
    """
    remake = Remake(cache)
    found = admin.verify(cache, fraction, remake, seed=seed)
    total = admin.sample_size(admin.info(cache).entries, fraction)
    verdicts = []
    with progress("verifying") as tick:
        for verdict in found:
            verdicts.append(verdict)
            tick(len(verdicts), total, verdict.name)
    records = [_record(verdict, remake.reasons.get(verdict.digest, "")) for verdict in verdicts]
    counts = {state: sum(record["state"] == state for record in records) for state in _STYLES}
    if as_json:
        print_json({**counts, "entries": records})
    else:
        _print_verified(records, counts)
    if counts["wrong"]:
        ctx.exit(ExitCode.WRONG_INPUT)


class Remake:
    """Makes entries again; ``reasons`` has, by key, why one was not."""

    def __init__(self, cache: Cache) -> None:
        self.reasons: dict[str, str] = {}
        self._runner = runner(cache)

    def __call__(self, shown: Shown) -> Artifact | None:
        """Compile the Artifact of an entry again, or return None and store the reason.

        Raises:
            FormatError: the source of the entry doesn't compile.
        """
        try:
            made = self._runner.remake(shown)
            reason = _CHANGED if shown.record.recipe else _NO_RECIPE
        except ToolError as e:
            raise FormatError(f"the cache has an image, but recompiling the same inputs fails: {e.message}") from e
        except (CujitError, OSError) as e:
            made, reason = None, e.message if isinstance(e, CujitError) else str(e)
        if made is None:
            self.reasons[shown.record.digest] = reason
        return made


_NO_RECIPE = "the entry doesn't record how it was made"
_CHANGED = "its headers or its tool have changed"
_STYLES = {"same": "", "proved": "yellow", "wrong": "red"}


def _record(verdict: RecordVerdict, reason: str) -> dict[str, str]:
    state = "wrong" if verdict.fault else "same" if verdict.remade else "proved"
    return {"key": verdict.digest, "name": verdict.name, "state": state, "why": verdict.fault or reason}


def _print_verified(records: list[dict[str, str]], counts: dict[str, int]) -> None:
    differing = [record for record in records if record["state"] != "same"]
    if differing:
        rows = [(short(r["key"]), printable(r["name"]), r["state"], printable(r["why"])) for r in differing]
        print_table(("key", "name", "is", "why"), rows, styles=[_STYLES[r["state"]] for r in differing])
    click.echo(
        f"{len(records)} entries checked: {counts['same']} made again and the same, "
        f"{counts['proved']} proved and not made again, {counts['wrong']} damaged or different"
    )
