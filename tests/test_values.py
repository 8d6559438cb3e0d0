"""Data classes of our own mean what those of the standard library mean, and cost a process less."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

import pytest

import cujit.values
from processes import printed

T = TypeVar("T")
_SOURCES = Path(__file__).parents[1] / "src/cujit"


def _classes(made_by: ModuleType) -> dict[str, Any]:
    """Make the same classes by the standard library and by our own."""
    dataclass, field = made_by.dataclass, made_by.field

    @dataclass(frozen=True)
    class Point:
        x: int
        y: str = "up"
        seen: dict[str, int] = field(default_factory=dict, compare=False)
        weight: int = field(default=4, kw_only=True, repr=False)
        loud: float = field(default=0.5, hash=False)
        kind: ClassVar[str] = "plain"

        def __post_init__(self) -> None:
            if self.x == 13:
                raise ValueError("not 13")

    @dataclass(frozen=True)
    class Wider(Point):
        z: int = 5
        y: str = "down"

    class Called(Point):
        def __init__(self, word: str) -> None:
            super().__init__(len(word))

    @dataclass
    class Changing(Generic[T]):
        item: T
        rest: list[T] = field(default_factory=list)
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            self.twice = 2

    @dataclass(eq=False)
    class Itself:
        x: int

    @dataclass(frozen=True, slots=True)
    class Slotted:
        x: int
        y: tuple[int, ...] = ()

    @dataclass(frozen=True, kw_only=True)
    class Named:
        x: int
        y: int = 2

    @dataclass(frozen=True, repr=False)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Empty:
        pass

    return {name: one for name, one in locals().items() if isinstance(one, type)}


_THEIRS, _OURS = _classes(dataclasses), _classes(cujit.values)

_GIVEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (1,), {}),
    ("Point", (1, "y", {"a": 1}, 2.5), {"weight": 9}),
    ("Point", (), {"loud": 1.0, "x": 3}),
    ("Wider", (1,), {"z": 8, "weight": 1}),
    ("Wider", (1, "a", {}, 0.1, 2), {}),
    ("Called", ("abc",), {}),
    ("Changing", ([1],), {}),
    ("Changing", (1, [2]), {}),
    ("Slotted", (1,), {}),
    ("Slotted", (1,), {"y": (2,)}),
    ("Named", (), {"x": 1}),
    ("Own", (1,), {}),
    ("Empty", (), {}),
]

_REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (), {}),
    ("Point", (13,), {}),
    ("Point", (1, 2, 3, 4, 5), {}),
    ("Point", (1,), {"x": 2}),
    ("Point", (1,), {"z": 2}),
    ("Changing", (1,), {"twice": 4}),
    ("Named", (1,), {}),
]


@pytest.mark.parametrize(("name", "args", "named"), _GIVEN)
def test_an_instance_is_what_the_standard_library_makes(
    name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    theirs, ours = (classes[name](*args, **named) for classes in (_THEIRS, _OURS))
    assert repr(ours) == repr(theirs)
    names = [one.name for one in dataclasses.fields(theirs)]
    assert [getattr(ours, one) for one in names] == [getattr(theirs, one) for one in names]
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours == _OURS[name](*args, **named)
    assert (type(ours).__hash__ is None) == (type(theirs).__hash__ is None)
    if type(theirs).__hash__ is not None:
        assert hash(ours) == hash(theirs)


@pytest.mark.parametrize(("name", "args", "named"), _REFUSED)
def test_what_it_does_not_take_is_refused_in_the_same_words(
    name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    said = []
    for classes in (_THEIRS, _OURS):
        with pytest.raises((TypeError, ValueError)) as e:
            classes[name](*args, **named)
        said.append((e.type, str(e.value).replace("_classes.<locals>.", "")))
    assert said[0] == said[1]


@pytest.mark.parametrize("name", list(_OURS))
def test_who_asks_finds_signature_fields_and_parameters(name: str) -> None:
    theirs, ours = _THEIRS[name], _OURS[name]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert [(f.name, f.type, f.repr, f.compare, f.hash, f.init, f.kw_only) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.repr, f.compare, f.hash, f.init, f.kw_only) for f in dataclasses.fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__dataclass_params__.frozen == theirs.__dataclass_params__.frozen


def test_equal_are_values_of_one_class_that_agree_in_what_is_compared() -> None:
    point, wider, itself = _OURS["Point"], _OURS["Wider"], _OURS["Itself"]
    assert point(1, seen={"a": 1}) == point(1)
    assert point(1) != point(2)
    assert point(1, loud=1.0) != point(1)
    assert hash(point(1, loud=1.0)) == hash(point(1))
    assert wider(1, "up") != point(1)
    assert itself(1) != itself(1)
    assert hash(_OURS["Own"](1)) == 7


@pytest.mark.parametrize("name", ["Point", "Wider", "Slotted", "Own"])
def test_a_frozen_value_does_not_change(name: str) -> None:
    value = _OURS[name](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        value.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del value.x
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        value.other = 2
    assert value == _OURS[name](1)


def test_a_subclass_keeps_what_else_it_wants() -> None:
    called = _OURS["Called"]("abc")
    called.word = "abc"
    assert called.word == "abc"
    del called.word
    with pytest.raises(dataclasses.FrozenInstanceError):
        called.x = 2


def test_replacing_makes_a_value_anew_and_checks_it() -> None:
    replaces = [cujit.values.replace, dataclasses.replace]
    for replace in [*replaces, vars(copy)["replace"]] if sys.version_info >= (3, 13) else replaces:
        old = _OURS["Wider"](1, weight=7)
        assert replace(old, z=1) == _OURS["Wider"](1, z=1, weight=7)
        with pytest.raises(ValueError, match="not 13"):
            replace(old, x=13)
        with pytest.raises(TypeError):
            replace(old, nothing=1)
        assert replace(_OURS["Changing"](1), item=2).item == 2


@cujit.values.dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: tuple[int, ...] = ()


@cujit.values.dataclass(frozen=True)
class Pairs:
    pairs: tuple[Pair, ...]


def test_copies_and_pickles_are_equal() -> None:
    value = Pairs((Pair(1), Pair(2, (3,))))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert not hasattr(value.pairs[0], "__dict__")


def test_a_pattern_takes_a_value_apart() -> None:
    match Pair(1, (2,)):
        case Pair(first, (second,)):
            assert (first, second) == (1, 2)


def test_a_data_class_of_the_standard_library_may_be_made_of_one() -> None:
    extended: Any = dataclasses.dataclass(frozen=True)(type("Extended", (Pairs,), {"__annotations__": {"z": "int"}}))
    assert repr(extended((), 3)) == "Extended(pairs=(), z=3)"


def test_threads_that_make_the_first_instances_at_once_all_get_theirs() -> None:
    for _ in range(20):
        made: list[int] = []
        point = _classes(cujit.values)["Point"]
        barrier = threading.Barrier(4)

        def make(x: int, point: Any = point, barrier: Any = barrier, made: Any = made) -> None:
            barrier.wait()
            made.append(point(x).x)

        threads = [threading.Thread(target=make, args=(x,)) for x in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == [0, 1, 2, 3]


def test_making_and_using_one_imports_nothing_else() -> None:
    text = printed(
        """
        from __future__ import annotations
        import cujit, sys
        before = {*sys.modules}
        from cujit.values import dataclass, field, replace
        @dataclass(frozen=True)
        class Point:
            x: int
            y: list[int] = field(default_factory=list, compare=False)
        assert replace(Point(1), x=2) == Point(2) and hash(Point(3)) and repr(Point(4))
        print(*{*sys.modules} - before)
        """
    )
    assert text.split() == ["cujit.values"]


def test_no_other_file_asks_the_standard_library_for_data_classes() -> None:
    asks = re.compile(r"^\s*(?:from|import) dataclasses\b", re.MULTILINE)
    found = [path.relative_to(_SOURCES) for path in _SOURCES.rglob("*.py") if asks.search(path.read_text())]
    assert found == [Path("values/__init__.py")]
