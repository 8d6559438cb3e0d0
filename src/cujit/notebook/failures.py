"""How errors look in a notebook: what was found, with its lines, and a traceback that ends at the user's line."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from types import FrameType, TracebackType
from typing import Any

from cujit.cli.console import Rows
from cujit.errors import BudgetError, CompileError, CujitError, KernelFaultError
from cujit.errors.stories import Story
from cujit.notebook.displays import RENDERERS, html_of

_SHOWN = (CompileError, KernelFaultError, BudgetError)
"""Errors that are shown with all that they found."""


def load(shell: Any) -> None:
    """Show errors of ours; who handles errors in the shell already goes on doing so."""
    if not shell.custom_exceptions:
        shell.set_custom_exc(_SHOWN, _raised)


def unload(shell: Any) -> None:
    """Show them no longer."""
    if shell.custom_exceptions == _SHOWN:
        shell.set_custom_exc((), None)


def end_cell(shell: Any, error: CujitError) -> None:
    """Show what is wrong with a cell of CUDA, and have IPython say one line of it: a traceback would be one of ours."""
    line = f"{type(error).__name__}: {_shown(shell, error) if isinstance(error, _SHOWN) else error}"
    error._render_traceback_ = functools.partial(list, [line])  # type: ignore[attr-defined]


def _raised(shell: Any, kind: type, error: Exception, trace: TracebackType, tb_offset: int | None = None) -> None:
    """Show what a cell raised: IPython calls it."""
    if not hasattr(error, "_render_traceback_"):
        trace, last = _until_ours(trace)
        shown = CujitError(_shown(shell, error, last))
        shown.set_code(getattr(error, "code", shown.code))
        error = shown
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def _shown(shell: Any, error: Any, raised_in: tuple[FrameType, int] | None = None) -> str:
    """Display an error; give its first line."""

    def named(text: str) -> str:
        """Call cells as the notebook does: to Python they are files of a temporary directory."""
        return re.sub(r"[^\s()]+(?=:\d)", lambda m: (shell.compile.format_code_name(m[0]) or ("", m[0]))[1], text)

    linecache.checkcache()  # a file may be another since
    kind = next(kind for kind in _SHOWN if isinstance(error, kind))
    parts: list[str | Rows | Story] = list(RENDERERS["cujit.errors", kind.__name__](error))
    saving = _saving(*raised_in) if kind is KernelFaultError and raised_in is not None else ""
    if saving:  # that is what the notes say, too, without the names
        parts = [*(part for part in parts if part not in getattr(error, "__notes__", ())), saving]
    html = html_of(named(part) if isinstance(part, str) else part for part in parts)
    text = "\n".join(filter(None, (named(str(error)), saving)))
    shell.display_pub.publish(data={"text/plain": text, "text/html": html}, metadata={})
    return named(error.message.partition("\n")[0])


def _until_ours(trace: TracebackType) -> tuple[TracebackType, tuple[FrameType, int]]:
    """Leave out the frames at the end that are inside of cujit; give the last that is left, too, with its line."""
    frames = []
    each: TracebackType | None = trace
    while each is not None:
        frames.append(each)
        each = each.tb_next
    while len(frames) > 1 and frames[-1].tb_frame.f_globals.get("__name__", "").startswith("cujit."):
        frames.pop()
    kept: TracebackType | None = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    assert kept is not None
    return kept, (frames[-1].tb_frame, frames[-1].tb_lineno)


def _saving(frame: FrameType, number: int) -> str:
    """Describe how to save the launch of a line, if the line ends with a launch."""
    line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    try:
        *_, end = ast.parse(line).body
    except (SyntaxError, ValueError):
        return ""
    call = end.value if isinstance(end, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, (ast.Subscript, ast.Call))):
        return ""
    call.func = ast.Attribute(call.func, "save", ast.Load())
    call.args.insert(0, ast.Constant("bug.launch"))
    return f"{ast.unparse(call)} keeps this launch in one file, which cujit run runs on any machine"
