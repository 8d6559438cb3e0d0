"""What a cell of Python raises shows what was found, with its lines, and a traceback that ends at the user's line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import cujit
import cujit.reproducer
from cells import Cells
from raising import raises

FAR = """%%cuda --check memory
__global__ void far(int *x, int n) {
    int i = threadIdx.x;
    if (i <= n)
        x[i] = 1;
}"""
LAUNCH = "x = far.device.zeros(4, 'int32')\nfar[1, 32](x, 4)"


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_fault_shows_the_finding_its_lines_and_how_to_save(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(FAR)
    capsys.readouterr()
    assert isinstance(cells.failure(LAUNCH), cujit.errors.KernelFaultError)
    (display,) = cells.displayed()
    html = display["text/html"]
    assert "block (0, 0, 0), thread (4, 0, 0): Invalid write of 4 bytes at " in html
    assert "allocated at In[2]:1" in html
    assert "from In[1]:5" in html
    assert (
        "In[1]\n  3 |     int i = threadIdx.x;\n  4 |     if (i &lt;= n)\n&gt; 5 |         x[i] = 1;\n  6 | }" in html
    )
    assert "hint: compare the index" in html
    saving = "far[1, 32].save('bug.launch', x, 4) keeps this launch in one file"
    assert saving.replace("'", "&#x27;") in html
    assert "launch.save(" not in html
    assert display["text/plain"].endswith(saving + ", which cujit run runs on any machine")


def test_traceback_ends_at_the_line_of_the_cell(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(FAR)
    cells.run("def launch(x):\n    far[1, 32](x, 4)")
    capsys.readouterr()
    cells.failure("launch(far.device.zeros(4, 'int32'))")
    said = plain(capsys.readouterr().out)
    assert said.count("far[1, 32](x, 4)") == 1
    assert "launch(far.device" in said
    assert "cujit/devices" not in said
    *_, message, explained = said.strip().splitlines()
    assert message.startswith("KernelFaultError: kernel far, block (0, 0, 0), thread (4, 0, 0)")
    assert explained == "For details, run: cujit explain fault-memory"


def test_suggested_save_command_works(cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells.run(FAR)
    cells.failure(LAUNCH)
    (display,) = cells.displayed()
    path = cells.run(display["text/plain"].splitlines()[-1].partition(" keeps")[0])
    with raises(cujit.errors.KernelFaultError, "fault-memory", "In[1]:5"):
        cujit.reproducer.run(path, check="memory")


@pytest.mark.parametrize(
    "line", ["if True: far[1, 32](x, 4)", "done = far[1, 32](x, 4)", "print(*map(far[1, 32], [x], [4]))"]
)
def test_complex_line_gets_no_save_suggestion(cells: Cells, line: str) -> None:
    cells.run(FAR)
    cells.run("x = far.device.zeros(4, 'int32')")
    cells.failure(line)
    (display,) = cells.displayed()
    assert "bug.launch" not in display["text/plain"]


def test_fault_without_lines_shows_no_excerpt(cells: Cells) -> None:
    cells.names["trap"] = cujit.jit('__global__ void trap() { asm("trap;"); }', device=cujit.cpu())["trap"]
    cells.failure("trap[1, 1]()")
    (display,) = cells.displayed()
    assert "kernel trap, block" in display["text/html"]
    assert " | " not in display["text/html"]


def test_budget_and_a_compile_in_python_are_shown_too(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run("import cujit\nbudget = cujit.budget.Budget(registers=1)\ncompilers = [cujit.jit]")
    assert isinstance(cells.failure("compilers[0]('int x = y;', device='cpu')"), cujit.errors.CompileError)
    (display,) = cells.displayed()
    assert "&gt; 1 | int x = y;" in display["text/html"]
    assert "bug.launch" not in display["text/plain"]  # it is no launch
    cells.names["image"] = cujit.compile("__global__ void f(float *x) { *x += 1; }", arch="sm_90")
    assert isinstance(cells.failure("cujit.budget.check(image, budget)"), cujit.errors.BudgetError)
    assert "<table" in cells.displayed()[0]["text/html"]
    assert plain(capsys.readouterr().out).count("Traceback (most recent call last)") == 2


def test_other_errors_are_unchanged(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.failure("import cujit\ncujit.cpu().zeros(-1, 'int32')")
    assert cells.displayed() == []
    assert "cujit/devices" in plain(capsys.readouterr().out)


def test_existing_error_handlers_still_run(cells: Cells) -> None:
    cells.run("%unload_ext cujit")
    assert cells.shell.custom_exceptions == ()
    seen = []
    cells.shell.set_custom_exc((ZeroDivisionError,), lambda *arguments, **_: seen.append(arguments[1]))
    cells.run("%load_ext cujit")
    cells.failure("1 / 0")
    cells.run("%unload_ext cujit")
    cells.failure("1 / 0")
    assert seen == [ZeroDivisionError, ZeroDivisionError]
    cells.shell.set_custom_exc((), None)


def test_fault_as_the_value_of_a_cell_is_shown_whole(cells: Cells) -> None:
    device = cujit.cpu(check="memory")
    far = cujit.jit(FAR.partition("\n")[2], device=device)["far"]
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        far[1, 32](device.zeros(4, np.int32), 4)
    html = cells.shown(caught.value)["text/html"]
    assert "thread (4, 0, 0)" in html
    assert all(note.strip() in html.replace("&#x27;", "'") for note in getattr(caught.value, "__notes__", ()))


def test_note_of_a_fault_may_be_of_a_class_of_strings(cells: Cells) -> None:
    class Note(str): ...

    error = cujit.errors.KernelFaultError("it stops", kind="trap")
    error.__notes__ = [Note("seen on the second run")]  # type: ignore[attr-defined,unused-ignore]
    assert "seen on the second run" in cells.shown(error)["text/html"]


def test_edited_header_is_shown_in_its_current_form(cells: Cells, tmp_path: Path) -> None:
    cells.names["folder"] = str(tmp_path)
    for first in ("// one", "// another"):
        (tmp_path / "own.h").write_text(f"{first}\n__device__ int x = y;\n")
        cells.failure("%%cuda -I $folder\n#include <own.h>")
        assert f"  1 | {first}\n&gt; 2 | __device__" in cells.displayed()[0]["text/html"]
