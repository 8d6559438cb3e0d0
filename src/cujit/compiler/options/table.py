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

_FRONT_END = Rejects("it is for the C++ compiler; set it when you compile the source")


class OptionType(enum.Enum):
    """Type of an option's values. The value of the enumeration is its description in the documentation."""

    BOOL = "bool"
    INT = "int"
    TEXT = "str"
    INTS = "list of int"
    TEXTS = "list of non-blank str"
    DEFINES = "dict of str to str, int or None"


class Tool(enum.Enum):
    """A tool that receives options. The value of the enumeration is the tool's name."""

    NVRTC = "NVRTC"
    NVJITLINK = "nvJitLink"
    NVVM = "libNVVM"
    TILEIRAS = "tileiras"


class Option(NamedTuple):
    """A row of the table: ``choices`` are the values of a TEXT, and ``low`` and ``high`` the inclusive bounds of an
    INT.

    Options with ``isolated`` are compiled in a separate process. ``isolated`` are NVRTC's spellings in ``extra``.
    ``since`` is the first release whose tools support the option, if later than the oldest that cujit supports.
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
    tileiras: Spelling | Rejects = Rejects("it is for the C++ compiler; set it when you compile the source to Tile IR")

    def spelling(self, tool: Tool) -> Spelling | Rejects:
        """Return the spelling for ``tool``, or the reason why it has none."""
        return {
            Tool.NVRTC: self.nvrtc, Tool.NVJITLINK: self.nvjitlink, Tool.NVVM: self.nvvm, Tool.TILEIRAS: self.tileiras,
        }[tool]  # fmt: skip

    def accept(self, given: object) -> Value:
        """Check a value and convert it to its canonical form.

        Raises:
            OptionError: the value has another type, or is out of bounds.
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
    """Return a text that may be a path. Bytes that aren't UTF-8 are passed to the tool unchanged."""
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
    """Return one or several texts or paths as a tuple, or None if one is blank or contains a NUL."""
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
        f"define: {spell(name)} is not a valid macro name",
        help=Hint(
            "write define={'N': 4, 'FLAG': None, 'SQ(x)': '((x)*(x))'}",
            shell="write -D N=4 -D FLAG -D 'SQ(x)=((x)*(x))'",
        ),
    )


