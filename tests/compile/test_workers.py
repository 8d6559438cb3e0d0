"""Worker processes: what is printed at Python's start is no answer, and no program is started instead of Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from processes import printed, python

KERNEL = "__global__ void k(int *o) { *o = 43; }"
COMPILE = f"""
import cujit
try:
    print(len(cujit.compile({KERNEL!r}, arch="sm_90", cache=False, timeout_s=100, **OPTION).data) > 1000)
except cujit.errors.CujitError as e:
    print(type(e).__name__, e)
"""


@pytest.mark.parametrize("option", ["{'isolate': True}", "{'restrict': True}", "{'optimization_info': 'inline'}"])
def test_output_of_sitecustomize_is_not_an_answer(tmp_path: Path, option: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('site says hello')\nos.write(1, b'more')\n")
    code = f"import os\nos.environ['PYTHONPATH'] = {str(tmp_path)!r}\nOPTION = {option}\n{COMPILE}"
    assert printed(code) == "True\n"


@pytest.mark.parametrize("mark", ["sys.frozen = True", "sys._MEIPASS = '/tmp'", "__compiled__ = True"])
@pytest.mark.parametrize("option", ["{'isolate': True}", "{'restrict': True}"])
def test_frozen_program_does_not_start_itself(tmp_path: Path, mark: str, option: str) -> None:
    log, program = tmp_path / "log", tmp_path / "python3"
    program.write_text(f"#!/bin/sh\necho started >> {log}\n")
    program.chmod(0o755)
    code = f"import sys\n{mark}\nsys.executable = {str(program)!r}\nOPTION = {option}\n{COMPILE}"
    said = printed(code)
    assert said.startswith("UnsupportedError this operation requires a separate Python process")
    assert "set CUJIT_PYTHON" in said
    assert not log.exists()


def test_frozen_program_uses_the_specified_interpreter() -> None:
    given = "import os, sys\nos.environ['CUJIT_PYTHON'] = sys.executable\nsys.frozen = True\n"
    code = f"{given}OPTION = {{'isolate': True}}\n{COMPILE}"
    assert printed(code) == "True\n"


def test_embedding_program_uses_the_interpreter_of_its_prefix(tmp_path: Path) -> None:
    program = tmp_path / "blender"
    program.write_text(f"#!/bin/sh\necho started >> {tmp_path / 'log'}\n")
    program.chmod(0o755)
    code = f"import sys\nsys.executable = {str(program)!r}\nOPTION = {{'isolate': True}}\n{COMPILE}"
    assert printed(code) == "True\n"
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("text", ["echo hello", "sleep 600 & echo hello >&$3; wait", "exit 3"])
def test_program_that_is_not_python_is_an_error(tmp_path: Path, text: str) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    code = f"import os\nos.environ['CUJIT_PYTHON'] = {str(program)!r}\nOPTION = {{'isolate': True}}\n{COMPILE}"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert re.match("ToolCrashError .*NVRTC ended with status|UnsupportedError", done.stdout), done.stdout


def test_saved_launches_and_doctor_refuse_without_interpreter() -> None:
    code = """
        import sys
        sys.frozen = True
        import cujit
        from cujit.reproducer import fork_server
        print(cujit.doctor().is_good)
        try: fork_server.fork((), is_gpu=False)
        except cujit.errors.UnsupportedError as e: print(e.help)
    """
    assert printed(code).startswith("True\nset CUJIT_PYTHON")


def test_only_variables_of_whole_names_reach_a_compile() -> None:
    code = f"""
        import os
        for name in ("LANGCHAIN_API_KEY", "HOMEBREW_TOKEN", "CUJIT_CACHE_TOKEN", "CUDA_HOME_KEY", "AWS_SECRET_KEY"):
            os.environ[name] = "secret"
        os.environ["NVVM_IR_VER_CHK"] = "1"  # which is part of the key
        import cujit
        from cujit.compiler.isolation import parent
        for number in range(2):
            os.environ["OTHER"] = str(number)
            assert cujit.compile({KERNEL!r}, arch="sm_90", cache=False, isolate=True).data
        (child,) = parent._living
        with open(f"/proc/{{child.process.pid}}/environ") as file:
            found = file.read()
        print("secret" in found, "PYTHONPATH=" in found, "NVVM_IR_VER_CHK=1" in found)
    """
    assert printed(code).split() == ["False", "True", "True"], "and an unknown variable needs no other process"
