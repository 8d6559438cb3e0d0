"""What a builder gives is a value, and a builder is told from another as far as that is possible."""

from __future__ import annotations

import enum
import functools
import pickle
from collections.abc import Callable

import pytest

from cujit.program import Options, compile
from cujit.registry.spec import ModuleSpec, code_text, described
from processes import printed

TEXT = 'extern "C" __global__ void k(int *p) { *p = 1; }'


def test_built_is_a_value() -> None:
    built = ModuleSpec(TEXT, ["k"], {"n.h": ""}, {"define": {"A": "1"}, "extra": ["-DB"]}, name="one.cu")
    same = ModuleSpec(TEXT, "k", {"n.h": ""}, Options(define={"A": "1"}, extra=["-DB"]), name="one.cu")
    assert built == same == pickle.loads(pickle.dumps(built))
    assert hash(built) == hash(same)
    assert built != ModuleSpec(TEXT, ["k"], {"n.h": ""}, {"define": {"A": "1"}}, name="one.cu")
    assert built != TEXT
    assert "one.cu" in repr(built)
    with pytest.raises(AttributeError, match="names"):
        built.names = ()


def test_difference_is_reported_with_its_place() -> None:
    built = ModuleSpec("a\nb\n", ["k"])
    image = compile(TEXT, to="ptx")
    assert built.difference(ModuleSpec("a\nb\n", ["k"])) == ""
    assert built.difference(ModuleSpec("a\nc\n", ["k"])) == "line 2 of its text: 'b' and 'c'"
    assert built.difference(ModuleSpec("a\nb\nc\n", ["k"])) == "its length: 2 lines and 3, 4 characters and 6"
    assert built.difference(ModuleSpec("a\nb\n", ["j"])) == "its names: ('k',) and ('j',)"
    assert built.difference(ModuleSpec("a\nb\n", ["k"], {"n.h": ""})) == "its headers"
    assert built.difference(ModuleSpec(image)) == "its kind"
    assert ModuleSpec(image).difference(ModuleSpec(image.data, {"j": "k"})) != ""


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Held:
    """A builder of which nothing can be told but its type."""

    def __init__(self, held: int) -> None:
        self.held = held

    def __call__(self) -> int:
        return self.held


def _with(captured: object) -> Callable[[], object]:
    return lambda: captured


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        (None, 0),
        ((1, 2), [1, 2]),
        ((1, (2,)), (1, (3,))),
        (tuple(range(30)), tuple(range(31))),
        (Colour.RED, Colour.BLUE),
        (int, float),
        (len, _with(1)),
        (_with(1), _with(2)),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_plain_captured_values_distinguish_builders(a: object, b: object) -> None:
    assert described(_with(a)) == described(_with(a))
    assert described(_with(a)) != described(_with(b))
    assert code_text(described(_with(a))) != code_text(described(_with(b)))


def test_nan_is_one_value_and_mutable_objects_count_by_type() -> None:
    assert described(_with([1])) == described(_with([2, 3]))
    assert described(_with({"a": 1})) == described(_with({}))
    assert described(_with(float("nan"))) == described(_with(float("nan")))
    assert described(_with(object())) == described(_with(object()))


def test_code_defaults_and_wrappers_distinguish_builders() -> None:
    assert described(lambda: 1) != described(lambda: 2)
    assert described(lambda n=1: n) != described(lambda n=2: n)
    assert described(functools.lru_cache(_with(1))) != described(functools.lru_cache(_with(2)))
    assert described([1].pop) == described([2].pop)
    assert described(Held(1)) == described(Held(2))
    assert described(Held(1).__call__) == described(Held(2).__call__)


def test_self_referential_builder_is_described() -> None:
    def builder() -> object:
        return builder

    assert described(builder) == described(builder)


def test_description_is_equal_in_every_process() -> None:
    builder = "lambda n=(1, 2.5), *, m=b'x': n in {'x', 'y', 'z', None}"
    code = f"from cujit.registry.spec import *\nprint(code_text(described({builder})))"
    texts = {printed(code, environment={"PYTHONHASHSEED": seed}) for seed in ("1", "2", "3")}
    assert len(texts) == 1
    assert "0x" not in texts.pop()
