"""Ordinary .cu files: removal of host code by the rules in docs/how-to/ordinary-files.md.

Blanks replace the removed text, so that lines keep their numbers. Directives and therefore conditions stay.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cujit.artifact.reading import read_file
from cujit.compiler.inputs.host_items import Item, Token, items_of, tokens_of
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.nvcc import read_nvcc
from cujit.compiler.options.values import Options, Value, read_options
from cujit.errors import FileError, OptionError, spell
from cujit.toolchain.std_headers import FORWARDED, NVCC_HEADER, TORCH_HEADER
from cujit.values import closure, replace

_MARKS = frozenset(("__global__", "__device__", "__constant__", "__managed__", "__shared__"))
_MARKING = re.compile(
    r"(?:\A|_)(?:DEVICE|HD|HDINLINE|HOSTDEV|KERNEL|GLOBAL)(?:_|\Z)|HOST_?DEVICE|DEVICE_?(?:FUNC|INLINE)"
)
"""Names of macros of headers that are not at hand, by which functions are marked for the device."""

_HOST_WORDS = re.compile(
    r"(?:cuda|cublas|cublasLt|cudnn|cusparse|cusolver|cufft|nccl|nvrtc|nvml|nvtx|cu)[A-Z]\w*|CU(?!tensorMap)[a-z]\w*"
    r"|curand(?:Generator|Status|Rng|Create|Set|Generate|Destroy)\w*|cublas\w*|cudnn\w*|cusparse\w*|nccl\w*"
    r"|(?:TORCH|AT|PYBIND11|C10_CUDA|MPI|Py)_\w*|Py[A-Z]\w*|MPI\w+"
    r"|timespec|timeval|time_t|DIR|pthread\w+|clock_gettime|FILE|f(?:open|read|write|close|printf|flush|seek|tell|puts|gets|scanf)|stderr|stdout|throw|try|getenv|exit"
)
_ON_DEVICES = re.compile(
    r"cuda(?:GridDependencySynchronize|TriggerProgrammaticLaunchCompletion|TextureObject_t|SurfaceObject_t|PitchedPtr"
    r"|Extent|Pos|RoundMode|CG\w+|BoundaryMode\w*)"
)
_STD = frozenset(
    """
    any cerr chrono condition_variable cout deque endl exception filesystem forward_list function future fstream getline
    ifstream invalid_argument ios istream istringstream list lock_guard logic_error map multimap mutex ofstream
    once_flag ostream ostringstream out_of_range queue regex runtime_error set shared_ptr stack stoi stof string
    stringstream thread to_string unique_lock unique_ptr make_unique make_shared unordered_map unordered_set vector
    weak_ptr call_once random_device mt19937
    """.split()  # noqa: SIM905
)
_NAMESPACES = frozenset(("torch", "at", "c10", "pybind11", "py", "thrust", "caffe2", "nlohmann"))
_MAPPED = frozenset(
    ("Half", "BFloat16", "acc_type", "acc_type_device", "opmath_type", "Float8_e4m3fn", "Float8_e5m2", "complex")
)
"""Of PyTorch's namespaces, names that stand for types of the device."""

_INCLUDE = re.compile(r'(?m)^([ \t]*\#[ \t]*include[ \t]*)(?:<([^>\n]+)>|"([^"\n]+)")')
_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2)/")
_NOT_INCLUDED = re.compile(
    r"(?:pybind11|mpi|nvtx3|thrust|cutlass/util/host\w*|dlpack|nlohmann|arpa|netinet|linux|boost|absl|gflags|glog|gtest"
    r"|fmt|spdlog|Eigen|opencv2?)/.*"
    r"|sys/(?!stat\.h|time\.h|types\.h).*|(?:Python|mpi|nccl|nvml|nvToolsExt\w*|omp|zlib|dirent|getopt|dlfcn|sched|glob"
    r"|execinfo|immintrin|x86intrin|emmintrin|malloc|io|direct|conio|semaphore|poll|termios|pwd|netdb|GL/\w+)\.h"
    r"|(?:cublas|cudnn|cusparse|cusolver|cufft|cudaProfiler|cuda_profiler_api|curand)(?!_kernel)\w*\.h|cub/cub\.cuh"
)
_MOST_HEADERS = 1000


_ENDINGS = frozenset(("default", "delete"))


