"""Arguments of nvcc as options of the table and targets: for the command line, ``extra`` and the explorer's page.

Source: NVCC manual of CUDA 13, "NVCC Command Options".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from cujit.errors import OptionError, alike
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls have arguments of nvcc

_FLAGS = {
    "lineinfo": "lineinfo",
    "generate-line-info": "lineinfo",
    "G": "debug",
    "device-debug": "debug",
    "use-fast-math": "use_fast_math",
    "restrict": "restrict",
    "extra-device-vectorization": "extra_device_vectorization",
    "dc": "rdc",
    "device-c": "rdc",
    "dlto": "dlto",
    "dlink-time-opt": "dlto",
    "ewp": "extensible_whole_program",
    "extensible-whole-program": "extensible_whole_program",
    "gen-opt-lto": "gen_opt_lto",
    "w": "disable_warnings",
    "disable-warnings": "disable_warnings",
    "res-usage": "verbose",
    "resource-usage": "verbose",
    "expt-relaxed-constexpr": "default_device",
    "Wreorder": "warn_reorder",
}
"""Flags, and the options that they switch on."""

_VALUES = {
    "std": "std",
    "O": "opt_level",
    "optimize": "opt_level",
    "maxrregcount": "maxrregcount",
    "ftz": "ftz",
    "fmad": "fmad",
    "prec-div": "prec_div",
    "prec-sqrt": "prec_sqrt",
    "rdc": "rdc",
    "relocatable-device-code": "rdc",
    "D": "define",
    "define-macro": "define",
    "U": "undef",
    "undefine-macro": "undef",
    "I": "include",
    "include-path": "include",
    "isystem": "include",
    "system-include": "include",
    "include": "pre_include",
    "pre-include": "pre_include",
    "diag-suppress": "diag_suppress",
    "diag-warn": "diag_warn",
    "diag-error": "diag_error",
    "dopt": "optimize_debug",
    "Ofast-compile": "ofast_compile",
    "Ofc": "ofast_compile",
    "split-compile": "split_compile",
    "jump-table-density": "jump_table_density",
    "device-stack-protector": "device_stack_protector",
    "opt-info": "optimization_info",
    "optimization-info": "optimization_info",
    "frandom-seed": "random_seed",
}
"""Arguments with a value, and the options that get it."""

_KINDS = {"ptx": "ptx", "cubin": "cubin", "fatbin": "fatbin"}
_PTXAS = ("Xptxas", "ptxas-options")
_ARCH, _CODE, _GENCODE = ("arch", "gpu-architecture"), ("code", "gpu-code"), ("gencode", "generate-code")
_OUTPUT = ("o", "output-file")
_FOR_HOSTS = frozenset((
    "c", "compile", "g", "debug", "m64", "shared", "extended-lambda", "expt-extended-lambda",
    "allow-unsupported-compiler", "Wno-deprecated-gpu-targets", "Wno-deprecated-declarations", "keep", "save-temps",
))  # fmt: skip
_FOR_HOSTS_WITH_VALUE = frozenset((
    "Xcompiler", "compiler-options", "Xlinker", "linker-options", "Xcudafe", "Xnvlink", "nvlink-options", "Xfatbin",
    "fatbin-options", "ccbin", "compiler-bindir", "cudart", "x", "default-stream", "threads", "Werror", "keep-dir",
    "l", "library", "L", "library-path",
))  # fmt: skip
"""What is for the host compiler, the linker or the driver program nvcc: it changes nothing of device code."""
_VERY_LIKE = 0.75
_JOINED = "DIUOlL"
"""Arguments that take their value without a separator."""
_WITH_VALUE = frozenset(
    {*_VALUES, *_PTXAS, *_ARCH, *_CODE, *_GENCODE, *_OUTPUT, *_FOR_HOSTS_WITH_VALUE},
)
NVCC_ARGUMENTS = frozenset({*_FLAGS, *_KINDS, *_FOR_HOSTS, *_WITH_VALUE})
"""The names of all arguments that are read, without dashes."""


class NvccLine(NamedTuple):
    """A parsed nvcc command line. ``option_words`` are options as ``KEY=VALUE``, and ``targets`` are architectures.

    ``kind`` is the image kind or empty. ``rest`` are the words that aren't nvcc's, in order. ``unknown`` are words that
    no known tool accepts.
    """

    option_words: tuple[str, ...]
    targets: tuple[str, ...]
    kind: str
    output: str
    rest: tuple[str, ...]
    unknown: tuple[str, ...]


_NONE: Mapping[str, bool] = MappingProxyType({})


def read_nvcc(words: Sequence[str], own: Mapping[str, bool] = _NONE) -> NvccLine:
    """Read a command line of nvcc.

    Args:
        words: the arguments.
        own: spellings, with dashes, that mean something else where they are used, and whether a value follows them;
            they go to ``rest``.

    Raises:
        OptionError: a value is missing, or the targets are none.

    Example:
        >>> read_nvcc(["-arch=sm_90", "-O3", "-lineinfo", "-cubin"]).targets
        ('sm_90', 'compute_90')
    """
    reading = _CommandLine(own)
    at = list(words).index("--") if "--" in words else len(words)
    waiting = iter(words[:at])
    for word in waiting:
        reading.take(word, waiting)
    line = reading.line()
    return line._replace(rest=(*line.rest, *words[at:]))


class _CommandLine:
    """A command line that is being read."""

    def __init__(self, own: Mapping[str, bool]) -> None:
        self._own = own
        self._unknown: list[str] = []
        self._option_words: list[str] = []
        self._rest: list[str] = []
        self._arch, self._codes, self._targets = "", list[str](), list[str]()
        self._kind = self._output = ""

    def take(self, word: str, others: Iterator[str]) -> None:
        """Process one word, and the next word if it is its value."""
        name, value = self._split(word)
        if name is None:
            self._leave(word, others)
        elif name in _KINDS:
            self._kind = _KINDS[name]
        elif name in _FLAGS:
            self._option_words.append(_FLAGS[name])
        elif name in _WITH_VALUE:
            given = value if value is not None else next(others, None)
            if given is None:
                raise OptionError(f"{word} requires a value", help=f"{word}=VALUE", code="option-rejected")
            self._give(word, name, given)

    def _leave(self, word: str, others: Iterator[str]) -> None:
        """Keep a word that is not nvcc's, with its value."""
        self._rest.append(word)
        if self._own.get(word):
            self._rest += [value for value in (next(others, None),) if value is not None]
        elif word.startswith("-") and not self._is_taken(word):
            self._unknown.append(word)

    def _is_taken(self, word: str) -> bool:
        is_number = not word[1:2].isalpha() and word[1:2] != "-"
        is_joined = word[:2] in self._own and not ("=" in word and like_nvcc(word, least=_VERY_LIKE))
        return is_number or word.partition("=")[0] in self._own or is_joined

    def _split(self, word: str) -> tuple[str | None, str | None]:
        """Split a word into its name in the tables and its value. The name is None if it isn't nvcc's."""
        spelled, equals, value = word.partition("=")
        if not word.startswith("-") or spelled in self._own:
            return None, None
        name = _known(spelled.lstrip("-"))
        if name is not None:
            return name, value if equals else None
        letter, joined = word[1:2], word[2:]
        is_joined = letter in _JOINED and f"-{letter}" not in self._own and bool(joined) and word[1] != "-"
        is_joined = is_joined and not (letter == "l" and _is_like_lineinfo(word))
        if is_joined or (letter == "O" and joined.isdigit()):
            return letter, joined
        return None, None

    def _give(self, word: str, name: str, value: str) -> None:
        if name in _PTXAS:
            self._option_words += map(_of_ptxas, value.split(","))
        elif name in _ARCH:
            self._arch = value
        elif name in _CODE:
            self._codes += _list(value)
        elif name in _GENCODE:
            self._targets += _generated(word, value)
        elif name in _OUTPUT:
            self._output = value
        elif name in _VALUES:
            self._option_words.append(f"{_VALUES[name]}={value}")

    def line(self) -> NvccLine:
        """Return the parsed command line."""
        targets = [*self._targets, *(self._codes or _alone(self._arch))]
        kept = tuple(dict.fromkeys(targets))
        return NvccLine(
            tuple(self._option_words), kept, self._kind, self._output, tuple(self._rest), tuple(self._unknown)
        )


