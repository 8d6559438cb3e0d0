"""Data classes and named tuples of our own mean what those of the standard library mean, and cost a process less."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import re
import runpy
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cujit.values
from cujit.values import typed
from cujit.values.json_text import only_value
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


@pytest.mark.parametrize("calls", ["few", "many"])
@pytest.mark.parametrize(("name", "args", "named"), _GIVEN)
def test_instance_equals_one_of_the_standard_library(
    name: str, args: tuple[Any, ...], named: dict[str, Any], calls: str
) -> None:
    classes = _classes(cujit.values)
    if calls == "many":  # then methods are written
        cujit.values.ready(*classes.values())
    theirs, ours = _THEIRS[name](*args, **named), classes[name](*args, **named)
    assert repr(ours) == repr(theirs)
    names = [one.name for one in dataclasses.fields(theirs)]
    assert [getattr(ours, one) for one in names] == [getattr(theirs, one) for one in names]
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours == classes[name](*args, **named)
    assert ours != theirs
    assert (type(ours).__hash__ is None) == (type(theirs).__hash__ is None)
    if type(theirs).__hash__ is not None:
        assert hash(ours) == hash(theirs)


@pytest.mark.parametrize(("name", "args", "named"), _REFUSED)
def test_invalid_argument_gets_the_same_error_message(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    said = []
    for classes in (_THEIRS, _OURS, _classes(cujit.values)):
        with pytest.raises((TypeError, ValueError)) as e:
            classes[name](*args, **named)
        said.append((e.type, str(e.value).replace("_classes.<locals>.", "")))
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("name", list(_OURS))
def test_signature_fields_and_parameters_are_available(name: str) -> None:
    theirs, ours = _THEIRS[name], _OURS[name]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert [(f.name, f.type, f.repr, f.compare, f.hash, f.init, f.kw_only) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.repr, f.compare, f.hash, f.init, f.kw_only) for f in dataclasses.fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__dataclass_params__.frozen == theirs.__dataclass_params__.frozen


def test_equality_compares_class_and_compared_fields() -> None:
    point, wider, itself = _OURS["Point"], _OURS["Wider"], _OURS["Itself"]
    assert point(1, seen={"a": 1}) == point(1)
    assert point(1) != point(2)
    assert point(1, loud=1.0) != point(1)
    assert hash(point(1, loud=1.0)) == hash(point(1))
    assert wider(1, "up") != point(1)
    assert itself(1) != itself(1)
    assert hash(_OURS["Own"](1)) == 7


@pytest.mark.parametrize("name", ["Point", "Wider", "Slotted", "Own"])
def test_frozen_value_is_immutable(name: str) -> None:
    value = _OURS[name](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        value.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del value.x
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        value.other = 2
    assert value == _OURS[name](1)


@pytest.mark.parametrize("name", _OURS)
def test_class_keeps_defaults_as_the_standard_library(name: str) -> None:
    ours, theirs = ({k: v for k, v in vars(made[name]).items() if k[0] != "_"} for made in (_OURS, _THEIRS))
    assert {k: v for k, v in ours.items() if not callable(v) and not inspect.isdatadescriptor(v)} == {
        k: v for k, v in theirs.items() if not callable(v) and not inspect.isdatadescriptor(v)
    }


def test_subclass_keeps_its_additions() -> None:
    called = _OURS["Called"]("abc")
    called.word = "abc"
    assert called.word == "abc"
    del called.word
    with pytest.raises(dataclasses.FrozenInstanceError):
        called.x = 2


def test_replace_creates_a_checked_copy() -> None:
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


def test_pattern_matching_works() -> None:
    match Pair(1, (2,)):
        case Pair(first, (second,)):
            assert (first, second) == (1, 2)


def test_standard_dataclass_may_extend_a_value_class() -> None:
    extended: Any = dataclasses.dataclass(frozen=True)(type("Extended", (Pairs,), {"__annotations__": {"z": "int"}}))
    assert repr(extended((), 3)) == "Extended(pairs=(), z=3)"


def test_concurrent_first_instances_are_all_created() -> None:
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


def test_creating_and_using_an_instance_imports_nothing() -> None:
    text = printed(
        """
        from __future__ import annotations
        import cujit, functools, sys
        before = {*sys.modules}
        from cujit.values import NamedTuple, dataclass, field, replace
        @dataclass(frozen=True)
        class Point:
            x: int
            y: list[int] = field(default_factory=list, compare=False)
        class Row(NamedTuple):
            x: int
            y: int = 2
        assert replace(Point(1), x=2) == Point(2) and hash(Point(3)) and repr(Point(4))
        assert Row(1)._replace(x=3) == (3, 2)
        print(*{*sys.modules} - before)
        """
    )
    assert text.split() == ["cujit.values"]


def _rows(base: Any) -> dict[str, Any]:
    """Make the same named tuples over ``typing.NamedTuple`` and over our own."""

    class Row(base):  # type: ignore[misc]
        """A row."""

        x: int
        y: str | None
        z: tuple[int, ...] = ()
        w: int = 4

        @property
        def double(self) -> int:
            return 2 * int(self.x)

        def __str__(self) -> str:
            return "row"

    class Wider(Row):
        more = 3

    class Empty(base):  # type: ignore[misc]
        pass

    return {"Row": Row, "Wider": Wider, "Empty": Empty}


_THEIR_ROWS, _OUR_ROWS = _rows(NamedTuple), _rows(cujit.values.NamedTuple)


@pytest.mark.parametrize("name", ["Row", "Wider"])
@pytest.mark.parametrize("args", [(1, None), (1, "a", (2,)), (1, "a", (2,), 5)])
@pytest.mark.parametrize("calls", ["few", "many"])
def test_named_tuple_equals_one_of_typing(name: str, args: tuple[Any, ...], calls: str) -> None:
    rows = _rows(cujit.values.NamedTuple)
    if calls == "many":  # then methods are written
        cujit.values.ready(*rows.values())
    theirs, ours = _THEIR_ROWS[name](*args), rows[name](*args)
    assert ours == theirs == tuple(ours)
    assert (repr(ours), str(ours), hash(ours)) == (repr(theirs), str(theirs), hash(theirs))
    assert (ours.x, ours.y, ours.z, ours.w, ours.double) == (theirs.x, theirs.y, theirs.z, theirs.w, theirs.double)
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(z=(7,)) == theirs._replace(z=(7,))
    assert type(ours._replace(z=(7,))) is type(ours)
    assert type(ours)._make(ours) == ours == type(ours)(**ours._asdict())
    assert copy.copy(ours) == copy.deepcopy(ours) == ours
    assert (ours._fields, ours._field_defaults) == (theirs._fields, theirs._field_defaults)
    assert type(ours).__match_args__ == type(theirs).__match_args__
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")
    assert type(ours).__doc__ == type(theirs).__doc__
    assert [*inspect.signature(type(ours)).parameters] == [*inspect.signature(type(theirs)).parameters]
    assert _OUR_ROWS["Empty"]() == ()


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"x": 2}), ((1, 2), {"q": 2})])
def test_named_tuple_errors_match_the_standard_library(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    said = []
    for rows in (_THEIR_ROWS, _OUR_ROWS):
        with pytest.raises(TypeError) as e:
            rows["Row"](*args, **named)
        said.append(str(e.value).replace("_rows.<locals>.", ""))
    assert said[0] == said[1]
    row = _OUR_ROWS["Row"](1, "a")
    with pytest.raises(TypeError, match="expected 4 arguments, got 1"):
        type(row)._make([1])
    with pytest.raises(ValueError, match="unexpected field names"):
        row._replace(q=1)
    with pytest.raises(AttributeError):
        row.x = 2


class Written(cujit.values.NamedTuple):
    first: int
    second: tuple[int, ...] = ()


def test_named_tuples_are_pickled_and_matched() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Written(1, (2,)), protocol)) == Written(1, (2,))
    match Written(1):
        case Written(first, second):
            assert (first, second) == (1, ())


def test_no_other_file_uses_the_standard_dataclasses() -> None:
    asks = re.compile(r"^\s*(?:from|import) dataclasses\b|^\s*from typing import .*\bNamedTuple\b", re.MULTILINE)
    found = [path.relative_to(_SOURCES) for path in _SOURCES.rglob("*.py") if asks.search(path.read_text())]
    assert found == [Path("values/__init__.py")]


def test_later_module_is_imported_on_first_attribute_access() -> None:
    printed(
        """
        import sys
        from cujit.values import later
        words = later("colorsys")
        assert "colorsys" not in sys.modules
        assert words.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
        assert words.rgb_to_hsv is sys.modules["colorsys"].rgb_to_hsv
        try:
            words.nothing
        except AttributeError:
            pass
        else:
            raise SystemExit("it has nothing of that name")
        """
    )


def test_type_checking_class_is_a_base_with_and_without_types() -> None:
    class Held(typed.Generic[T]):
        pass

    class Asked(typed.Protocol):
        def ask(self) -> int: ...

    class Answers(Asked):
        def ask(self) -> int:
            return 1

    assert (Held().__class__, Answers().ask(), Answers.__mro__[1]) == (Held, 1, Asked)
    assert typed.TypeVar("T", bound=int).__name__ == "T"


WRITTEN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(WRITTEN)
def test_json_is_parsed_as_by_the_standard_library(value: object) -> None:
    text = json.dumps(value)
    assert json.dumps(only_value(text)) == text


def test_json_is_parsed_without_the_c_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    reads = runpy.run_path(str(_SOURCES / "values/json_text.py"))["only_value"]
    assert reads('{"a": [1, 2.5, "b", null]}') == {"a": [1, 2.5, "b", None]}
    for wrong, why in (("", "Expecting value"), ("1 2", "more than one value"), ("[1", "Expecting ',' delimiter")):
        with pytest.raises(ValueError, match=why):
            reads(wrong)


@given(
    st.one_of(st.text(), WRITTEN.map(lambda value: json.dumps(value)[:-1]), WRITTEN.map(lambda v: f"{json.dumps(v)} 1"))
)
@example("[" * 100_000)
@example("1 ")
@example("1e999")
def test_invalid_json_is_refused_as_by_the_standard_library(text: str) -> None:
    try:
        value = only_value(text)
    except (ValueError, RecursionError):
        with pytest.raises((ValueError, RecursionError)):
            json.loads(f"{text}x" if text != text.strip() else text)
    else:
        assert json.dumps(value) == json.dumps(json.loads(text))
