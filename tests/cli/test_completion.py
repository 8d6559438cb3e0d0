"""``cujit completion``: what the shells evaluate, and what they are then told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit.cli import main
from cujit.cli.app import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_of_each_shell_calls_the_command(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_CUJIT_COMPLETE={shell}_complete" in done.output


def _completed(words: str, directory: Path) -> list[str]:
    """Ask as bash does after TAB: by the function of the script, in a bash of its own."""
    (directory / "cujit").write_text(f'#!/bin/sh\nexec {sys.executable} -m cujit "$@"\n')
    (directory / "cujit").chmod(0o755)
    (directory / "script").write_text(CliRunner().invoke(main, ["completion", "bash"]).output)
    count = len(words.split(" ")) - 1
    asked = f"COMP_WORDS=({words}); COMP_CWORD={count}; _cujit_completion cujit; printf '%s\\n' ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"source script; {asked}"],
        cwd=directory,
        env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    assert _completed("cujit re", tmp_path) == [verb for verb in COMMANDS if verb.startswith("re")]
    assert "--cluster" not in _completed("cujit compile --o", tmp_path)
    assert "--output" in _completed("cujit compile --o", tmp_path)
    assert _completed("cujit compile k.cu -a sm_90", tmp_path) == ["sm_90", "sm_90a"]
    assert _completed("cujit build k.cu --target compute_8", tmp_path)[0] == "compute_80"
    assert _completed("cujit link a.ptx -O line", tmp_path) == ["lineinfo"]


def test_bash_completes_the_kernels_of_the_file(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void scale(float* x);\n__global__ void shift(float* x) { *x += 1; }\n'
    template = "template <class T> __global__ void axpy(T* x) { *x += 1; }\n"
    (tmp_path / "k.cu").write_text(source + template + 'extern "C" __global__ void sum(float* x) { *x += 2; }')
    (tmp_path / "broken.ptx").write_text("nothing")
    fatbin = cujit.build(tmp_path / "k.cu", ["sm_80", "sm_90"], names=["axpy<float>", "axpy<int>"])
    fatbin.save(tmp_path / "k.fatbin")
    assert _completed("cujit run k.cu -k s", tmp_path) == ["shift", "sum"]
    assert _completed("cujit occupancy k.fatbin --kernel su", tmp_path) == ["sum"]
    assert _completed("cujit run k.fatbin -k ax", tmp_path) == ["'axpy<float>'", "'axpy<int>'"]
    assert _completed("cujit budget k.fatbin --kernels \\'ax", tmp_path) == ["axpy<float>", "axpy<int>"]
    for nothing in ("run missing.ptx -k s", "run broken.ptx -k s", "run -k s"):
        assert _completed(f"cujit {nothing}", tmp_path) == []
