"""The page ``docs/api.md``: every public name with its signature, arguments, errors, methods and an example.

``python tools/reference.py api > docs/api.md`` writes it. Docstrings say it all; the tests run their examples, with the
names that the page shows above them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

__all__ = ["PRELUDE", "Doc", "api_page", "documented", "first_sentence"]

DOCS = Path(__file__).parents[1] / "docs"

PRELUDE = '''\
from pathlib import Path
import cujit
import numpy as np

CODE = """
template <typename T> __global__ void axpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__device__ float bias;
"""
device = cujit.cpu()
module = cujit.jit(CODE, names=["axpy<float>"], device=device)
kernel = module["axpy<float>"]
x, y = device.array(np.ones(1000, np.float32)), device.zeros(1000, np.float32)

ptx = cujit.compile(CODE, names=["axpy<float>"], arch="compute_80")
cubin = cujit.compile(CODE, names=["axpy<float>"], arch="sm_90")
fatbin = cujit.build(CODE, ["sm_80", "sm_90", "compute_80"], names=["axpy<float>"])
'''
"""What every example has."""

INNER = {
    "ModuleSpec": "difference with_options",
    "Cache": "adopt after_fork claim closures discard find get_or_make hit holds keep of pinned why",
    "Coverage": "watch",
    "Device": "allocate copied download encode_tensor_map fill load order ordinal_of queue read textures upload",
    "Dim3": "of place",
    "Entry": "all_of",
    "Options": "only render",
    "Request": "check for_arch of parts",
    "Source": "compiler_headers line of program_name",
    "Stream": "allocate copy download fill upload",
    "Trace": "keep missing take watch",
    "farm.Failure": "of",
    "registry.Registry": "after_fork",
    "tuning.TuningRecord": "of_json to_json",
}
"""Methods that other packages of cujit call, and users have no use for."""

_HEAD = """\
# API reference

Public functions and classes are attributes of `cujit`: `import cujit`, then call `cujit.build(…)`. Result types are in
submodules such as `cujit.inspection`, which Python imports on first use. `help(cujit.build)` prints the same text as
this page.

See also [Errors](errors.md) and [Compiler options](options.md).

The examples on this page assume that you have run these lines:

"""
_TABLE = "\n| name | what it is |\n|---|---|\n"


@dataclass(frozen=True)
class Doc:
    """A public thing and its docstring, taken apart."""

    name: str
    thing: object
    text: str
    owner: type | None = None

    @property
    def is_callable(self) -> bool:
        """Whether it is a function or a method."""
        return inspect.isfunction(self.thing)

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, but for ``self``, ``cls`` and the options ``**more``."""
        if not self.is_callable:
            return []
        assert callable(self.thing)
        given = [str(p) for p in inspect.signature(self.thing).parameters.values()]
        names = [re.split("[:=]", text)[0].strip().lstrip("*") for text in given if not text.startswith("**more")]
        kept = [name for name in names if name not in ("self", "cls")]
        return kept[1:] if self.is_borrowed else kept

    @property
    def is_borrowed(self) -> bool:
        """Whether a function of a module became this method: its first parameter is the object."""
        return self.owner is not None and self.is_callable and "." not in getattr(self.thing, "__qualname__", "")

    def section(self, title: str) -> str:
        """Give the text of ``Args``, ``Raises`` or ``Example``, without its indent; "" if there is none."""
        found = re.search(rf"^{title}::?\n(.*?)(?=^\S|\Z)", self.text, re.DOTALL | re.MULTILINE)
        return inspect.cleandoc("\n" + found[1]) if found else ""

    @property
    def items(self) -> dict[str, str]:
        """What ``Args`` says of each parameter."""
        return dict(_items(self.section("Args")))

    @property
    def prose(self) -> str:
        """What is said before the sections."""
        return re.split(r"^(?:Args|Raises|Example)::?\n", self.text, maxsplit=1, flags=re.MULTILINE)[0].strip()


