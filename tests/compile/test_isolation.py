"""Some options of NVRTC change every later compile of the process, or end it; no other compile may notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cujit
from cujit.compiler.isolation import parent
from cujit.compiler.options.table import OPTIONS
from cujit.errors import CujitError
from processes import python
from raising import raises

# A load that --restrict changes, a call that is inlined, a message of the front end, arithmetic that options change, a
# structure that is read otherwise after a compile for a debugger.
SOURCE = """__device__ float twice(float x) {{ return x + x / 3.0f; }} // {}
struct Four {{ int of[4]; }};
extern "C" __global__ void k(float *a, const float *b, int n, const __grid_constant__ Four four) {{
    int unused;
    for (int i = 0; i < n; i++) a[i] = b[0] + a[0] * twice(a[n - i]) + four.of[n & 3];
}}"""


def _made(mark: str, **more: object) -> tuple[str, str]:
    made = cujit.compile(SOURCE.format(mark), arch="sm_90", to="ptx", **more)  # type: ignore[arg-type]
    return bytes(made.data).decode(), made.log


ASKED = [
    {"options": {"restrict": True}},
    {"options": {"extra": ["--restrict"]}},
    {"options": {"optimization_info": "inline"}},
    {"options": {"extra": ["--optimization-info=inline"]}},
    {"options": {"extra": ["-opt-info=inline"]}},
    {"options": {"debug": True}},
    {"options": {"extra": ["-G"]}},
    {"options": {"ofast_compile": "max"}},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("isolate", [False, True])
def test_lasting_options_do_not_affect_the_next_compile(asked: dict[str, object], isolate: bool) -> None:
    mark = f"{str(asked)!r} {isolate}"
    before = _made(f"{mark} 1", isolate=isolate)
    assert "ld.global.nc" not in before[0]
    assert "inlined into" not in before[1]
    ptx, log = _made(f"{mark} 2", isolate=isolate, **asked)
    assert ("ld.global.nc" in ptx, "inlined into" in log) == ("restrict" in mark, "info" in mark)
    assert _made(f"{mark} 3", isolate=isolate) == before


def test_only_equal_options_share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parent._end_idle()
    made: list[object] = []

    class Counted(parent._CompilerChild):
        def __init__(self, world: parent._World) -> None:
            made.append(world)
            super().__init__(world)

    monkeypatch.setattr(parent, "_CompilerChild", Counted)
    for mark in ("4", "5"):
        _made(mark, options={"restrict": True})
    assert len(made) == 1
    assert "ld.global.nc" not in _made("6", options={"optimization_info": "inline"})[0]
    assert len(made) == 2
    _made("7", isolate=True)
    assert len(made) == 3


def test_time_trace_is_written_or_an_error(tmp_path: Path) -> None:
    cujit.compile(SOURCE.format("8"), arch="sm_90", options={"time_trace": str(tmp_path / "trace")})
    (written,) = tmp_path.iterdir()
    assert json.loads(written.read_text())["traceEvents"]
    with raises(CujitError, "tool-crash", "Could not open"):
        cujit.compile(SOURCE.format("9"), arch="sm_90", options={"time_trace": str(tmp_path / "missing" / "trace")})


# One that comes to last in a later release of NVRTC has to be said in the table, too.
EACH = """
import sys
from cujit.compiler.options.table import OPTIONS, Spelling
from cujit.compiler.options.values import Options, Tool
from cujit.toolchain.toolset import Toolchain
from cujit.toolchain.nvrtc import nvrtcError
from test_options import _ELSEWHERE, sample

toolchain = Toolchain()

def made(*options):
    with toolchain.nvrtc.program(SOURCE, b"/cujit-test/k.cu") as program:
        try:
            program.compile([b"-arch=sm_90", *options])
        except nvrtcError:
            assert options == (b"--diag-error=177",)
        return None if options else (program.cubin(), program.ptx(), program.log())

before = made()
for name, option in OPTIONS.items():
    if name in _ELSEWHERE or option.isolated or not isinstance(option.nvrtc, Spelling):
        continue
    if ((13, 3) if name == "std" else option.since or (0, 0)) > toolchain.nvrtc.version:  # the sample is C++23
        continue
    made(*(word.encode() for word in Options.of({name: sample(option)}, {}).render(Tool.NVRTC)))
    assert made() == before, name
"""


def test_other_options_do_not_last() -> None:
    constants = f"SOURCE = {SOURCE.format('').encode()!r}\n"
    here = Path(__file__).parent
    done = python(f"import sys\nsys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]\n{constants}{EACH}")
    assert done.returncode == 0, done.stderr
    assert {name for name, option in OPTIONS.items() if option.isolated} == {
        "restrict", "ofast_compile", "debug", "optimization_info", "time_trace",
    }  # fmt: skip
