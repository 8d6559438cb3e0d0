"""Data classes and named tuples that cost a process nothing before it uses them, and mean what the standard ones mean.

``dataclasses`` imports ``inspect``, ``ast`` and ``dis`` (8 ms) and compiles six methods for each class (0.3 to 1 ms);
``typing.NamedTuple`` compiles one, and each annotation (0.1 to 0.2 ms). That is much of what a process costs that has
its kernel in the cache. Here a method is written when it is called often, and is then as fast. What ``dataclasses`` and
``inspect`` ask of a class (``fields``, ``asdict``, ``signature``) is there when they ask. There is no ``order``.
"""

from __future__ import annotations

import importlib
from _collections import _tuplegetter  # type: ignore[import-not-found]  # what collections.namedtuple reads fields by

TYPE_CHECKING = False  # as type checkers know it; typing has work at its import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from dataclasses import dataclass, field, replace
    from typing import Any, NamedTuple, TypeVar

    _K = TypeVar("_K")
    _V = TypeVar("_V")

__all__ = ["NamedTuple", "attributes", "closure", "dataclass", "field", "group_by", "later", "ready", "replace"]


class _Later:
    """A module that is imported when somebody first takes something of it."""

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        taken = getattr(importlib.import_module(self._module), name)
        setattr(self, name, taken)
        return taken


def later(name: str) -> Any:
    """Return a module of the standard library that few processes need. It is imported when it is first used.

    Example::

        if TYPE_CHECKING:
            import re
        else:
            re = later("re")
    """
    return _Later(name)


def attributes(value: object, names: str) -> dict[str, Any]:
    """Return attributes of a value as JSON values, under their own names."""
    return {name: getattr(value, name) for name in names.split()}


