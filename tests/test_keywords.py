"""Keywords that are fields of settings classes: what ``help`` shows, what is refused, what type checkers know."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.compiler.options.limits import WorkLimits
from cujit.devices.textures.making import SamplingWords
from cujit.values import NamedTuple
from cujit.values.keywords import has_keywords, take

SOURCE = Path(cujit.__file__).parent


class _Size(NamedTuple):
    width: int
    height: int = 2


@has_keywords(_Size)
def _area(scale: int = 1, **more: Any) -> tuple[int, dict[str, Any]]:
    size = take(_Size, more, _area, is_all=False)
    return size.width * size.height * scale, more


def test_keywords_of_settings_are_in_the_signature() -> None:
    assert str(inspect.signature(_area)).startswith("(scale: 'int' = 1, *, width: 'int', height: 'int' = 2, **more")
    assert _area(3, width=5, other=1) == (30, {"other": 1})
    assert inspect.signature(cujit.Device.texture).parameters["filter"].default == SamplingWords().filter


def test_limits_of_a_call_are_shown_and_typed_as_their_settings() -> None:
    stub = ast.parse((SOURCE / "compiler/options/keywords.pyi").read_text())
    (keywords,) = [c for c in stub.body if isinstance(c, ast.ClassDef) and c.name == "CallKeywords"]
    typed = {ast.unparse(f.target): ast.unparse(f.annotation) for f in keywords.body if isinstance(f, ast.AnnAssign)}
    hints = WorkLimits.__annotations__
    assert typed == {name: hints[name] for name in hints if name != "until"}
    for call in (cujit.compile, cujit.link, cujit.build, cujit.jit):
        shown = inspect.signature(call).parameters
        assert {name: str(shown[name].annotation) for name in typed} == typed, call
        assert "until" not in shown
        assert f"def {call.__name__}(" in inspect.getsource(call)


def test_keyword_that_no_settings_have_is_refused_as_python_does(device: cujit.Device) -> None:
    image: Any = np.zeros((8, 8), np.float32)
    with pytest.raises(TypeError, match=re.escape("texture() got an unexpected keyword argument 'filtered'")):
        device.texture(image, filtered="linear")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=re.escape("tensor_map() got an unexpected keyword argument 'swizzled'")):
        device.tensor_map(image, (8, 8), swizzled=32)  # type: ignore[call-arg]


def _classes() -> dict[str, dict[str, str]]:
    """Read the fields of every class of the package, with their types."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                found[ast.get_docstring(node) or "", node.name] = {
                    ast.unparse(each.target): ast.unparse(each.annotation) for each in fields
                }
    return {f"{name}: {text}": fields for (text, name), fields in found.items()}


def test_keywords_for_type_checkers_are_fields_of_settings() -> None:
    classes = _classes()
    by_name = {text.partition(":")[0]: fields for text, fields in classes.items()}
    found = 0
    for text, fields in classes.items():
        if match := re.search(r"(The f|F)ields of ``(\w+)``", text):
            settings, found = by_name[match[2]], found + 1
            if match[1] == "F":  # some of them
                settings = {name: kind for name, kind in settings.items() if name in fields}
            assert fields == settings, match[2]
    assert found >= 6


def test_constructor_that_takes_settings_shows_and_checks_them(tmp_path: Path) -> None:
    shown = inspect.signature(cujit.Cache).parameters
    assert {"root", "cap_bytes", "tiers"} <= {*shown}
    assert not {"is_on", "settings"} & {*shown}
    with pytest.raises(TypeError, match=re.escape("Cache() got an unexpected keyword argument 'cap'")):
        cujit.Cache(tmp_path, cap=3)  # type: ignore[call-arg]
