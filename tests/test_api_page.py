"""Every public name says what it takes and shows an example, and the examples run."""

from __future__ import annotations

import inspect
import operator
import subprocess
import sys
from collections.abc import Iterator

import pytest

import cujit
from api_page import INNER, PRELUDE, Doc, documented

DOCS = [*documented()]
CALLED = [doc for doc in DOCS if not isinstance(doc.thing, property)]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What the page shows above its examples, in an empty directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("examples"))
        space: dict[str, object] = {}
        exec(compile(PRELUDE, "docs/api.md", "exec"), space)
        yield space
        for name in ("example axpy", "example axpy fast", "example tuned"):
            cujit.default_registry().forget(name)


@pytest.mark.parametrize("doc", CALLED, ids=lambda doc: doc.name)
def test_example_runs(doc: Doc, names: dict[str, object]) -> None:
    example = doc.section("Example")
    assert example, f"cujit.{doc.name} has no Example"
    x, y = names["x"], names["y"]
    assert isinstance(x, cujit.DeviceArray)
    assert isinstance(y, cujit.DeviceArray)
    x.fill(1)
    y.fill(0)
    if doc.name in _APART:
        subprocess.run([sys.executable, "-c", f"import cujit\n{example}"], check=True)
    else:
        exec(compile(example, f"cujit.{doc.name}", "exec"), {**names})


_APART = ("emulate",)
"""What has to come before anything else in a process."""


@pytest.mark.parametrize("doc", CALLED, ids=lambda doc: doc.name)
def test_every_argument_is_documented(doc: Doc) -> None:
    if doc.is_callable:
        assert [*doc.items] == doc.parameters
    elif doc.items:
        taken = inspect.signature(doc.thing).parameters  # type: ignore[arg-type]
        assert {*doc.items} == {*taken}


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_docstring_describes_the_object(doc: Doc) -> None:
    assert doc.prose
    titles = [line.rstrip(":") for line in doc.text.splitlines() if line in ("Args:", "Raises:", "Example::")]
    assert titles == sorted({*titles}, key=["Args", "Raises", "Example"].index)


def test_internal_methods_are_listed() -> None:
    for name, inner in INNER.items():
        for method in inner.split():
            assert operator.attrgetter(f"{name}.{method}")(cujit)