def closure(start: Iterable[_K], step: Callable[[_K], Iterable[_K]]) -> set[_K]:
    """Collect what some lead to step by step, themselves included."""
    found = set(start)
    todo = list(found)
    while todo:
        for each in step(todo.pop()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def group_by(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Put the values together that have one key; keys and values are in the order in which they came."""
    found: dict[_K, list[_V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


_OWN = "_cujit_fields"
"""The attribute of a class that has its fields, those of its bases first."""


class _Field(dict[str, "Any"]):
    """What ``field`` said of a field."""

    type: object = None


_UNSAID = _Field()


class _StdlibTwin:
    """An attribute that the standard library would give, taken from a data class of its own with the same fields."""

    def __init__(self, cls: type, name: str, options: Mapping[str, bool]) -> None:
        self.cls, self.name, self.options = cls, name, options

    def __get__(self, instance: object, owner: Any) -> object:
        is_signature = self.name == "__signature__"
        if is_signature and (instance is not None or owner.__init__ is not self.cls.__init__):  # type: ignore[misc]
            raise AttributeError(self.name)
        # start-up: for who asks
        import dataclasses
        import inspect

        fields: Mapping[str, _Field] = vars(self.cls)[_OWN]
        body = {name: dataclasses.field(**spec) for name, spec in fields.items()}
        types = {name: spec.type for name, spec in fields.items()}
        plain = type(self.cls.__name__, (), {**body, "__annotations__": types, "__module__": self.cls.__module__})
        twin: type = dataclasses.dataclass(**self.options)(plain)
        if is_signature:
            return inspect.signature(twin)
        setattr(self.cls, self.name, getattr(twin, self.name))
        return getattr(twin, self.name)


_SELDOM = 16
"""Calls until a method is written, which takes as long as 20 of them take without that."""


def _later(cls: type, write: Callable[..., str], *given: object) -> None:
    """Add a method to a class that is written when it is called often, unless it has its own."""
    name = f"__{write.__name__.strip('_')}__"
    written: Any = None
    left = _SELDOM
    if vars(cls).get(name) is not None:
        return

    def make() -> Any:
        nonlocal written
        if written is None:
            scope: dict[str, Any] = {"_fields_": vars(cls)[_OWN], "_put_": object.__setattr__, "_unsaid_": _UNSAID}
            scope["_tuple_"] = tuple.__new__
            exec(write(cls, *given), scope)
            scope[name].__qualname__, scope[name].__module__ = first.__qualname__, first.__module__
            setattr(cls, name, staticmethod(scope[name]) if name == "__new__" else scope[name])
            written = scope[name]
        return written

    def first(self: object, *args: object, **named: object) -> object:
        nonlocal left
        left -= 1
        unwritten = _UNWRITTEN.get(write) if left > 0 else None
        done = _UNSAID if unwritten is None else unwritten(cls, self, args, named, *given)
        return make()(self, *args, **named) if done is _UNSAID else done

    first.make = make  # type: ignore[attr-defined]
    first.__name__, first.__qualname__, first.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, staticmethod(first) if name == "__new__" else first)


def ready(*classes: type) -> None:
    """Write the methods of classes now that would be written when they are first called, but for ``__repr__``.

    It is for a process that waits for something else, and will need them.
    """
    for cls in classes:
        for name in ("__init__", "__new__", "__eq__", "__hash__"):
            method = vars(cls).get(name)
            make = getattr(getattr(method, "__func__", method), "make", None)
            if make is not None:
                make()


def _head(name: str, cls: type, *leading: str) -> str:
    """Write the first line of a method that takes the fields."""
    positional, keywords = [*leading], ["*"]
    for field, spec in vars(cls)[_OWN].items():
        default = f"=_fields_['{field}']['default']" if "default" in spec else ""
        default = default or "=_unsaid_" * ("default_factory" in spec)
        if spec.get("init", True):
            (keywords if spec["kw_only"] else positional).append(f"{field}{default}")
    return f"def {name}({', '.join(positional + keywords * (len(keywords) > 1))}):\n "


def _init(cls: type, is_frozen: bool) -> str:
    body = []
    for name, spec in vars(cls)[_OWN].items():
        value, is_given = name, spec.get("init", True)
        if "default_factory" in spec:
            value = f"_fields_['{name}']['default_factory']()"
            value = f"{value} if {name} is _unsaid_ else {name}" if is_given else value
        if is_given or "default_factory" in spec:
            body.append(f"_put_(self, '{name}', {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return _head("__init__", cls, "self") + ("; ".join(body) or "pass")


def _new(cls: type) -> str:
    return _head("__new__", cls, "_cls") + f"return _tuple_(_cls, ({', '.join([*vars(cls)[_OWN], ''])}))"


def _compared(cls: type, of: str, how: str = "compare") -> str:
    fields = vars(cls)[_OWN].items()
    return f"({''.join(f'{of}.{name}, ' for name, spec in fields if spec.get(how, spec.get('compare', True)))})"


def _eq(cls: type) -> str:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return f"def __eq__(self, other):\n return {same} if other.__class__ is self.__class__ else NotImplemented"


def _hash(cls: type) -> str:
    return f"def __hash__(self):\n return hash({_compared(cls, 'self', 'hash')})"


def _repr(cls: type) -> str:
    shown = [f"{name}={{self.{name}!r}}" for name, spec in vars(cls)[_OWN].items() if spec.get("repr", True)]
    return f"def __repr__(self):\n return f'{{self.__class__.__qualname__}}({', '.join(shown)})'"


# The same methods for the first few calls. What is not to be taken is ``_UNSAID``: what is written refuses it.


def _values(cls: type, args: tuple[object, ...], named: Mapping[str, object]) -> dict[str, object] | None:
    """Return the fields their values; None where a call has to be refused."""
    fields, names = vars(cls)[_OWN], vars(cls)["__match_args__"]
    given = {**dict(zip(names, args)), **named}  # noqa: B905 - lengths are compared below
    if len(given) != len(args) + len(named):
        return None
    values = {}
    for name, spec in fields.items():
        is_given = spec.get("init", True)
        if is_given and name in given:
            values[name] = given.pop(name)
        elif "default_factory" in spec:
            values[name] = spec["default_factory"]()
        elif is_given:
            if "default" not in spec:
                return None
            values[name] = spec["default"]
    return None if given else values


def _init_unwritten(cls: type, self: Any, args: tuple[object, ...], named: Any, is_frozen: bool) -> object:
    values = _values(cls, args, named)
    if values is None:
        return _UNSAID
    put = object.__setattr__ if is_frozen else setattr
    for name, value in values.items():
        put(self, name, value)
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return None


def _new_unwritten(cls: type, made: Any, args: tuple[object, ...], named: Any) -> object:
    values = _values(cls, args, named)
    return _UNSAID if values is None else tuple.__new__(made, values.values())


def _of(cls: type, value: object, how: str = "compare") -> tuple[object, ...]:
    fields = vars(cls)[_OWN].items()
    return tuple(getattr(value, name) for name, spec in fields if spec.get(how, spec.get("compare", True)))


def _eq_unwritten(cls: type, self: object, args: tuple[object, ...], named: Any) -> object:
    if len(args) != 1 or named:
        return _UNSAID
    return _of(cls, self) == _of(cls, args[0]) if args[0].__class__ is self.__class__ else NotImplemented


def _hash_unwritten(cls: type, self: object, args: tuple[object, ...], named: Any) -> object:
    return _UNSAID if args or named else hash(_of(cls, self, "hash"))


_UNWRITTEN: Mapping[object, Callable[..., object]] = {
    _init: _init_unwritten,
    _new: _new_unwritten,
    _eq: _eq_unwritten,
    _hash: _hash_unwritten,
}


def _freeze(cls: Any) -> None:
    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in vars(cls)[_OWN]:
            from dataclasses import FrozenInstanceError  # start-up: for an error

            raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field '{name}'")
        getattr(super(cls, self), "__setattr__" if value else "__delattr__")(name, *value)

    def restore(self: object, state: Any) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)

    cls.__setattr__ = cls.__delattr__ = refuse
    if "__slots__" in vars(cls):
        cls.__setstate__ = restore


def _collect(cls: Any, kw_only: bool) -> None:
    fields = {name: spec for base in reversed(cls.__mro__) for name, spec in vars(base).get(_OWN, {}).items()}
    for name, kind in cls.__annotations__.items():
        if kind.startswith("ClassVar"):
            continue
        given = vars(cls).get(name, _UNSAID)
        fields[name] = spec = _Field(given if isinstance(given, _Field) else {"default": given})
        spec.type = kind
        spec.setdefault("kw_only", kw_only)
        if "default" in spec:
            setattr(cls, name, spec["default"])
        elif given is not _UNSAID:
            delattr(cls, name)
    setattr(cls, _OWN, fields)
    given = (name for name, spec in fields.items() if spec.get("init", True) and not spec["kw_only"])
    cls.__match_args__, cls.__replace__ = (*given,), replace  # type: ignore[misc]


def _slotted(cls: Any) -> Any:
    fields = vars(cls)[_OWN]
    body = {name: of for name, of in vars(cls).items() if name not in {*fields, "__dict__", "__weakref__"}}
    return type(cls)(cls.__name__, cls.__bases__, {**body, "__slots__": (*fields,), "__qualname__": cls.__qualname__})


if not TYPE_CHECKING:

    def field(**spec: object) -> _Field:
        """Describe a field as ``dataclasses.field`` does."""
        return _Field(spec)

    def replace(value: object, /, **changes: object) -> object:
        """Make a value anew with some fields changed."""
        fields = getattr(type(value), _OWN).items()
        kept = {name: getattr(value, name) for name, spec in fields if name not in changes and spec.get("init", True)}
        return type(value)(**kept, **changes)

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, init=True, kw_only=False, slots=False):
        """Make a data class; the words mean what they mean to ``dataclasses.dataclass``."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, init=init, kw_only=kw_only, slots=slots)
        _collect(cls, kw_only)
        if slots:
            cls = _slotted(cls)
        options = {"frozen": frozen, "eq": eq, "repr": repr, "init": init}
        for name in ("__dataclass_fields__", "__dataclass_params__", *(["__signature__"] if init else [])):
            setattr(cls, name, _StdlibTwin(cls, name, options))
        wanted = {_init: init, _repr: repr, _eq: eq, _hash: eq and frozen}
        for write in filter(wanted.get, wanted):
            _later(cls, write, *([frozen] if write is _init else []))
        if eq:
            cls.__hash__ = vars(cls).get("__hash__")
        if frozen:
            _freeze(cls)
        return cls

    class _Slotless(type):
        def __new__(mcls, name, bases, body):
            is_row = not any(hasattr(base, "_fields") for base in bases)
            return super().__new__(mcls, name, bases, {**body, "__slots__": ()} if is_row else body)

    class NamedTuple(tuple, metaclass=_Slotless):
        """A tuple with names, as ``typing.NamedTuple``; a class made of one is again its base."""

        def __init_subclass__(cls):
            if NamedTuple in cls.__bases__:
                _collect(cls, kw_only=False)
                cls._fields = tuple(vars(cls)[_OWN])
                cls._field_defaults = {name: s["default"] for name, s in vars(cls)[_OWN].items() if "default" in s}
                for at, name in enumerate(cls._fields):
                    setattr(cls, name, _tuplegetter(at, ""))
                cls.__signature__ = _StdlibTwin(cls, "__signature__", {})
                _later(cls, _new)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"got unexpected field names: {[*changes]}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"

        def __getnewargs__(self):
            return tuple(self)
