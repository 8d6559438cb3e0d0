"""The option table: one row per option with its type, its meaning and its spelling for every tool.

Rendering, rejection, the key of the cache, the command line and ``docs/options.md`` are made from it.
"""

from __future__ import annotations

import enum
import operator
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from cujit.arch.support import Version
from cujit.compiler.options.spelling import Rejects, Spelling, each, flag, joined, pairs, switch, value
from cujit.errors import OptionError, alike, spell
from cujit.errors.hints import Hint
from cujit.toolchain.headers import HOST_DIRECTORY
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it

Value: TypeAlias = bool | int | str | tuple[int, ...] | tuple[str, ...] | Mapping[str, str | None]

_FRONT_END = Rejects("it is for the C++ compiler; say it at the compile")


class OptionType(enum.Enum):
    """What values an option takes; the value is how the documentation says it."""

    BOOL = "bool"
    INT = "int"
    TEXT = "str"
    INTS = "list of int"
    TEXTS = "list of str, none of them blank"
    DEFINES = "dict of str to str, int or None"


class Tool(enum.Enum):
    """Who gets it; the value is the tool's name."""

    NVRTC = "NVRTC"
    NVJITLINK = "nvJitLink"
    NVVM = "libNVVM"


class Option(NamedTuple):
    """One row: ``choices`` are the values of a TEXT, ``low`` and ``high`` the inclusive bounds of an INT.

    What has an option with ``isolated`` is compiled in a process apart; these are NVRTC's spellings of it in ``extra``.
    ``since`` is the first release whose NVRTC has it, where that is not the oldest that cujit supports.
    """

    name: str
    type: OptionType
    doc: str
    nvrtc: Spelling | Rejects
    nvjitlink: Spelling | Rejects = _FRONT_END
    nvvm: Spelling | Rejects = _FRONT_END
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    isolated: tuple[str, ...] = ()
    since: Version | None = None

    def spelling(self, tool: Tool) -> Spelling | Rejects:
        """How ``tool`` calls it, or that it does not."""
        return {Tool.NVRTC: self.nvrtc, Tool.NVJITLINK: self.nvjitlink, Tool.NVVM: self.nvvm}[tool]

    def accept(self, given: object) -> Value:
        """Check a value and bring it into its one form.

        Raises:
            OptionError: it is of another type, or out of bounds.
        """
        accepted = _ACCEPT[self.type](given)
        if accepted is None:
            raise OptionError(
                f"option {self.name} is {spell(given)}, expected {self._wanted()}", help=self._suggest(given)
            )
        if self.choices and accepted not in self.choices:
            raise OptionError(
                f"option {self.name} is {spell(given)}, expected one of {', '.join(self.choices)}",
                help=self._suggest(given),
            )
        if isinstance(accepted, int) and not self._in_bounds(accepted):
            raise OptionError(f"option {self.name} is {spell(given)}, expected {self._wanted()}")
        return accepted

    def _in_bounds(self, number: int) -> bool:
        low, high = self.low, self.high
        return (low is None or number >= low) and (high is None or number <= high)

    def _wanted(self) -> str:
        if self.low is not None and self.high is not None:
            return f"an int from {self.low} to {self.high}"
        return f"an int of at least {self.low}" if self.low is not None else self.type.value

    def _suggest(self, given: object) -> str | None:
        near = alike(given if isinstance(given, str) else spell(given), self.choices, most=2, least=0.5)
        return f"did you mean {' or '.join(map(repr, near))}?" if near else None


def _bool(given: object) -> bool | None:
    return given if isinstance(given, bool) else None


def _int(given: object) -> int | None:
    try:
        return None if isinstance(given, bool) else operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return None


def _text(given: object) -> str | None:
    return given if isinstance(given, str) and given and "\0" not in given and is_utf8(given) else None


def _path_text(given: object) -> str | None:
    """Take a text that may be a path: bytes of it that are no UTF-8 go to the tool as they are."""
    try:
        return given if isinstance(given, str) and given.strip() and "\0" not in given and os.fsencode(given) else None
    except UnicodeEncodeError:
        return None


