"""Names that the toolkit's headers declare, for names that a compiler doesn't know."""

from __future__ import annotations

from cujit.errors import Diagnostic
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls fail

_UNDEFINED = r'identifier "(\w+)" is undefined|namespace "(cuda)" has no '
_NO_NAMESPACE = 'name followed by "::" must be'
_HEADERS = (
    (r"_*half2?(_raw)?|__\w*half\w*|__h(add|sub|mul|fma|div|neg|max|min|eq|ne|lt|le|gt|ge)2?(_\w+)?", "cuda_fp16.h"),
    (r"_*nv_bfloat16\w*|__\w*bfloat16\w*", "cuda_bf16.h"),
    (r"__nv_fp8\w*|__nv_cvt_\w*fp8\w*", "cuda_fp8.h"),
    (r"__nv_fp6\w*", "cuda_fp6.h"),
    (r"__nv_fp4\w*", "cuda_fp4.h"),
    (r"cooperative_groups", "cooperative_groups.h"),
    (r"nvcuda|wmma", "mma.h"),
    (r"cu(Float|Double)?Complex|make_cu(Float|Double)?Complex", "cuComplex.h"),
    (r"CUtensorMap\w*", "cuda.h"),
    (r"cub", "cub/block/block_reduce.cuh"),
)
"""Patterns of names, and the header. Source: the headers of CUDA 13.5."""
_OF_LIBCUDACXX = r"\bcuda::((?:std::)?)(\w+)"


def header_for(diagnostic: Diagnostic) -> tuple[str, str] | None:
    """Find the name that a diagnostic misses, and the header that declares it; None if it is about nothing of the kind.

    Example::

        assert header_for(Diagnostic("error", 'identifier "half" is undefined')) == ("half", "cuda_fp16.h")
    """
    found = re.search(_UNDEFINED, diagnostic.message)
    if found is not None:
        name = found[1] or found[2]
    elif diagnostic.message.startswith(_NO_NAMESPACE):
        name = re.split(r"\W", diagnostic.source_line[max(diagnostic.column - 1, 0) :])[0]
    else:
        return None
    if name == "cuda":
        member = re.search(_OF_LIBCUDACXX, diagnostic.source_line)
        return (member[0], f"cuda/{member[1].replace('::', '/')}{member[2]}") if member else None
    return next(((name, header) for pattern, header in _HEADERS if re.fullmatch(pattern, name)), None)
