"""Notebooks of ``examples/notebooks``, by a kernel of Jupyter's: ``python tools/notebooks.py`` stores what they show.

A test compares what is stored with what comes now. What differs from run to run, and from release to release of the
tools, is compared as ``steady`` writes it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "executed", "steady", "written"]

NOTEBOOKS = Path(__file__).parents[1] / "examples/notebooks"

_WAIT_S = 240


def executed(notebook: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Give the notebook with the outputs that its cells have now: text that is printed, displays, values at the end.

    A cell with the tag ``raises-exception`` may fail; another that does ends it.
    """
    # of the extra `dev`; a machine that only has a GPU runs other tests
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    book = nbformat.reads(json.dumps(notebook), as_version=4)
    with tempfile.TemporaryDirectory() as home:
        # Over sockets of this directory, which nobody else can open.
        client = NotebookClient(
            book,
            config=Config(KernelManager={"transport": "ipc", "connection_file": f"{home}/kernel.json"}),
            kernel_name="python3",
            timeout=_WAIT_S,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": home}},
        )
        client.execute(env={**os.environ, "IPYTHONDIR": home, **(environment or {})})
    cells = json.loads(nbformat.writes(book))["cells"]
    return {**notebook, "cells": cells}


def written(notebook: dict[str, Any]) -> str:
    """Give the file of a notebook, as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


_UNSTEADY = (
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0x…"),  # addresses of objects
    (re.compile(r"\b(NVRTC|nvJitLink|ptxas) \d+\.\d+"), r"\1 …"),
    (re.compile(r"\bPTX line \d+: (?:[^\\<\"]|\\t)*"), "PTX line …"),
    (re.compile(r"\\u001b\[[\d;]*m"), ""),  # colours
)


def steady(text: str) -> str:
    """Write a notebook without what is another in each run, or with each release of the tools."""
    book = json.loads(text)
    for output in (output for cell in book["cells"] for output in cell.get("outputs", ())):
        if output["output_type"] == "error":
            del output["traceback"][:-1]  # each release of IPython's lays them out another way
    text = written(book)
    for pattern, instead in _UNSTEADY:
        text = pattern.sub(instead, text)
    return text


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        before = path.read_text()
        after = written(executed(json.loads(before)))
        if steady(after) != steady(before):
            path.write_text(after)