def documented() -> Iterator[Doc]:
    """Give every public name, those of ``cujit`` first and then those of its packages, after a class its methods."""
    root = sys.modules["cujit"]
    for name in dir(root):
        thing = getattr(root, name)
        if not name.startswith("_") and not isinstance(thing, ModuleType):
            yield from _documented(name, thing)
    for room in dir(root):
        module = getattr(root, room)
        if isinstance(module, ModuleType) and room != "errors":
            for name in module.__all__:
                if getattr(module, name) is not getattr(root, name, None):
                    yield from _documented(f"{room}.{name}", getattr(module, name))


def _documented(name: str, thing: object) -> Iterator[Doc]:
    yield Doc(name, thing, inspect.cleandoc(thing.__doc__ or ""))
    if inspect.isclass(thing):
        yield from _members(name, thing)


def _members(name: str, kind: type) -> Iterator[Doc]:
    for key in dir(kind):
        getattr(kind, key, None)  # a method that another module defines is a function from now on
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("cujit.")]
    found = {key: value for base in ours for key, value in vars(base).items()}
    inner = INNER.get(name, "").split()
    for key, value in sorted(found.items()):
        if key in inner or (key.startswith("_") and key not in ("__getitem__", "__call__")):
            continue
        inside = getattr(value, "__func__", value)
        if inspect.isfunction(inside) or isinstance(value, property):
            yield Doc(f"{name}.{key}", inside, inspect.cleandoc(inside.__doc__ or ""), kind)


def api_page() -> str:
    """Write the page."""
    whole = [*documented()]
    flat = [doc for doc in whole if doc.owner is None and "." not in doc.name]
    page = f"{_HEAD}```python\n{PRELUDE}```\n" + _table(flat) + "".join(_whole(doc, whole, 2) for doc in flat)
    root = sys.modules["cujit"]
    for room in dir(root):
        names = [doc for doc in whole if doc.owner is None and doc.name.startswith(f"{room}.")]
        if names:
            page += f"\n## cujit.{room}\n\n{first_sentence(getattr(root, room))}\n"
            page += _table(names) + "".join(_whole(doc, whole, 3) for doc in names)
    return page


def _table(docs: list[Doc]) -> str:
    return _TABLE + "".join(f"| [`cujit.{d.name}`](#{_anchor(d)}) | {first_sentence(d.thing)} |\n" for d in docs)


def _whole(doc: Doc, whole: list[Doc], level: int) -> str:
    """Write a name, and of a class its attributes and methods."""
    page = _entry(doc, level) + _fields(doc) + _properties(doc, whole)
    return page + "".join(_entry(one, level + 1) for one in whole if one.owner is doc.thing and one.is_callable)


def _title(doc: Doc) -> str:
    kind = "class " if inspect.isclass(doc.thing) else ""
    return f"{kind}cujit.{doc.name.replace('.__getitem__', '[…]').replace('.__call__', '(…)')}"


def _anchor(doc: Doc) -> str:
    """Give the place of a title, as GitHub and MkDocs both make it."""
    return _title(doc).lower().replace(" ", "-").replace(".", "")


def _entry(doc: Doc, level: int) -> str:
    """Write a function, a class or a method."""
    page = f"\n{'#' * level} {_title(doc)}\n\n"
    if doc.is_callable or _is_made_by_users(doc):
        page += f"```py\n{_signature(doc)}\n```\n\n"
    page += _markdown(doc.prose) + "\n"
    for title, head in (("Args", "argument"), ("Raises", "raises")):
        rows = "".join(f"| `{name}` | {_cell(text)} |\n" for name, text in _items(doc.section(title)))
        page += f"\n| {head} | |\n|---|---|\n{rows}" if rows else ""
    example = doc.section("Example")
    return page + (f"\n```python\n{example}\n```\n" if example else "")


def _is_made_by_users(doc: Doc) -> bool:
    return inspect.isclass(doc.thing) and bool(doc.items) and not issubclass(doc.thing, Enum)


def _fields(doc: Doc) -> str:
    """List the values of an enumeration, or what a value consists of."""
    if not inspect.isclass(doc.thing):
        return ""
    if issubclass(doc.thing, Enum):
        return "\n" + ", ".join(f"`{one.name}`" for one in doc.thing) + "\n"
    known = getattr(doc.thing, "__dataclass_fields__", getattr(doc.thing, "_fields", None)) or ()
    types = {name: doc.thing.__annotations__.get(name) for name in known if not name.startswith("_")}
    rows = "".join(f"{name}: {getattr(kind, '__forward_arg__', kind)}\n" for name, kind in types.items())
    return f"\nIts fields:\n\n```py\n{rows}```\n" if rows and not _is_made_by_users(doc) else ""


