"""Every snippet of docs/testing.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cujit.integrations.pytest_plugin import _SETTINGS, _SWITCHES

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[1] / "docs" / "testing.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TESTS = [code for code in SNIPPETS if code.startswith("# test_")]
SCRIPTS = [code for code in SNIPPETS if not code.startswith("# test_")]


@pytest.mark.parametrize("code", SCRIPTS, ids=[str(k) for k in range(len(SCRIPTS))])
def test_snippet_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/testing.md", "exec"), {"__name__": "snippet"})


def test_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    assert len(TESTS) == 1
    pytester.makepyfile(test_axpy=TESTS[0])
    plugin = ("-p", "no:cujit", "-p", "cujit.integrations.pytest_plugin", "-p", "no:cacheprovider")
    result = pytester.runpytest_subprocess(*plugin, "--cujit-device=cpu", "--cujit-coverage=c.info", "--strict-markers")
    result.assert_outcomes(passed=3)
    assert "\nDA:6,1001\n" in (pytester.path / "c.info").read_text()


def test_every_option_of_the_plugin_is_on_the_page() -> None:
    for name, _ in (*_SETTINGS, *_SWITCHES):
        if "budget" not in name:
            assert f"--{name.replace('_', '-')}`" in PAGE