def _is_like_lineinfo(word: str) -> bool:
    """Return whether a word is a misspelled argument, such as ``-lineinf``, rather than ``-l`` and a library."""
    return any(near.startswith("-l") for near in like_nvcc(word, least=_VERY_LIKE))


def _known(spelled: str) -> str | None:
    """Find a name in the tables; underscores and hyphens are the same."""
    hyphened = spelled.replace("_", "-")
    return next((name for name in (spelled, hyphened) if name in NVCC_ARGUMENTS), None)


def _of_ptxas(argument: str) -> str:
    if argument in ("-v", "--verbose"):
        return "verbose"
    level = re.fullmatch(r"(?:-O|--opt-level=?)(\d)", argument)
    return f"opt_level={level[1]}" if level else f"ptxas_options={argument}"


def _alone(arch: str) -> list[str]:
    """Return the outputs of nvcc for ``-arch`` without ``-code``. For sm_90, these are SASS and PTX."""
    return [arch, arch.replace("sm_", "compute_")] if arch.startswith("sm_") else [arch] if arch else []


def _list(value: str) -> list[str]:
    return [each for each in value.strip("[]\"'").split(",") if each]


def _generated(word: str, value: str) -> list[str]:
    match = re.fullmatch(r"arch=(\w+)(?:,code=(\[[^\]]*\]|\"[^\"]*\"|[\w,]+))?", value)
    if match is None:
        raise OptionError(
            f"{word} {value} doesn't specify a target" if word != value else f"{word} doesn't specify a target",
            help=f"-{_GENCODE[0]} arch=compute_90,code=[sm_90,compute_90]",
        )
    return _list(match[2]) if match[2] else [match[1]]


def like_nvcc(word: str, *, least: float = 0.6) -> list[str]:
    """List arguments of nvcc that are most like a word, with its dashes."""
    name = word.partition("=")[0]
    dashes = name[: len(name) - len(name.lstrip("-"))]
    return [f"{dashes}{near}" for near in alike(name.lstrip("-"), sorted(NVCC_ARGUMENTS), least=least)]
