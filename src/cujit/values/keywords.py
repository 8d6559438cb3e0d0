"""Keywords of a public function, or of a class, that are the fields of a settings class."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cujit.values import later
from cujit.values.typed import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import inspect
else:
    inspect = later("inspect")  # start-up: a hit of the cache shows no signature

_Call = TypeVar("_Call", bound=Callable[..., Any])
_Settings = TypeVar("_Settings")


def has_keywords(kind: type, hidden: Iterable[str] = ()) -> Callable[[_Call], _Call]:
    """Return a decorator that shows the fields of ``kind``, but for ``hidden`` ones, in the signature of a function.

    ``help`` and the API page then list them. The function takes them as ``**more`` and reads them by ``take``. Other
    keywords, such as the options of the compiler, stay in ``**more``.
    """

    def mark(call: _Call) -> _Call:
        call.__wrapped__ = _KeywordSignature(call, kind, hidden)  # type: ignore[attr-defined]
        return call

    return mark


class _KeywordSignature:
    """What ``inspect.signature`` finds behind a function: its signature with the fields of ``kind``.

    It is computed when it is read, so that the function costs no start-up time.
    """

    def __init__(self, call: Callable[..., Any], kind: type, hidden: Iterable[str]) -> None:
        self._call = call
        self._kind = kind
        self._hidden = frozenset(hidden)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function without this, for ``inspect.getsource`` and ``typing.get_type_hints``."""
        call: Any = self._call
        own = type(call)(call.__code__, call.__globals__, call.__name__, call.__defaults__, call.__closure__)
        own.__kwdefaults__ = call.__kwdefaults__
        own.__annotations__ = call.__annotations__
        return own  # type: ignore[no-any-return]

    @property
    def __signature__(self) -> inspect.Signature:
        return _with_fields(inspect.signature(self.__wrapped__), self._kind, self._hidden)


class ClassKeywords:
    """The ``__signature__`` of a class whose constructor takes the fields of ``kind``, but for ``hidden`` ones.

    It is computed when it is read, so that the class costs no start-up time.
    """

    def __init__(self, kind: type, hidden: Iterable[str] = ()) -> None:
        self._kind = kind
        self._hidden = frozenset(hidden)

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        whole = inspect.signature(owner.__init__)  # type: ignore[misc]
        _, *parameters = whole.parameters.values()
        return _with_fields(whole.replace(parameters=parameters), self._kind, self._hidden)


def _with_fields(signature: inspect.Signature, kind: type, hidden: Iterable[str] = ()) -> inspect.Signature:
    fields = inspect.signature(kind).parameters.values()
    shown = [field.replace(kind=inspect.Parameter.KEYWORD_ONLY) for field in fields if field.name not in hidden]
    *given, more = signature.parameters.values()
    return signature.replace(parameters=[*given, *shown, *([more] if more.name == "more" else [])])


def take(kind: type[_Settings], given: Any, call: Callable[..., Any], *, is_all: bool = True) -> _Settings:
    """Take the fields of ``kind`` out of the keywords of a call, and return them as settings.

    Raises:
        TypeError: with ``is_all``, a keyword is left.
    """
    fields: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    found = {name: given.pop(name) for name in fields if name in given}
    if is_all and given:
        raise TypeError(f"{call.__name__}() got an unexpected keyword argument '{next(iter(given))}'")
    return kind(**found)