def _properties(doc: Doc, whole: list[Doc]) -> str:
    own = [one for one in whole if one.owner is doc.thing and isinstance(one.thing, property)]
    rows = "".join(f"| `{one.name.rpartition('.')[2]}` | {first_sentence(one.thing)} |\n" for one in own)
    return f"\n| attribute | |\n|---|---|\n{rows}" if rows else ""


def _signature(doc: Doc) -> str:
    """Write how it is called, one parameter a line where one line would be long."""
    name = doc.name.rpartition(".")[2] if doc.owner else f"cujit.{doc.name}"
    assert callable(doc.thing)
    signature = inspect.signature(doc.thing)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    given = given[1:] if doc.is_borrowed else given
    given_back = signature.return_annotation
    result = "" if given_back in (inspect.Signature.empty, "None", None) else f" -> {given_back}"
    parts = [part for p, before in zip(given, [None, *given], strict=False) for part in _parameter(p, before)]
    if parts and parts[-1].endswith(": Unpack[OptionKeywords]"):
        parts[-1:] = _options()
    opening, closing = ("[", "]") if name == "__getitem__" else ("(", ")")
    called = name.replace("__getitem__", "self").replace("__call__", "self")
    line = f"{called}{opening}{', '.join(parts)}{closing}{result}"
    if len(line) <= 88:
        return line
    return f"{called}{opening}\n" + "".join(f"    {part},\n" for part in parts) + f"{closing}{result}"


def _options() -> list[str]:
    """Write the keywords that are options of the compiler, as type checkers know them."""
    stub = (DOCS.parent / "src/cujit/compiler/options/keywords.pyi").read_text()
    (body,) = re.findall(r"^class OptionKeywords\b.*?\n\n(.*?)^class ", stub, re.DOTALL | re.MULTILINE)
    return [f"{line.strip()} = None" for line in body.splitlines() if line.strip()]


def _parameter(parameter: inspect.Parameter, before: inspect.Parameter | None) -> list[str]:
    """Write a parameter, before it the star that begins the keywords."""
    default = parameter.default
    text = re.sub(r": (?:ForwardRef\()?'(.*?)'\)?$", r": \1", str(parameter.replace(default=inspect.Parameter.empty)))
    if default is not inspect.Parameter.empty:
        shown = f"{default:_}" if type(default) is int else repr(default)
        text += f" = {'…' if callable(default) else shown}"
    return ["*", text] if _is_first_keyword(parameter, before) else [text]


def _is_first_keyword(parameter: inspect.Parameter, before: inspect.Parameter | None) -> bool:
    loud = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return parameter.kind is inspect.Parameter.KEYWORD_ONLY and (before is None or before.kind not in loud)


def _items(text: str) -> Iterator[tuple[str, str]]:
    for name, meaning in re.findall(r"^(\w+): (.*(?:\n +.*)*)", text, re.MULTILINE):
        yield name, " ".join(meaning.split())


def first_sentence(thing: object) -> str:
    """Give the first paragraph of a docstring, for a cell of a table."""
    paragraph = inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0]
    return _cell(" ".join(paragraph.split()))


def _markdown(text: str) -> str:
    """Give a docstring's text as Markdown: pages that it names are links with the titles of the pages."""
    text = re.sub(r"\((`?docs/[\w-]+\.md`?)\)", r"(see \1)", text.replace("``", "`"))
    return re.sub(r"`?docs/([\w-]+)\.md`?", lambda page: f"[{_page_title(page[1])}]({page[1]}.md)", text)


def _page_title(page: str) -> str:
    """Read the title of a page, without what follows a colon or a parenthesis."""
    first = (DOCS / f"{page}.md").read_text().partition("\n")[0]
    return re.split(r":| \(", first.removeprefix("# "))[0]


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "\\|")
