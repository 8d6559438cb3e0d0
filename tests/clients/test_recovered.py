"""Cubins that Triton compiles here: their PTX comes back as Triton wrote it, and assembles again."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import cujit
from cujit.formats.cubin import read_cubin
from cujit.formats.ptx.recovered import ptx_of_cubin

PROGRAM = """import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def product(a, b, c, n, SIZE: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inner = tl.arange(0, SIZE)
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for base in range(0, n, SIZE):
        left = tl.load(a + rows[:, None] * n + (base + inner)[None, :])
        right = tl.load(b + (base + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32", "SIZE": "constexpr"}
source = ASTSource(fn=product, signature=types, constexprs={"SIZE": 32})
made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
open("k.cubin", "wb").write(made.asm["cubin"])
open("k.ptx", "w").write(made.asm["ptx"])
"""


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_triton_cubin_contains_its_ptx(arch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: `make clients`")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "program.py", str(arch)], cwd=tmp_path, check=True, timeout=300)
    cubin, own = (tmp_path / "k.cubin").read_bytes(), (tmp_path / "k.ptx").read_text().split("\n")
    text = ptx_of_cubin(cubin)
    code = {n: line.strip() for n, line in enumerate(own) if line.strip().endswith((";", "{", ")", ":"))}
    assert len(code) > 100
    assert all(text.split("\n")[n].strip() == line for n, line in code.items() if line[0] not in "./")
    assert cujit.link([text], arch=str(read_cubin(cubin).arch)).data
