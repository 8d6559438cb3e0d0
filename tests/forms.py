"""Counts what the CPU device made code for while the tests ran: every rule, with every type, and under a guard.

A whole run of the tests (`make test`) fails where a rule with types never ran. Under ``CUJIT_GUARDED=1`` (`make
guarded`) every instruction of every kernel gets a guard that holds for all threads, and each rule must run under one.
Whether values are right is for the tests to say; a rule in a branch that is not taken counts as well.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

import pytest

from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.control.rules import all_rules
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.module import CpuModule
from cujit.errors import CujitError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.semantics import form_of
from cujit.formats.ptx.isa.sets import SETS
from cujit.formats.ptx.isa.table import lookup, rows
from cujit.formats.ptx.syntax import Instruction
from instructions.rewriting import guarded

__all__: list[str] = []

_GUARDED = bool(os.environ.get("CUJIT_GUARDED"))
_LACKS = pytest.StashKey[list[str]]()

_ELSEWHERE = frozenset(
    word for name in ("RND", "COP", "STORECOP", "SPACE", "CREATED", "SCOPE", "VEC") for word in SETS[name]
)
_ELSEWHERE |= {"acquire", "relaxed", "eq", "gl", "L1", "width", "filter_mode"}
"""Words of places that do not count: tests of their own go through what stands there."""

_UNGUARDED = ("brkpt (", "bar (", "barrier (")
"""Rules that run under no guard: `rewriting` puts none before what ends a thread, and a barrier under one is a place
where lanes wait, which is no matter of rules."""

_ran: set[tuple[str, tuple[str, ...], bool]] = set()
"""Opcode, modifiers, and whether it stood under a guard."""


def _watch() -> None:
    """Note every operation that is given to the handler of its rule."""
    handle = WarpEmitter._handle

    @functools.wraps(handle)
    def noted(self: WarpEmitter, op: Op) -> WarpEmitter:
        _ran.add((op.opcode, op.modifiers, op.guard is not None))
        return handle(self, op)

    setattr(WarpEmitter, "_handle", noted)  # noqa: B010 - mypy lets no method be assigned


def _guard_all() -> None:
    """Put a guard that holds before every instruction that is loaded; text that is no PTX stays as it is."""
    load = CpuModule.__init__

    @functools.wraps(load)
    def with_guards(self: CpuModule, text: str, *args: Any, **options: Any) -> None:
        with contextlib.suppress(CujitError):
            text = guarded(text, "all")
        load(self, text, *args, **options)

    setattr(CpuModule, "__init__", with_guards)  # noqa: B010 - mypy lets no method be assigned


def _rule_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, str] | None:
    """Name the rule that takes a form, and the form's types."""
    op = Op(form_of(opcode, *(m for m in modifiers if opcode != "mov" or m not in ("v2", "v4"))))
    rule = all_rules().find(op)
    if rule is None:
        return None
    row = lookup(Instruction(opcode, modifiers, (), None, 0))
    places = [place.choices for place in row.modifiers if not place.optional and not place.is_type] if row else []
    words = ["|".join(sorted(words)) for words in places if len(words) > 1 and words.isdisjoint(_ELSEWHERE)]
    return " ".join([opcode, f"({rule.form})", *words]), ".".join(op.form.types)


def _lacks() -> list[str]:
    """Name the rules, with types, that did not run; under guards, the rules that ran under none."""
    wanted = {found for row in rows() for form in concrete_forms(row) if (found := _rule_of(row.opcode, form))}
    ran = {found for opcode, words, guard in _ran if guard or not _GUARDED if (found := _rule_of(opcode, words))}
    if _GUARDED:
        return sorted({rule for rule, _ in wanted if not rule.startswith(_UNGUARDED)} - {rule for rule, _ in ran})
    return sorted(f"{rule}: {types}" for rule, types in wanted - ran)


# -- the hooks of pytest -----------------------------------------------------------------------------------


def pytest_sessionstart() -> None:
    _watch()
    if _GUARDED:
        _guard_all()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _GUARDED and item.get_closest_marker("verbatim"):
        pytest.skip("it looks at the text of what it loads, or at lines of it")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a process of the tests ran."""
    ran = getattr(node, "workeroutput", {}).get("forms", ())
    _ran.update((opcode, tuple(words), guard) for opcode, words, guard in ran)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["forms"] = [(opcode, [str(word) for word in words], guard) for opcode, words, guard in sorted(_ran)]
    elif (
        exitstatus == pytest.ExitCode.OK
        and not session.config.option.collectonly
        and (_GUARDED or _is_whole(session.config))
    ):
        lacks = session.config.stash[_LACKS] = _lacks()
        if lacks:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for."""
    chosen = (
        config.option.keyword,
        config.option.markexpr,
        config.option.deselect,
        getattr(config.option, "lf", False),
    )
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _LACKS in config.stash:
        how = " under a guard" if _GUARDED else ""
        for name in config.stash[_LACKS]:
            terminalreporter.line(f"a rule of the CPU device that never ran{how}: {name}", red=True)
        terminalreporter.line(f"{len(_ran)} forms ran; {len(config.stash[_LACKS])} rules never did{how}")
