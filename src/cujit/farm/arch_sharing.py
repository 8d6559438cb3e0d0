"""Shared compiles: nvJitLink builds the code of several architectures from the PTX or LTO-IR of one compile.

NVRTC has one code generator for architectures below 10.0, and another from 10.0 on. From LTO-IR for the lowest
architecture of a generator, the linker builds the same code as NVRTC. The PTX of different architectures is the same,
except for ``.target``, only below 10.0. The newer generator unrolls loops differently for each architecture. Source:
measured with NVRTC 12.9 and 13.5, for 7.5 to 12.1.
"""

from __future__ import annotations

import bisect
import re

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.image_jobs import LinkJob
from cujit.compiler.includes.arch_dependence import find_arch_dependence
from cujit.compiler.includes.files import NotModelledError
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import KeyMaker
from cujit.compiler.options.values import Options, Tool
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import OptionError, spell
from cujit.values import replace

WAYS = ("ptx", "ltoir")
"""What may be shared."""

_FAMILIES = {"ptx": (75, 100), "ltoir": (75, 100, 122)}
"""The least number of each family; from the last one on nothing was measured."""

_FREE = frozenset(
    """
    include define pre_include no_source_include default_device minimal builtin_move_forward builtin_initializer_list
    fmad ftz prec_div prec_sqrt use_fast_math disable_warnings diag_suppress diag_warn diag_error display_error_number
    """.split()  # noqa: SIM905
)
"""Options of the front end, and of arithmetic, which PTX holds and the linker takes; any other may be for ptxas."""

_DIALECTS = frozenset((("std", "c++17"), ("std", "c++20"), ("std", "c++23")))
"""In the older ones comments may end elsewhere than the scanner of includes finds them to."""

_TARGET = re.compile(rb"^\.target sm_\d+", re.MULTILINE)


def check_share(share: object) -> str:
    """Return the kind of code that architectures share, or an empty string for none.

    Raises:
        OptionError: the value is not one of ``WAYS``.
    """
    if share is None or share == "":
        return ""
    if share not in WAYS:
        raise OptionError(f"share is {spell(share)}, expected one of {', '.join(WAYS)}", help="write share='ptx'")
    return str(share)


def family(request: Request, share: str) -> int:
    """Return the number of the architecture family that one compile can serve. Return 0 if there is no such family."""
    arch, firsts = request.arch, _FAMILIES.get(share, ())
    if request.kind is not ImageKind.CUBIN or arch.suffix:
        return 0
    return bisect.bisect_right(firsts, arch.number) % (len(firsts) or 1)


def alike(request: Request, share: str) -> Request:
    """Return the common part of requests that can be compiled together.

    It has no names, and its architecture is the first of the family if code is shared.
    """
    number = family(request, share)
    arch = Arch(ArchKind.REAL, _FAMILIES[share][number - 1]) if number else request.arch
    return replace(request, names=(), arch=arch)


def why_alone(request: Request, share: str, keys: KeyMaker) -> str:
    """Return why a request needs a separate compile for its architecture.

    Return an empty string if one compile can serve its family.
    """
    if request.source.language != "cuda":
        return "it is not a CUDA C++"
    if request.kind is not ImageKind.CUBIN:
        return f"it makes {request.kind.value}, and no machine code"
    if not family(request, share):
        return f"{request.arch} is of no family"
    options = request.options
    option = next((name for name in options if name not in _FREE and (name, str(options[name])) not in _DIALECTS), "")
    if option or options.extra:
        return f"the option {option or options.extra[0]}"
    try:
        return _why_arch_dependent(keys.has_include_calls(request))
    except (NotModelledError, OSError) as e:
        return str(e)


def why_names_alone(request: Request) -> str:
    """Return why the requested instances need a separate compile for their architecture.

    Return an empty string if one compile can serve its family.
    """
    return _why_arch_dependent(next(filter(None, (find_arch_dependence(name.encode()) for name in request.names)), ""))


def _why_arch_dependent(word: str) -> str:
    return f"it may ask for the architecture: {word}" if word else ""


def common(request: Request, share: str, first: Arch, runner: Runner) -> Artifact:
    """Compile a request to the PTX or LTO-IR that a family shares, for its ``first`` architecture.

    Raises:
        CujitError: as in ``Runner.get``.
    """
    kind = ArchKind.VIRTUAL if share == "ptx" else ArchKind.LTO
    return runner.get(CompileJob(request.for_arch(Arch(kind, first.number))))


def assembled(shared: Artifact, arch: Arch, options: Options, runner: Runner) -> Artifact:
    """Return the machine code for one architecture, built from shared PTX or LTO-IR.

    The ``tool`` of the result names the shared code and the tools that built it.

    Raises:
        CujitError: as in ``Runner.get``.
    """
    is_ptx = shared.kind is ImageKind.PTX
    part = shared
    if is_ptx:  # to the letter what NVRTC writes for that architecture
        data = _TARGET.sub(b".target sm_%d" % arch.number, shared.data, count=1)
        part = replace(shared, data=data, arch=arch.virtual)
    assembler_options = Options() if is_ptx else options.only(Tool.NVJITLINK, extra=False)
    made = runner.get(LinkJob((part,), ImageKind.CUBIN, arch, assembler_options))
    return replace(
        made,
        names=shared.names,
        signatures=shared.signatures,
        log=shared.log,
        name=shared.name,
        tool=f"{shared.tool}, {made.tool} (of {shared.kind.value} for {shared.arch})",
    )