def is_utf8(text: str) -> bool:
    """Return whether a text can be passed to a compiler. Half a surrogate pair cannot."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _ints(given: object) -> tuple[int, ...] | None:
    items = given if isinstance(given, list | tuple) else (given,)
    numbers = [_int(item) for item in items]
    return None if None in numbers else tuple(n for n in numbers if n is not None)


def accept_texts(given: object) -> tuple[str, ...] | None:
    """Take one text or path, or a list of them, each without a NUL and not blank; otherwise return None."""
    items = given if isinstance(given, list | tuple) else (given,)
    texts = [_path_text(str(item) if hasattr(item, "__fspath__") else item) for item in items]
    return None if None in texts else tuple(t for t in texts if t is not None)


def _defines(given: object) -> Mapping[str, str | None] | None:
    if not isinstance(given, Mapping):
        return None
    return MappingProxyType({_macro(name): _macro_value(name, what) for name, what in given.items()})


# An identifier, with parameters where the macro is like a function. Source: ISO C++ [cpp.replace]; `$` is EDG's.
# Compiled when it is first used: start-up.
_MACRO = r"[^\W\d][\w$]*(\([\w$, .]*\))?"


def _macro(name: object) -> str:
    if isinstance(name, str) and re.fullmatch(_MACRO, name):
        return name
    raise OptionError(
        f"define: {spell(name)} is not a name of a macro",
        help=Hint("define={'N': 4, 'FLAG': None, 'SQ(x)': '((x)*(x))'}", shell="-D N=4 -D FLAG -D 'SQ(x)=((x)*(x))'"),
    )


def _macro_value(name: object, given: object) -> str | None:
    if given is None:
        return None
    if isinstance(given, str) and is_utf8(given) and not any(c in given for c in "\0\n\r"):
        return given
    number = int(given) if isinstance(given, bool) else _int(given)
    if number is None:
        raise OptionError(
            f"define: the value of {name} is {spell(given)}, expected str of one line, int or None",
            help="a value that C++ spells differently, such as 1.5f, is given as str",
        )
    return str(number)


_ACCEPT: Mapping[OptionType, Callable[[object], Value | None]] = {
    OptionType.BOOL: _bool,
    OptionType.INT: _int,
    OptionType.TEXT: _text,
    OptionType.INTS: _ints,
    OptionType.TEXTS: accept_texts,
    OptionType.DEFINES: _defines,
}


_LINK_ONLY = Rejects("it is for the link")
_NO_PLACE = Rejects("it has nothing of the kind")
_B, _I, _T = OptionType.BOOL, OptionType.INT, OptionType.TEXT
_II, _TT, _D = OptionType.INTS, OptionType.TEXTS, OptionType.DEFINES

# Sources: NVRTC 13 user guide, "Supported Compile Options"; nvJitLink 13 user guide, "Supported Link
# Options"; libNVVM API manual, nvvmCompileProgram. Each NVRTC and nvJitLink spelling was given to 13.5 and taken, and
# to NVRTC 12.9 to 13.4 for ``since``. tests/compile/test_option_sweep.py looks for options that have no row.
# A row is name, type and meaning, and below them the tools.
# fmt: off
_ROWS: tuple[Option, ...] = (
    # The language
    Option("std", _T, "C++ dialect; NVRTC's own default is c++17.",
           value("--std={}"), choices=("c++03", "c++11", "c++14", "c++17", "c++20", "c++23")),
    Option("define", _D, "Macros: name to value, None for a bare name. `Source.cuda(define=…)` does the same.",
           pairs("--define-macro={}")),
    Option("undef", _TT, "Macros to forget.", each("--undefine-macro={}")),
    Option("include", _TT,
           "Directories for `#include`, searched before the toolkit's. `Source.cuda(include=…)` does the same.",
           each("--include-path={}")),
    Option("pre_include", _TT, "Headers to include before the first line.", each("--pre-include={}")),
    Option("no_source_include", _B,
           "Never search the directory of an including file; breaks `cooperative_groups.h` and `mma.h`.",
           flag("--no-source-include")),
    Option("default_device", _B, "Take functions and variables without an annotation as `__device__`.",
           flag("--device-as-default-execution-space")),
    Option("host_headers", _T,
           "`stub` finds `<vector>`, `<iostream>` and other headers for hosts, empty; any other stays an error.",
           Spelling("a directory, searched after the others", lambda _: [f"--include-path={HOST_DIRECTORY}"]),
           choices=("stub",)),
    Option("host_code", _T,
           "`skip` compiles an ordinary `.cu` file: cujit leaves out functions, launches and includes for the host "
           "(docs/how-to/ordinary-files.md). It implies `dialect`, `host_headers` and `default_device`.",
           Spelling("the text without code for the host", lambda _: []), choices=("skip",)),
    Option("dialect", _T,
           "`nvcc` defines words that nvcc accepts and NVRTC does not: `__asm__`, `__builtin_ctz`, `uint`, `M_PI`.",
           Spelling("headers before the first line", lambda _: []), choices=("nvcc",)),
    # After a compile with `debug` or the fastest `ofast_compile`, NVRTC 13.5 reads `__grid_constant__` parameters of
    # all later ones otherwise: measured by PTX before and after, one option at a time.
    # NVRTC 12.9 and 13.5 take all later compiles of a process so, once one was: measured by PTX before and after.
    Option("restrict", _B, "Take every pointer parameter of a kernel as `__restrict__`.", flag("--restrict"),
           isolated=("--restrict", "-restrict")),
    Option("int128", _B, "Allow `__int128`.", flag("--device-int128")),
    Option("float128", _B, "Allow `__float128`; sm_100 and later.", flag("--device-float128")),
    Option("builtin_move_forward", _B, "Let NVRTC declare `std::move` and `std::forward`.",
           switch("--builtin-move-forward")),
    Option("builtin_initializer_list", _B, "Let NVRTC declare `std::initializer_list`.",
           switch("--builtin-initializer-list")),
    Option("minimal", _B, "Leave out most built-in declarations: a faster front end; CCCL does not compile with it.",
           flag("--minimal")),
    Option("enable_tile", _B, "Allow CUDA Tile code.", flag("--enable-tile"), since=(13, 3)),
    Option("simt_only", _B, "With enable_tile: leave out tile functions.", flag("--simt-only"), since=(13, 3)),
    Option("default_tile", _B, "With enable_tile: take functions without an annotation as tile functions.",
           flag("--tile-as-default-execution-space"), since=(13, 3)),
    Option("diagnose_implicit_tile_var", _B, "With enable_tile: report variables that are tile variables implicitly.",
           flag("--diagnose-implicit-tile-var"), since=(13, 3)),
    # Arithmetic
    Option("fmad", _B, "Contract a * b + c into one rounding.",
           switch("--fmad"), switch("-fma", "1", "0"), switch("-fma", "1", "0")),
    Option("ftz", _B, "Flush single-precision denormals to zero.",
           switch("--ftz"), switch("-ftz", "1", "0"), switch("-ftz", "1", "0")),
    Option("prec_div", _B, "Divide single precision with the rounding of IEEE 754.",
           switch("--prec-div"), switch("-prec-div", "1", "0"), switch("-prec-div", "1", "0")),
    Option("prec_sqrt", _B, "Take single-precision square roots with the rounding of IEEE 754.",
           switch("--prec-sqrt"), switch("-prec-sqrt", "1", "0"), switch("-prec-sqrt", "1", "0")),
    Option("use_fast_math", _B,
           "ftz and fmad, no prec_div, no prec_sqrt; under NVRTC also fast intrinsics for `sinf` and such.",
           flag("--use_fast_math"), flag("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"),
           flag("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1")),
    Option("extra_device_vectorization", _B, "Vectorise more aggressively.",
           flag("--extra-device-vectorization"), _NO_PLACE, _NO_PLACE),
    Option("no_signed_zeros", _B, "Treat +0.0 and -0.0 alike.", flag("--fno-signed-zeros"), since=(13, 4)),
    Option("associative_math", _B, "Allow sums and products of floats in another order.", flag("--fassociative-math")),
    Option("finite_math_only", _B, "Assume that no float is infinite or NaN.",
           flag("--ffinite-math-only"), since=(13, 4)),
    # Code generation
    # nvJitLink itself knows -O0 and -O3; its assembler knows all four.
    Option("opt_level", _I,
           "Optimisation level of the assembler (of the linker, when linking; of libNVVM, for LLVM IR).",
           value("--ptxas-options=-O{}"), Spelling("-O0|-Xptxas=-O1|-Xptxas=-O2|-O3",
                                                  lambda n: [f"-O{n}" if n in (0, 3) else f"-Xptxas=-O{n}"]),
           value("-opt={}"), low=0, high=3),
    Option("ofast_compile", _T, "Compile faster, run slower.",
           value("--Ofast-compile={}"), value("-Ofc={}"), _NO_PLACE, choices=("0", "min", "mid", "max"),
           isolated=("--Ofast-compile", "-Ofast-compile", "-Ofc")),
    Option("maxrregcount", _I, "The most registers a thread may use.",
           value("--maxrregcount={}"), value("-maxrregcount={}"), _NO_PLACE, low=16, high=255),
    # What libNVVM writes always is.
    Option("rdc", _B, "Relocatable device code: to be linked with more.",
           switch("--relocatable-device-code"), Rejects("the link is where relocatable code ends"),
           Spelling("always so", lambda _: [])),
    Option("dlto", _B, "Code for link-time optimisation; set by itself where LTO-IR is made or linked.",
           flag("--dlink-time-opt"), flag("-lto"), flag("-gen-lto")),
    Option("gen_opt_lto", _B, "Optimise LTO-IR before the link too.", flag("--gen-opt-lto"), _FRONT_END, _NO_PLACE),
    Option("extensible_whole_program", _B, "Whole-program compile that may still call into unresolved functions.",
           flag("--extensible-whole-program"), _FRONT_END, _NO_PLACE),
    Option("split_compile", _I, "Threads for the optimiser; 0 takes every processor.",
           value("--split-compile={}"), value("-split-compile={}"), value("-split-compile={}"), low=0),
    Option("split_compile_extended", _I,
           "Threads for the whole of an LTO link; 0 takes every processor. The code may differ.",
           _LINK_ONLY, value("-split-compile-extended={}"), _LINK_ONLY, low=0),
    Option("relocatable", _B, "Make a cubin that is linked further and may lack functions.",
           _LINK_ONLY, flag("-r"), _LINK_ONLY),
    Option("jump_table_density", _I, "Per cent of cases that a switch must fill to become a jump table.",
           value("--jump-table-density={}"), value("-jump-table-density={}"), value("-jump-table-density={}"),
           low=0, high=101),
    # The manual of nvJitLink has it too, and nvJitLink 13.5 refuses it.
    Option("device_stack_protector", _B, "Guard the stack of functions that have arrays.",
           switch("--device-stack-protector"), _FRONT_END, _NO_PLACE),
    Option("discard_value_names", _B, "Drop the names of LLVM values, which takes less memory.",
           switch("--discard-value-names"), _FRONT_END, Rejects("it reads textual LLVM IR by these names")),
    Option("nvvm_latest", _B,
           "Compile LLVM IR of any architecture by the newest dialect of libNVVM, as for sm_100 and later.",
           Rejects("it has no LLVM IR"), flag("-nvvm-latest"), flag("-nvvm-latest")),
    Option("ptx_version_target", _I,
           "PTX version to write for an older driver: 90 is 9.0. For sm_100 and later, or with nvvm_latest.",
           Rejects("cujit.retarget lowers the version of PTX"), _FRONT_END, value("-ptx-version-target={}"),
           low=86, high=99),
    Option("modify_stack_limit", _B, "Let NVRTC raise the host stack limit while it compiles.",
           switch("--modify-stack-limit")),
    Option("ptxas_options", _TT, "Arguments for the assembler, as they are.",
           each("--ptxas-options={}"), each("-Xptxas={}"), _NO_PLACE),
    Option("kernels_used", _TT, "Kernels to keep in an LTO link; others may go.",
           _LINK_ONLY, joined("-kernels-used={}"), _LINK_ONLY),
    Option("variables_used", _TT, "Variables to keep in an LTO link; others may go.",
           _LINK_ONLY, joined("-variables-used={}"), _LINK_ONLY),
    Option("optimize_unused_variables", _B, "Remove device variables that no device code uses.",
           _LINK_ONLY, flag("-optimize-unused-variables"), _LINK_ONLY),
    # Debugging
    Option("debug", _B, "Full debug information (`-G`).", flag("--device-debug"), flag("-g"), flag("-g"),
           isolated=("--device-debug", "-device-debug", "-G")),
    Option("lineinfo", _B, "Source lines for profilers and error reports; the code stays the same.",
           flag("--generate-line-info"), flag("-lineinfo"), flag("-generate-line-info")),
    Option("no_lineinfo_inlined_at", _B, "With lineinfo: leave out where functions were inlined.",
           flag("--no-lineinfo-inlined-at"), _FRONT_END, _NO_PLACE),
    Option("optimize_debug", _B, "With debug: optimise all the same.", flag("--dopt=on"), _FRONT_END, _NO_PLACE),
    # Messages
    Option("disable_warnings", _B, "No warnings at all.", flag("--disable-warnings")),
    Option("diag_suppress", _II, "Numbers of messages to leave out.", joined("--diag-suppress={}")),
    Option("diag_warn", _II, "Numbers of messages to make warnings.", joined("--diag-warn={}")),
    Option("diag_error", _II, "Numbers of messages to make errors.", joined("--diag-error={}")),
    Option("display_error_number", _B, "Show the numbers of messages; warnings show them anyway.",
           Spelling("--display-error-number|--no-display-error-number",
                    lambda on: ["--display-error-number" if on else "--no-display-error-number"])),
    Option("warn_reorder", _B, "Warn of members initialised in another order than declared.", flag("--Wreorder"),
           since=(13, 1)),
    Option("warn_conversion", _B, "Warn of implicit conversions that may change a value.", flag("--Wconversion"),
           since=(13, 4)),
    Option("warning_as_error", _T, "Warnings that are errors.", value("--warning-as-error={}"), since=(13, 1),
           choices=("all-warnings", "reorder", "deprecated-declarations", "conversion")),
    Option("max_errors", _I, "Errors after which to stop.", value("--fmax-errors={}"), low=1, since=(13, 4)),
    Option("brief_diagnostics", _B, "Leave the line of source and the caret out of messages.",
           switch("--brief-diagnostics")),
    # NVRTC 13.5 goes on to report it of all later compiles of a process: measured by logs before and after.
    Option("optimization_info", _T, "Report what the optimiser did.",
           value("--optimization-info={}"), _FRONT_END, _NO_PLACE, choices=("inline",),
           isolated=("--optimization-info", "-opt-info")),
    Option("verbose", _B, "Registers, stack and spills of every kernel, in the log.",
           flag("--ptxas-options=-v"), flag("-verbose"), _NO_PLACE),
    Option("time", _B, "Time of every phase, in the log.", flag("--time=-"), flag("-time"), _NO_PLACE),
    # NVRTC 13.5 ends the process where it cannot write the file.
    Option("time_trace", _T, "A file to write the front end's time trace into.", value("--fdevice-time-trace={}"),
           isolated=("--fdevice-time-trace", "-fdevice-time-trace")),
    # The compiler's own caches
    Option("no_cache", _B, "Do not ask the driver's cache of compiled code.",
           flag("--no-cache"), flag("-no-cache"), _NO_PLACE),
    Option("random_seed", _T, "Seed of names that must be unique, for a build that is always the same.",
           value("--frandom-seed={}")),
    Option("syntax_only", _B, "Check the source and make nothing of it.", flag("--fdevice-syntax-only")),
    Option("pch", _B,
           "Precompile the headers in the first compile of a process. Default: in the third compile of a process that "
           "includes the same headers, if those take 0.5 s (see Precompiled headers).",
           Spelling("--pch, in a directory of the process", lambda _: [])),
    Option("create_pch", _T, "Precompiled header to write.", value("--create-pch={}")),
    Option("use_pch", _T, "Precompiled header to use.", value("--use-pch={}")),
    Option("pch_dir", _T, "Directory of precompiled headers.", value("--pch-dir={}")),
    Option("instantiate_templates_in_pch", _B, "Instantiate templates in a precompiled header already.",
           switch("--instantiate-templates-in-pch")),
    Option("pch_messages", _B, "Say which precompiled header was created or used.", switch("--pch-messages")),
    Option("pch_verbose", _B, "Say why a precompiled header was not used.", switch("--pch-verbose")),
)
# fmt: on

OPTIONS: Mapping[str, Option] = MappingProxyType({row.name: row for row in _ROWS})
"""Every option by name, in the order of the table, which is also the order of rendering."""
