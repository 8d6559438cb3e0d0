"""Assemblers of several releases, from the directories that ``CUJIT_TOOLKITS`` names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.arch.support import RELEASES, Version, toolkit_of_ptx
from cujit.formats.ptx.isa.table import NEWEST_PTX

Ptxas = Callable[[Version, str, str], str]


def _installed() -> dict[Version, Path]:
    """Find ``13.0/ptxas`` and its like below the directories of ``CUJIT_TOOLKITS`` (separated as in ``PATH``)."""
    found = {}
    for directory in filter(None, os.environ.get("CUJIT_TOOLKITS", "").split(os.pathsep)):
        for path in sorted(Path(directory).glob("*/ptxas")):
            if match := re.fullmatch(r"(\d+)\.(\d+)", path.parent.name):
                found[(int(match[1]), int(match[2]))] = path
    return found


INSTALLED = _installed()
CRASHED = "it crashed"
"""What an assembler answers that dies of a signal, as ptxas 12.0 to 12.2 do now and then: it tells of no version."""
PTX_OF: dict[Version | None, Version] = {release.toolkit: release.ptx for release in RELEASES}
PTX_OF[toolkit_of_ptx(NEWEST_PTX)] = NEWEST_PTX  # a toolkit can be newer than every driver of the table


@pytest.fixture(
    params=[pytest.param(v, id=f"{v[0]}.{v[1]}") for v in sorted(INSTALLED) if v in PTX_OF]
    or [pytest.param(None, marks=pytest.mark.skip(reason="CUJIT_TOOLKITS names no toolkits"))]
)
def release(request: pytest.FixtureRequest) -> Version:
    """Each release whose ptxas is installed."""
    found: Version = request.param
    return found


@pytest.fixture
def ptxas(tmp_path: Path) -> Ptxas:
    """``ptxas(release, text, arch)``: what the assembler of that release complains of; empty if nothing."""

    def run(release: Version, text: str, arch: str) -> str:
        source = tmp_path / "x.ptx"
        source.write_text(text)
        done = subprocess.run(
            [INSTALLED[release], f"-arch={arch}", source, "-o", tmp_path / "x.cubin"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode < 0:
            return CRASHED
        return "" if done.returncode == 0 else done.stderr or f"status {done.returncode}"

    return run
