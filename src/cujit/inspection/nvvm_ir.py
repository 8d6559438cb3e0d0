"""The functions of LLVM IR in its text form, by their lines; nothing else of it is read."""

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
    """Names: the kernels, the other functions with a body, and what linking must bring."""

    kernels: tuple[str, ...]
    functions: tuple[str, ...]
    undefined: tuple[str, ...]


def read_nvvmir(text: str) -> NvvmFunctions:
    """Find the functions of LLVM IR text, in their order; the compiler's own (``llvm.…``) are left out."""
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
