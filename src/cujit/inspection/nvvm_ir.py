"""Functions in LLVM IR text, found by lines without parsing the rest."""

from __future__ import annotations

import re

from cujit.values import dataclass

# Sources: LLVM Language Reference, "Functions" and "Calling Conventions" (ptx_kernel); NVVM IR Specification,
# "Global Property Annotation": !nvvm.annotations holds (function, "kernel", 1).
_NAME = r'@(?:"([^"\n]{1,4096})"|([\w$.-]{1,4096}))'
_HEAD = re.compile(rf"^(define|declare)\b([^@\n]{{0,4096}}){_NAME}\(", re.MULTILINE)
_ANNOTATION = re.compile(rf'!\{{[^@\n]{{0,4096}}{_NAME},\s*(?:metadata\s*)?!"kernel",\s*i32 1\b', re.MULTILINE)


@dataclass(frozen=True)
class NvvmFunctions:
    """Names of the kernels, of the other functions with a body, and of undefined functions."""

    kernels: tuple[str, ...]
    functions: tuple[str, ...]
    undefined: tuple[str, ...]


def read_nvvmir(text: str) -> NvvmFunctions:
    """Return the functions of LLVM IR text in order. Intrinsics (``llvm.…``) are omitted."""
    annotated = {quoted or plain for quoted, plain in _ANNOTATION.findall(text)}
    kernels, functions, undefined = [], [], []
    for word, linkage, quoted, plain in _HEAD.findall(text):
        name = quoted or plain
        if word == "declare":
            if not name.startswith("llvm."):
                undefined.append(name)
        elif name in annotated or "ptx_kernel" in linkage.split():
            kernels.append(name)
        else:
            functions.append(name)
    return NvvmFunctions(tuple(kernels), tuple(functions), tuple(undefined))