class _HostUnit:
    """One text: the source, or a header of the user's."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items = items_of(tokens_of(text))


_UNUSED = 177
"""NVRTC's number of the warning that a variable is never referenced; here the host referenced it."""
_IMPLIED = {"host_headers": "stub", "default_device": True, "dialect": "nvcc"}
_STD_WORDS = {
    "algorithm": "min max clamp swap",
    "cmath": "abs fabs sqrt exp log log2 pow floor ceil round fmin fmax fma isnan isinf isfinite sin cos tanh lround",
    "limits": "numeric_limits",
    "type_traits": "is_same is_same_v enable_if enable_if_t conditional conditional_t integral_constant true_type "
    "false_type is_integral is_integral_v is_floating_point is_floating_point_v decay_t remove_cv_t remove_reference_t "
    "make_unsigned make_unsigned_t is_void_v is_pointer_v is_signed_v is_unsigned_v underlying_type_t void_t",
    "utility": "move forward pair make_pair declval exchange index_sequence make_index_sequence integer_sequence",
    "tuple": "tuple make_tuple get tie",
    "array": "array",
    "cstring": "memcpy memset",
    "cstdint": "uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t uintptr_t intptr_t",
    "cstddef": "size_t ptrdiff_t nullptr_t byte",
}
STD_HEADER_OF = {word: header for header, words in _STD_WORDS.items() for word in words.split()}
"""Names of ``std`` that nvcc has without a header, or by those of PyTorch, and the headers that declare them here."""
_STD_NAME = re.compile(r"\bstd::(\w+)")
_CUB_NAME = re.compile(r"\bcub::(Block|Warp)?(\w+)")
_LAMBDA = re.compile(r"(?<=\])(\s*)((?:__host__\s+)?__device__|__host__)(?=\s*[({])")


def as_for_devices(source: Source, options: Options) -> tuple[Source, Options]:
    """Convert a source for NVRTC by the options ``host_code`` and ``dialect``.

    Args:
        source: CUDA C++.
        options: options of the compile. ``host_code`` adds its implied options.
    """
    extra, arguments = _of_nvcc(options.extra)
    keywords = {**(_IMPLIED if "host_code" in options else {}), **_joined(arguments, options)}
    before = keywords.get("pre_include") or ()
    assert isinstance(before, tuple)
    if "host_code" in options:
        include = keywords.get("include") or ()
        assert isinstance(include, tuple)
        source = device_source(source, map(str, include))
        unused = keywords.get("diag_suppress") or ()
        assert isinstance(unused, tuple)
        keywords["diag_suppress"] = (*unused, _UNUSED)
    texts = [source.text, *(text for _, text in source.headers)]
    if "host_code" in options:
        texts = _without_std_headers(texts)
    keywords["pre_include"] = tuple(
        dict.fromkeys((*_implied_headers(texts, "host_code" in options), *map(str, before)))
    )
    plain = [_LAMBDA.sub(lambda match: match[1] + " " * len(match[2]), text) for text in texts]
    known = tuple((name, text) for (name, _), text in zip(source.headers, plain[1:], strict=True))
    return replace(source, text=plain[0], headers=known), Options.of(keywords, {"extra": extra})


def _of_nvcc(extra: Sequence[str]) -> tuple[tuple[str, ...], Options]:
    """Split ``extra`` into arguments that aren't nvcc's, and the options for nvcc's arguments.

    Raises:
        OptionError: an argument names a target or a file.
    """
    line = read_nvcc(extra)
    if line.targets or line.kind or line.output:
        raise OptionError(
            f"extra={spell(tuple(extra))} sets a target or a file",
            help="set arch= and to= instead, and save the result",
            code="option-rejected",
        )
    return line.rest, read_options(line.option_words)


def _joined(arguments: Options, options: Options) -> dict[str, Value]:
    """Merge options. Lists and macros are concatenated, and other values come from ``options``."""
    joined: dict[str, Value] = {**arguments, **options}
    for name in arguments.keys() & options.keys():
        first, second = arguments[name], options[name]
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            joined[name] = {**first, **second}
        elif isinstance(first, tuple) and isinstance(second, tuple):
            joined[name] = (*second, *first)
    return joined


def _implied_headers(texts: Iterable[str], is_skipping: bool) -> Iterator[str]:
    """Return the headers that declare names of the texts, for names from nvcc or a removed header."""
    joined = "\n".join(texts)
    names = {STD_HEADER_OF.get(name) for name in _STD_NAME.findall(joined)}
    yield NVCC_HEADER
    yield from (header for header in _STD_WORDS if header in names)
    for kind, name in sorted(set(_CUB_NAME.findall(joined))) if is_skipping else ():
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        yield f"cub/{kind.lower()}/{kind.lower()}_{snake}.cuh" if kind else "cub/thread/thread_operators.cuh"