def _macro_value(name: object, given: object) -> str | None:
    if given is None:
        return None
    if isinstance(given, str) and is_utf8(given) and not any(c in given for c in "\0\n\r"):
        return given
    number = int(given) if isinstance(given, bool) else _int(given)
    if number is None:
        raise OptionError(
            f"define: the value of {name} is {spell(given)}, expected a str of one line, an int or None",
            help="pass values that C++ spells differently, such as 1.5f, as str",
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
    Option("std", _T, "C++ dialect. NVRTC's default is c++17.",
           value("--std={}"), choices=("c++03", "c++11", "c++14", "c++17", "c++20", "c++23")),
    Option("define", _D, "Macros to define, as a dict of names to values. The value None defines a macro without a "
                         "value. "
                         "`Source.cuda(define=…)` does the same.",
           pairs("--define-macro={}")),
    Option("undef", _TT, "Macros to undefine.", each("--undefine-macro={}")),
    Option("include", _TT,
           "Directories to search for `#include` files, before the toolkit's directories. `Source.cuda(include=…)` "
           "does the same.",
           each("--include-path={}")),
    Option("pre_include", _TT, "Headers to include before the first line of the source.", each("--pre-include={}")),
    Option("no_source_include", _B,
           "Don't search the directory of the including file for headers. With this option, `cooperative_groups.h` "
           "and `mma.h` don't compile.",
           flag("--no-source-include")),
    Option("default_device", _B, "Treat functions and variables without an annotation as `__device__`.",
           flag("--device-as-default-execution-space")),
    Option("host_headers", _T,
           "`stub` provides empty versions of `<vector>`, `<iostream>` and other host headers. Including an unknown "
           "header is still an error.",
           Spelling("cujit adds an include directory.", lambda _: [f"--include-path={HOST_DIRECTORY}"]),
           choices=("stub",)),
    Option("host_code", _T,
           "`skip` compiles an ordinary `.cu` file: cujit ignores host functions, launches and host includes "
           "(docs/how-to/ordinary-files.md). The option implies `dialect`, `host_headers` and `default_device`.",
           Spelling("cujit removes host code from the source.", lambda _: []), choices=("skip",)),
    Option("dialect", _T,
           "`nvcc` defines names that the nvcc compiler accepts but NVRTC doesn't, such as `__asm__`, `__builtin_ctz`, "
           "`uint` and `M_PI`.",
           Spelling("cujit includes additional headers.", lambda _: []), choices=("nvcc",)),
    # After a compile with `debug` or the fastest `ofast_compile`, NVRTC 13.5 reads `__grid_constant__` parameters of
    # all later ones otherwise: measured by PTX before and after, one option at a time.
    # NVRTC 12.9 and 13.5 take all later compiles of a process so, once one was: measured by PTX before and after.
    Option("restrict", _B, "Treat every kernel pointer parameter as `__restrict__`.", flag("--restrict"),
           isolated=("--restrict", "-restrict")),
    Option("int128", _B, "Allow `__int128`.", flag("--device-int128")),
    Option("float128", _B, "Allow `__float128`. Requires sm_100 or later.", flag("--device-float128")),
    Option("builtin_move_forward", _B, "Let NVRTC declare `std::move` and `std::forward`.",
           switch("--builtin-move-forward")),
    Option("builtin_initializer_list", _B, "Let NVRTC declare `std::initializer_list`.",
           switch("--builtin-initializer-list")),
    Option("minimal", _B, "Omit most built-in declarations, which speeds up the front end. CCCL doesn't compile with "
                          "this option.",
           flag("--minimal")),
    Option("enable_tile", _B, "Allow CUDA Tile code.", flag("--enable-tile"), since=(13, 3)),
    Option("simt_only", _B, "With enable_tile: omit tile functions.", flag("--simt-only"), since=(13, 3)),
    Option("default_tile", _B, "With enable_tile: treat functions without an annotation as tile functions.",
           flag("--tile-as-default-execution-space"), since=(13, 3)),
    Option("diagnose_implicit_tile_var", _B, "With enable_tile: report variables that are implicitly tile variables.",
           flag("--diagnose-implicit-tile-var"), since=(13, 3)),
    Option("tile_preview", _T, "Enable preview features of CUDA Tile, which the next release can change.",
           value("--tile-preview={}"), choices=("simt",), since=(13, 5), tileiras=value("--preview={}")),
    # Arithmetic
    Option("fmad", _B, "Fuse a * b + c into one multiply-add with a single rounding.",
           switch("--fmad"), switch("-fma", "1", "0"), switch("-fma", "1", "0")),
    Option("ftz", _B, "Flush single-precision denormals to zero.",
           switch("--ftz"), switch("-ftz", "1", "0"), switch("-ftz", "1", "0")),
    Option("prec_div", _B, "Use IEEE 754 rounding for single-precision division.",
           switch("--prec-div"), switch("-prec-div", "1", "0"), switch("-prec-div", "1", "0")),
    Option("prec_sqrt", _B, "Use IEEE 754 rounding for single-precision square roots.",
           switch("--prec-sqrt"), switch("-prec-sqrt", "1", "0"), switch("-prec-sqrt", "1", "0")),
    Option("use_fast_math", _B,
           "Enable ftz and fmad, and disable prec_div and prec_sqrt. With NVRTC, also use fast intrinsics for "
           "functions such as `sinf`.",
           flag("--use_fast_math"), flag("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"),
           flag("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1")),
    Option("extra_device_vectorization", _B, "Vectorize more aggressively.",
           flag("--extra-device-vectorization"), _NO_PLACE, _NO_PLACE),
    Option("no_signed_zeros", _B, "Ignore the sign of zero in optimizations.",
           flag("--fno-signed-zeros"), since=(13, 4)),
    Option("associative_math", _B, "Allow reordering of floating-point additions and multiplications.",
           flag("--fassociative-math")),
    Option("finite_math_only", _B, "Assume that no floating-point value is infinite or NaN.",
           flag("--ffinite-math-only"), since=(13, 4)),
    # Code generation
    # nvJitLink itself knows -O0 and -O3; its assembler knows all four.
    Option("opt_level", _I,
           "Optimization level of the assembler, of the linker when linking, or of libNVVM for LLVM IR.",
           value("--ptxas-options=-O{}"), Spelling("-O0|-Xptxas=-O1|-Xptxas=-O2|-O3",
                                                  lambda n: [f"-O{n}" if n in (0, 3) else f"-Xptxas=-O{n}"]),
           value("-opt={}"), low=0, high=3, tileiras=value("--opt-level={}")),
    Option("ofast_compile", _T, "Compile faster, at the cost of slower code.",
           value("--Ofast-compile={}"), value("-Ofc={}"), _NO_PLACE, choices=("0", "min", "mid", "max"),
           isolated=("--Ofast-compile", "-Ofast-compile", "-Ofc")),
    Option("maxrregcount", _I, "Maximum number of registers per thread.",
           value("--maxrregcount={}"), value("-maxrregcount={}"), _NO_PLACE, low=16, high=255),
    # What libNVVM writes always is.
    Option("rdc", _B, "Generate relocatable device code, which can be linked with other objects.",
           switch("--relocatable-device-code"), Rejects("the link is where relocatable code ends"),
           Spelling("always enabled", lambda _: [])),
    Option("dlto", _B, "Generate code for link-time optimization. cujit sets this option when it compiles to LTO-IR "
                       "or links LTO-IR.",
           flag("--dlink-time-opt"), flag("-lto"), flag("-gen-lto")),
    Option("gen_opt_lto", _B, "Also optimize LTO-IR before the link.", flag("--gen-opt-lto"), _FRONT_END, _NO_PLACE),
    Option("extensible_whole_program", _B, "Compile as a whole program, but allow calls to unresolved functions.",
           flag("--extensible-whole-program"), _FRONT_END, _NO_PLACE),
    Option("split_compile", _I, "Number of optimizer threads. 0 means one per processor.",
           value("--split-compile={}"), value("-split-compile={}"), value("-split-compile={}"), low=0),
    Option("split_compile_extended", _I,
           "Number of threads for an entire LTO link. 0 means one per processor. The generated code can differ.",
           _LINK_ONLY, value("-split-compile-extended={}"), _LINK_ONLY, low=0),
    Option("relocatable", _B, "Create a cubin that can be linked again and can have unresolved functions.",
           _LINK_ONLY, flag("-r"), _LINK_ONLY, since=(13, 0)),
    Option("jump_table_density", _I, "Minimum percentage of cases in a `switch` range for the compiler to use a jump "
                                     "table.",
           value("--jump-table-density={}"), value("-jump-table-density={}"), value("-jump-table-density={}"),
           low=0, high=101),
    # The manual of nvJitLink has it too, and nvJitLink 13.5 refuses it.
    Option("device_stack_protector", _B, "Add stack protection to functions that have local arrays.",
           switch("--device-stack-protector"), _FRONT_END, _NO_PLACE),
    Option("discard_value_names", _B, "Discard the names of LLVM values to save memory.",
           switch("--discard-value-names"), _FRONT_END, Rejects("it reads textual LLVM IR by these names")),
    Option("nvvm_latest", _B,
           "For all architectures, compile LLVM IR in libNVVM's newest dialect, which is always used for sm_100 and "
           "later.",
           Rejects("it has no LLVM IR"), flag("-nvvm-latest"), flag("-nvvm-latest"), since=(13, 5)),
    Option("ptx_version_target", _I,
           "PTX version to generate, for older drivers: 90 means 9.0. Requires sm_100 or later, or nvvm_latest.",
           Rejects("cujit.retarget lowers the version of PTX"), _FRONT_END, value("-ptx-version-target={}"),
           low=86, high=99),
    Option("modify_stack_limit", _B, "Allow NVRTC to raise the host stack limit while it compiles.",
           switch("--modify-stack-limit")),
    Option("ptxas_options", _TT, "Arguments to pass to the assembler unchanged.",
           each("--ptxas-options={}"), each("-Xptxas={}"), _NO_PLACE),
    Option("kernels_used", _TT, "Kernels to keep in an LTO link. The linker can remove all others.",
           _LINK_ONLY, joined("-kernels-used={}"), _LINK_ONLY),
    Option("variables_used", _TT, "Variables to keep in an LTO link. The linker can remove all others.",
           _LINK_ONLY, joined("-variables-used={}"), _LINK_ONLY),
    Option("optimize_unused_variables", _B, "Remove device variables that no device code uses.",
           _LINK_ONLY, flag("-optimize-unused-variables"), _LINK_ONLY),
    # Debugging
    Option("debug", _B, "Generate full debug information (`-G`).", flag("--device-debug"), flag("-g"), flag("-g"),
           isolated=("--device-debug", "-device-debug", "-G"), tileiras=flag("--device-debug")),
    Option("lineinfo", _B, "Add source line information for profilers and error reports. The generated code doesn't "
                           "change.",
           flag("--generate-line-info"), flag("-lineinfo"), flag("-generate-line-info"),
           tileiras=flag("--lineinfo")),
    Option("no_lineinfo_inlined_at", _B, "With lineinfo: omit information about inlined functions.",
           flag("--no-lineinfo-inlined-at"), _FRONT_END, _NO_PLACE),
    Option("optimize_debug", _B, "With debug: optimize the code anyway.", flag("--dopt=on"), _FRONT_END, _NO_PLACE),
    # Messages
    Option("disable_warnings", _B, "Disable all warnings.", flag("--disable-warnings")),
    Option("diag_suppress", _II, "Numbers of the diagnostic messages to suppress.", joined("--diag-suppress={}")),
    Option("diag_warn", _II, "Numbers of the diagnostic messages to report as warnings.", joined("--diag-warn={}")),
    Option("diag_error", _II, "Numbers of the diagnostic messages to report as errors.", joined("--diag-error={}")),
    Option("display_error_number", _B, "Show the numbers of diagnostic messages. Warnings always show their numbers.",
           Spelling("--display-error-number|--no-display-error-number",
                    lambda on: ["--display-error-number" if on else "--no-display-error-number"])),
    Option("warn_reorder", _B, "Warn about members that are initialized in a different order than declared.",
           flag("--Wreorder"), since=(13, 1)),
    Option("warn_conversion", _B, "Warn about implicit conversions that can change a value.", flag("--Wconversion"),
           since=(13, 4)),
    Option("warning_as_error", _T, "Warnings to treat as errors.", value("--warning-as-error={}"), since=(13, 1),
           choices=("all-warnings", "conversion", "deprecated-declarations", "reorder")),
    Option("max_errors", _I, "Number of errors after which the compiler stops.",
           value("--fmax-errors={}"), low=1, since=(13, 4)),
    Option("brief_diagnostics", _B, "Omit the source line and the caret from messages.",
           switch("--brief-diagnostics")),
    # NVRTC 13.5 goes on to report it of all later compiles of a process: measured by logs before and after.
    Option("optimization_info", _T, "Report which optimizations the compiler performed.",
           value("--optimization-info={}"), _FRONT_END, _NO_PLACE, choices=("inline",),
           isolated=("--optimization-info", "-opt-info")),
    Option("verbose", _B, "Write the registers, stack size and spills of every kernel to the log.",
           flag("--ptxas-options=-v"), flag("-verbose"), _NO_PLACE),
    Option("time", _B, "Write the time of every compiler phase to the log.",
           flag("--time=-"), flag("-time"), _NO_PLACE),
    # NVRTC 13.5 ends the process where it cannot write the file.
    Option("time_trace", _T, "File to write the front end's time trace to.", value("--fdevice-time-trace={}"),
           isolated=("--fdevice-time-trace", "-fdevice-time-trace")),
    # The compiler's own caches
    Option("no_cache", _B, "Don't use the driver's cache of compiled code.",
           flag("--no-cache"), flag("-no-cache"), _NO_PLACE),
    Option("random_seed", _T, "Seed for generating unique names, for reproducible builds.",
           value("--frandom-seed={}")),
    Option("syntax_only", _B, "Check the syntax only, without generating code.", flag("--fdevice-syntax-only")),
    Option("pch", _B,
           "Precompile the headers in the first compile of a process. Default: precompile in the third compile with "
           "the same headers, if parsing the headers takes 0.5 s (see Precompiled headers).",
           Spelling("--pch, in a per-process directory", lambda _: [])),
    Option("create_pch", _T, "Precompiled header file to write.", value("--create-pch={}")),
    Option("use_pch", _T, "Precompiled header file to use.", value("--use-pch={}")),
    Option("pch_dir", _T, "Directory for precompiled headers.", value("--pch-dir={}")),
    Option("instantiate_templates_in_pch", _B, "Instantiate templates when writing a precompiled header.",
           switch("--instantiate-templates-in-pch")),
    Option("pch_messages", _B, "Report which precompiled header was created or used.", switch("--pch-messages")),
    Option("pch_verbose", _B, "Report why a precompiled header was not used.", switch("--pch-verbose")),
)
# fmt: on

OPTIONS: Mapping[str, Option] = MappingProxyType({row.name: row for row in _ROWS})
"""Every option by name, in the order of the table, which is also the order of rendering."""
