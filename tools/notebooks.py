"""Notebooks of ``examples/notebooks``, run cell by cell: ``python tools/notebooks.py`` stores what they print.

No kernel of Jupyter's is needed: the cells are Python, executed in order in one namespace. A test compares the outputs.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "executed", "written"]

NOTEBOOKS = Path(__file__).parents[1] / "examples/notebooks"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Give the notebook with the outputs that its cells have now: text that is printed, and the value at the end."""
    space: dict[str, object] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs("".join(cell["source"]), f"cell {count}", space)
            for output in outputs:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = count
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, name: str, space: dict[str, object]) -> list[dict[str, Any]]:
    """Run a cell, and give what Jupyter would store of it."""
    *body, end = ast.parse(source).body
    last = ast.Expression(end.value) if isinstance(end, ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body if last else [*body, end], []), name, "exec"), space)
        value = eval(compile(last, name, "eval"), space) if last else None
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def written(notebook: dict[str, Any]) -> str:
    """Give the file of a notebook, as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        path.write_text(written(executed(json.loads(path.read_text()))))