def _without_std_headers(texts: list[str]) -> list[str]:
    """Remove standard headers if the remaining names of ``std`` show which are required, because each
    takes a second.
    """
    names = {name for text in texts for name in _STD_NAME.findall(text)} - _STD
    if not names <= STD_HEADER_OF.keys() or any("namespace std" in text for text in texts):
        return texts
    return [_INCLUDE.sub(lambda m: "" if (m[2] or "") in FORWARDED else m[0], text) for text in texts]


def device_source(source: Source, include: Iterable[str] = ()) -> Source:
    """Remove host code from a source and from the user's headers that it includes.

    Args:
        source: CUDA C++.
        include: header directories besides those of the source.
    """
    if source.language != "cuda":
        return source
    texts = {"": source.text, **dict(source.headers)}
    texts |= _local_headers(source, texts, [*source.include, *include])
    units = {name: _HostUnit(_INCLUDE.sub(_included, text)) for name, text in texts.items()}
    rules = _Rules(units.values())
    made = {name: _blanked(unit.text, rules.left_out(unit.items)) for name, unit in units.items()}
    return replace(source, text=made.pop(""), headers=tuple(made.items()))


def is_for_hosts(header: str) -> bool:
    """Return whether ``host_code="skip"`` removes an include of a header."""
    return bool(_TORCH.match(header) or _NOT_INCLUDED.fullmatch(header))


def lines_for_hosts(text: str) -> set[int]:
    """Return the lines of a text, from 1, that ``host_code="skip"`` removes."""
    unit = _HostUnit(text)
    return {
        line
        for item in _Rules([unit]).left_out(unit.items)
        for line in range(_line(text, item.tokens[0]), _line(text, item.tokens[-1]) + 1)
    }


def _line(text: str, token: Token) -> int:
    return text.count("\n", 0, token.start) + 1


def _included(match: re.Match[str]) -> str:
    name = match[2] or match[3]
    if _TORCH.match(name):
        return f"{match[1]}<{TORCH_HEADER}>"
    return "" if _NOT_INCLUDED.fullmatch(name) else match[0]


def _local_headers(source: Source, known: Mapping[str, str], include: Sequence[str]) -> dict[str, str]:
    """Read the headers that quoted includes name next to the source and in the user's directories, recursively."""
    base = [os.path.dirname(source.path)] if source.path else []
    found: dict[str, str] = {}
    waiting = [("", text) for text in known.values()]
    while waiting and len(found) < _MOST_HEADERS:
        directory, text = waiting.pop()
        for match in _INCLUDE.finditer(text):
            for name in dict.fromkeys((posixpath.normpath(posixpath.join(directory, match[3] or "")), match[3] or "")):
                read = None if not match[3] or name in known or name in found else _read(name, [*base, *include])
                if read is not None:
                    found[name] = read
                    waiting.append((posixpath.dirname(name), read))
                    break
    return found


def _read(name: str, directories: Iterable[str]) -> str | None:
    for path in (os.path.join(directory, name) for directory in directories):
        if os.path.isfile(path):
            with contextlib.suppress(FileError, ValueError):
                return read_file(path).decode("utf-8-sig")
    return None


