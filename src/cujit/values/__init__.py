"""Data classes that cost a process nothing before it uses them, and mean what those of the standard library mean.

``dataclasses`` imports ``inspect``, ``ast`` and ``dis`` (8 ms) and compiles six methods for each class (0.3 to 1 ms),
which is much of what a process costs that has its kernel in the cache. Here a method is written when it is first
called, and is then as fast. What ``dataclasses`` and ``inspect`` ask of a class (``fields``, ``asdict``, ``signature``)
is there when they ask. There is no ``order``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing has work at its import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import dataclass, field, replace
    from typing import Any

__all__ = ["dataclass", "field", "replace"]

_OWN = "_cujit_fields"
"""The attribute of a class that has its fields, those of its bases first."""


class _Field(dict[str, "Any"]):
    """What ``field`` said of a field."""

    type: object = None


_UNSAID = _Field()


class _Twin:
    """An attribute that the standard library would give, taken from a data class of its own with the same fields."""

    def __init__(self, cls: type, name: str, options: Mapping[str, bool]) -> None:
        self.cls, self.name, self.options = cls, name, options

    def __get__(self, instance: object, owner: Any) -> object:
        is_signature = self.name == "__signature__"
        if is_signature and (instance is not None or owner.__init__ is not vars(self.cls)["__init__"]):
            raise AttributeError(self.name)
        # start-up: for who asks
        import dataclasses
        import inspect

        fields: Mapping[str, _Field] = vars(self.cls)[_OWN]
        body = {name: dataclasses.field(**said) for name, said in fields.items()}
        types = {name: said.type for name, said in fields.items()}
        plain = type(self.cls.__name__, (), {**body, "__annotations__": types, "__module__": self.cls.__module__})
        twin: type = dataclasses.dataclass(**self.options)(plain)
        if is_signature:
            return inspect.signature(twin)
        setattr(self.cls, self.name, getattr(twin, self.name))
        return getattr(twin, self.name)


def _later(cls: type, write: Callable[..., str], *given: object) -> None:
    """Give a class a method that is written when it is first called, unless it has its own."""
    name = f"__{write.__name__.strip('_')}__"
    if vars(cls).get(name) is not None:
        return

    def first(self: object, *args: object, **named: object) -> object:
        if vars(cls)[name] is first:
            scope: dict[str, Any] = {"_fields_": vars(cls)[_OWN], "_put_": object.__setattr__, "_unsaid_": _UNSAID}
            exec(write(cls, *given), scope)
            scope[name].__qualname__, scope[name].__module__ = first.__qualname__, first.__module__
            setattr(cls, name, scope[name])
        return vars(cls)[name](self, *args, **named)

    first.__name__, first.__qualname__, first.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, first)


def _init(cls: type, is_frozen: bool) -> str:
    positional, body = ["self"], []
    keywords: list[str] = []
    for name, said in vars(cls)[_OWN].items():
        is_given, value, parameter = said.get("init", True), name, name
        if "default" in said:
            parameter = f"{name}=_fields_['{name}']['default']"
        elif "default_factory" in said:
            value, parameter = f"_fields_['{name}']['default_factory']()", f"{name}=_unsaid_"
            value = f"{value} if {name} is _unsaid_ else {name}" if is_given else value
        if is_given:
            (keywords if said.get("kw_only") else positional).append(parameter)
        if is_given or "default_factory" in said:
            body.append(f"_put_(self, '{name}', {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    head = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    return f"def __init__({head}):\n {'; '.join(body) or 'pass'}"


def _compared(cls: type, of: str, how: str = "compare") -> str:
    fields = vars(cls)[_OWN].items()
    return f"({''.join(f'{of}.{name}, ' for name, said in fields if said.get(how, said.get('compare', True)))})"


def _eq(cls: type) -> str:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return f"def __eq__(self, other):\n return {same} if other.__class__ is self.__class__ else NotImplemented"


def _hash(cls: type) -> str:
    return f"def __hash__(self):\n return hash({_compared(cls, 'self', 'hash')})"


def _repr(cls: type) -> str:
    shown = [f"{name}={{self.{name}!r}}" for name, said in vars(cls)[_OWN].items() if said.get("repr", True)]
    return f"def __repr__(self):\n return f'{{self.__class__.__qualname__}}({', '.join(shown)})'"


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
    fields = {name: said for base in reversed(cls.__mro__) for name, said in vars(base).get(_OWN, {}).items()}
    for name, kind in cls.__annotations__.items():
        if kind.startswith("ClassVar"):
            continue
        given = vars(cls).get(name, _UNSAID)
        fields[name] = said = _Field(given if isinstance(given, _Field) else {"default": given})
        said.type = kind
        said.setdefault("kw_only", kw_only)
        if "default" in said:
            setattr(cls, name, said["default"])
        elif given is not _UNSAID:
            delattr(cls, name)
    setattr(cls, _OWN, fields)
    given = (name for name, said in fields.items() if said.get("init", True) and not said["kw_only"])
    cls.__match_args__, cls.__replace__ = (*given,), replace  # type: ignore[misc]


def _slotted(cls: Any) -> Any:
    fields = vars(cls)[_OWN]
    body = {name: of for name, of in vars(cls).items() if name not in {*fields, "__dict__", "__weakref__"}}
    return type(cls)(cls.__name__, cls.__bases__, {**body, "__slots__": (*fields,), "__qualname__": cls.__qualname__})


if not TYPE_CHECKING:

    def field(**said: object) -> _Field:
        """Say of a field what ``dataclasses.field`` says."""
        return _Field(said)

    def replace(value: object, /, **changes: object) -> object:
        """Make a value anew with some fields changed."""
        fields = getattr(type(value), _OWN).items()
        kept = {name: getattr(value, name) for name, said in fields if name not in changes and said.get("init", True)}
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
            setattr(cls, name, _Twin(cls, name, options))
        wanted = {_init: init, _repr: repr, _eq: eq, _hash: eq and frozen}
        for write in filter(wanted.get, wanted):
            _later(cls, write, *([frozen] if write is _init else []))
        if eq:
            cls.__hash__ = vars(cls).get("__hash__")
        if frozen:
            _freeze(cls)
        return cls
