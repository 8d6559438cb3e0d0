"""Every snippet of docs/profile.md runs, and its table is what the goldens say."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cujit.profile import Measures, advice
from cujit.profile.rules import RULES
from pages import Page

PAGE = Page("profile.md")
REDUCTION = "Reduction with divergent branches"
GOLDEN = json.loads((Path(__file__).parent / "goldens/counters.json").read_text())


def test_python_runs_and_reduction_table_has_its_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it draws a picture
    names = PAGE.run("\n".join(code for _, code in PAGE.snippets()))
    (head, _, *rows) = re.findall(r"^\| (?:reduction|`|---).*$|^\|---.*$", PAGE.sections[REDUCTION], re.MULTILINE)
    measures = re.findall(r"`(\w+)`", head)
    shown = {row.split("`")[1]: [int(cell.replace(",", "")) for cell in re.findall(r"[\d,]+", row)] for row in rows}
    reductions: Any = names["reductions"]
    assert shown == {name: [getattr(kernel.totals, each) for each in measures] for name, kernel in reductions.items()}
    assert len(shown) == 4


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()


def test_each_rule_of_advice_is_explained() -> None:
    assert RULES.keys() == set(re.findall(r'\bAdvice\("(\w+)"', inspect.getsource(advice)))


def test_example_of_each_rule_is_a_pair_timed_on_an_h200() -> None:
    times = json.loads((Path(__file__).parent / "goldens/advice-pairs-h200.json").read_text())["pairs"]
    measured = {(row["rule"], row["name"]): (row["before_ms"], row["after_ms"]) for row in times}
    for name, rule in RULES.items():
        shown = tuple(float(f"{1e3 * ms:.3g}") for ms in measured[name, rule.example])
        assert (rule.before_us, rule.after_us) == pytest.approx(shown, rel=0.005)


def test_each_measure_is_explained() -> None:
    named = {name for row in re.findall(r"^\| (`.+?) \|", PAGE.sections["Measures"], re.MULTILINE)
             for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert named == {*Measures.__match_args__, "moved_bytes"}


CASES = {
    "load adjacent floats": "load of floats, stride 1",
    "load floats with a stride of 8": "load of floats, stride 8",
    "load adjacent floats, misaligned by one element": "load of floats, one off",
    "load `float4`": "load of float4",
    "store floats to shared memory with a stride of 32": "shared store of float, stride 32",
    "load floats from shared memory with a stride of 2": "shared load of float, stride 2",
    "`atomicAdd` on 8 words, result unused": "atomicAdd of unsigned on 8 words",
}
KINDS = {"load": "ld", "store": "st", "`atomicAdd`": "red"}


def test_table_has_the_counts_of_a_gpu() -> None:
    table = PAGE.sections["Metric names of Nsight Compute"]
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", table, re.MULTILINE)
    ]
    shown = {row[0]: [int(cell.replace(",", "")) for cell in row[1:] if cell] for row in rows[2:]}
    assert shown.keys() == CASES.keys()
    for row, numbers in shown.items():
        kind = KINDS[row.split()[0]]
        counted = GOLDEN["cases"][CASES[row]]
        space = "shared" if "shared" in row else "global"
        names = [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{kind}.sum" for what in ("requests", "sectors")]
        if space == "shared":
            names = [f"l1tex__data_{what}_mem_shared_op_{kind}.sum"
                     for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")]  # fmt: skip
            assert numbers.pop(0) == counted[names[0]] - counted[names[1]]
        assert numbers == [counted[name] for name in names]


def test_page_states_how_many_launches_match_a_gpu() -> None:
    text = PAGE.sections["Comparison with a GPU"]
    cases, explained = GOLDEN["cases"], GOLDEN["explained"]
    assert text.startswith(f"\n`ncu` counted {len(cases)} launches of about 140 kernels on an H200")
    said = text.replace("\n", " ")
    assert f"In {len(cases) - len(explained)} launches, all counters match those of the CPU device." in said
    assert f"In {len(explained)} launches, some counters differ." in said
    rows = [int(count) for count in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert sum(rows) == len(explained)
    unknown = sum("not known" in each["why"] for each in explained.values())
    assert f"| {unknown} | a difference of 1% to 2% in wavefronts or sectors; the cause is unknown |" in text
