"""Budgets for the costs of kernels, checked against profiles without a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cujit.budget.report import BudgetReport, BudgetRow, shown
from cujit.devices.cpu.observe.measures import ProfiledKernel
from cujit.devices.cpu.observe.profile import Profile
from cujit.errors import NameNotFoundError, listed
from cujit.inspection.choose import names_matching
from cujit.inspection.values import KernelInfo
from cujit.profile.advice import advice_for
from cujit.profile.reading import read_profile

COSTS = (
    "sectors_per_request",
    "sectors",
    "local_sectors",
    "wavefronts",
    "bank_conflicts",
    "divergent_branches",
    "most_contended",
    "flops",
)
"""What a profile tells, as ``Measures`` names it."""

_SHOWN_NAMES = 12


def profiled(what: object) -> tuple[ProfiledKernel, ...] | None:
    """Return the kernels of a profile, or of a file that ``cujit profile --json`` wrote (.json).
    None if it is neither.
    """
    if isinstance(what, Profile):
        return what.kernels
    if isinstance(what, ProfiledKernel):
        return (what,)
    if isinstance(what, (str, os.PathLike)) and os.fspath(what).endswith(".json"):
        return read_profile(what)
    if isinstance(what, Sequence) and what and all(isinstance(each, ProfiledKernel) for each in what):
        return tuple(what)
    return None


def examine_costs(
    name: str,
    kernels: Sequence[ProfiledKernel],
    rules: Sequence[tuple[str, Mapping[str, float]]],
    wanted: Sequence[str] | None,
) -> BudgetReport:
    """Check kernels against the limits of the first name pattern that matches. ``wanted`` are patterns of kernels to
    check.

    Raises:
        NameNotFoundError: no kernel ran, or no kernel matches a pattern.
    """
    known = [KernelInfo(kernel.lowered_name, kernel.name) for kernel in kernels]
    requested = _fitting(["*"] if wanted is None else wanted, known)
    decided: dict[str, Mapping[str, float]] = {}
    left: list[str] = []
    for pattern, limits in rules:
        found = _fitting([pattern], known) & requested
        decided |= dict.fromkeys(found - decided.keys(), limits)
        if not found:
            left.append(f"{pattern}: no kernel with this name ran")
    if not decided:
        raise _nothing(name, kernels, wanted or [pattern for pattern, _ in rules])
    rows: list[BudgetRow] = []
    for kernel in kernels:
        if kernel.lowered_name in decided:
            limits = decided[kernel.lowered_name]
            rows += _rows(kernel, limits)
            left += [
                f"{what} of {kernel.name}: only machine code contains this value"
                for what in limits
                if what not in COSTS
            ]
        elif kernel.lowered_name in requested:
            left.append(f"{kernel.name}: no pattern matches it")
    return BudgetReport(name, tuple(rows), tuple(dict.fromkeys(left)))


def _fitting(patterns: Sequence[str], known: Sequence[KernelInfo]) -> set[str]:
    return {found for pattern in patterns for found in names_matching(pattern, known)}


def _nothing(name: str, kernels: Sequence[ProfiledKernel], patterns: Sequence[str]) -> NameNotFoundError:
    if not kernels:
        return NameNotFoundError(
            f"{name} contains no kernel", help="to profile a kernel, launch it on cujit.cpu(profile=…)"
        )
    there = listed((kernel.name for kernel in kernels), _SHOWN_NAMES)
    return NameNotFoundError(
        f"{name} contains no kernel named {', '.join(patterns)}", help=f"choose one of its kernels: {there}"
    )


def _rows(kernel: ProfiledKernel, limits: Mapping[str, float]) -> Iterator[BudgetRow]:
    totals, advice = kernel.totals, advice_for(kernel)
    for what, allowed in limits.items():
        if what not in COSTS:
            continue
        worst = max(kernel.lines(), key=lambda line: getattr(line.measures, what))
        most, line, note = getattr(worst.measures, what), worst.source, ""
        if line is not None and most:
            note = f"most at {Path(line.file).name}:{line.line}, {shown(what, most)}"
        about = sorted(advice, key=lambda each: (each.measure != what, each.line != line))
        cure = next((str(each) for each in about if each.measure == what or each.line == line), "")
        yield BudgetRow(kernel.name, kernel.lowered_name, None, what, allowed, getattr(totals, what), note, cure, line)