class _Rules:
    """Rules that decide which items of all texts are for the host."""

    def __init__(self, units: Iterable[_HostUnit]) -> None:
        self._items = [item for unit in units for item in _flat(unit.items)]
        self._macros = dict(_macros(unit.text for unit in units))
        self._marking = {name for name in self._macros if not _MARKS.isdisjoint(self._expanded({name}))}
        self._out: set[int] = set()
        self._needed: set[str] = set()
        self._decide()

    def _decide(self) -> None:
        marked, plain = self._parted(self._items, self._is_marked)
        self._needed = self._expanded(word for item in marked for word in item.words)
        kept, waiting = self._parted(plain, self._is_kept)
        more = True
        while more:
            found, waiting = self._parted(waiting, self._is_needed)
            self._needed |= self._expanded(word for item in found for word in item.words)
            kept, more = kept + found, bool(found)
        kept = self._without_missing(kept, waiting)
        self._out = {id(item) for item in plain} - {id(item) for item in kept}

    @staticmethod
    def _parted(items: Iterable[Item], is_first: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
        parts: tuple[list[Item], list[Item]] = ([], [])
        for item in items:
            parts[not is_first(item)].append(item)
        return parts

    def _without_missing(self, kept: list[Item], out: Iterable[Item]) -> list[Item]:
        """Also remove items that mention a removed name, unless device code needs them."""
        gone = {name for item in out for name in item.declares()}
        while True:
            there = {name for item in kept for name in item.declares()}
            fewer = [
                item for item in kept if not ((gone - there) & item.words and item.declares().isdisjoint(self._needed))
            ]
            if len(fewer) == len(kept):
                return kept
            gone |= {name for item in kept if item not in fewer for name in item.declares()}
            kept = fewer

    def _is_marked(self, item: Item) -> bool:
        """Whether an item is marked for the device, by a macro of the text or of a header too."""
        words = {token.text for token in item.head}
        if item.kind == "macro":
            return not self._marking.isdisjoint(words)
        return not words.isdisjoint(_MARKS | self._marking) or (
            item.kind in ("function", "other")
            and any(_MARKING.search(word) for word in words - self._macros.keys() if word.isupper())
        )

    def _is_kept(self, item: Item) -> bool:
        """Return whether to keep an unused item: a type, constant, or alias without host names."""
        if item.kind == "macro" or _is_of_host(item):
            return False
        if item.kind == "function":
            return item.has("constexpr") or item.has("consteval") or item.has("operator") or item.has("static_assert")
        is_variable = item.kind == "other" and not any(
            map(item.has, ("using", "typedef", "static_assert", "namespace"))
        )
        return not is_variable or any(map(item.has, ("const", "constexpr", "template"))) or len(item.tokens) < 3

    def _is_needed(self, item: Item) -> bool:
        if item.declares().isdisjoint(self._needed) or item.kind == "macro":
            return False
        return item.kind == "class" or not _has_host(item.tokens)

    def _expanded(self, words: Iterable[str]) -> set[str]:
        """Add the words in the definitions of macros to a set of words."""
        return closure(words, lambda word: self._macros.get(word, ()))

    def left_out(self, items: Sequence[Item]) -> Iterator[Item]:
        """Return the items to remove, including items of namespaces and classes."""
        for item in items:
            if item.kind == "scope":
                yield from self.left_out(item.children)
            elif id(item) in self._out:
                yield item
            elif item.kind == "class":
                yield from self._members(item.children)

    def _members(self, items: Sequence[Item]) -> Iterator[Item]:
        for item in items:
            if item.kind == "class":
                yield from self._members(item.children)
            elif self._is_host_method(item):
                yield item

    def _is_host_method(self, item: Item) -> bool:
        """Return whether a member function is for the host: device code doesn't mention it, or it uses
        host features.
        """
        if item.kind != "function" or self._is_marked(item) or item.has("virtual"):
            return False
        words = [token.text for token in item.tokens[-3:]]
        is_open = any(map(item.has, ("constexpr", "consteval", "operator", "friend"))) or not _ENDINGS.isdisjoint(words)
        return _has_host(item.tokens) or not (is_open or not item.declares().isdisjoint(self._needed))


def _flat(items: Iterable[Item]) -> Iterator[Item]:
    for item in items:
        if item.kind == "scope":
            yield from _flat(item.children)
        else:
            yield item


_DEFINE = re.compile(r"[ \t]*\#[ \t]*define[ \t]+(\w+)(.*)", re.DOTALL)


def _macros(texts: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    words: dict[str, list[str]] = {}
    for text in texts:
        for token in tokens_of(text):
            if token.kind == "directive" and (match := _DEFINE.match(token.text)):
                words.setdefault(match[1], []).extend(re.findall(r"[^\W\d]\w*", match[2]))
    yield from words.items()


def _is_of_host(item: Item) -> bool:
    """Whether an item has something of the host's; member functions of a class do not count."""
    if item.kind != "class" or not item.children:
        return _has_host(item.tokens)
    return _has_host(item.head) or any(_is_of_host(child) for child in item.children if child.kind != "function")


def _has_host(tokens: Sequence[Token]) -> bool:
    """Whether tokens have something that only code for the host has."""
    return any(
        _is_host(token.text, tokens, number) if token.kind == "word" else token.text == "<<<"
        for number, token in enumerate(tokens)
    )


def _is_host(word: str, tokens: Sequence[Token], number: int) -> bool:
    if word not in _NAMESPACES and word != "std":
        return bool(_HOST_WORDS.fullmatch(word)) and not _ON_DEVICES.fullmatch(word)
    after = [token.text for token in tokens[number + 1 : number + 3]]
    if after[:1] == ["::"] and len(after) == 2:
        return after[1] in _STD if word == "std" else after[1] not in _MAPPED
    return word != "std" and number > 0 and tokens[number - 1].text == "namespace"


def _blanked(text: str, items: Iterable[Item]) -> str:
    """Write blanks over items, but not over the directives in them."""
    pieces, end = [], 0
    for item in items:
        for token in item.tokens:
            if token.kind != "directive" and token.start >= end:
                pieces += [text[end : token.start], re.sub(r"[^\n]", " ", token.text)]
                end = token.end
    return "".join([*pieces, text[end:]])
