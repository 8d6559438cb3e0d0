"""Request: the frozen description of one compile. Printed in errors, hashed for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from cujit.arch import Arch
from cujit.artifact import Kind
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.values import Options, Tool

__all__ = ["Request"]


@dataclass(frozen=True)
class Request:
    """What to compile, into what, for which architecture, how, and which instances of templates."""

    source: Source
    kind: Kind
    arch: Arch
    options: Options = field(default_factory=Options)
    names: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Write the compiler's arguments, without the toolkit's include directories.

        Raises:
            OptionError: the compiler does not have an option that was said.
        """
        if self.source.language == "nvvm":
            return self._nvvm_arguments()
        arch = self.arch.real if self.kind is Kind.CUBIN else self.arch.virtual
        arguments = [f"--gpu-architecture={arch}"]
        if self.kind is Kind.LTOIR:
            arguments.append("--dlink-time-opt")
        for name, value in self.source.define:
            arguments.append(f"--define-macro={name}" if value is None else f"--define-macro={name}={value}")
        arguments += [f"--include-path={directory}" for directory in self.source.include]
        return arguments + self.options.render(Tool.NVRTC)

    def _nvvm_arguments(self) -> list[str]:
        arguments = [f"-arch={self.arch.virtual}"]
        if self.kind is Kind.LTOIR and not self.options.get("dlto"):
            arguments.append("-gen-lto")
        others = (Tool.NVJITLINK,) if self.kind is Kind.CUBIN else ()
        return arguments + self.options.render(Tool.NVVM, others)

    def assembler_arguments(self) -> list[str]:
        """Write the arguments of nvJitLink, which makes machine code of what libNVVM writes; of CUDA C++, none.

        Raises:
            OptionError: neither compiler nor assembler has an option that was said.
        """
        if self.source.language != "nvvm" or self.kind is not Kind.CUBIN:
            return []
        said = self.options.only(Tool.NVJITLINK, extra=False)
        return [f"-arch={self.arch.real}", *said.render(Tool.NVJITLINK)]

    def fingerprint(self) -> str:
        """Hash everything that the user said: sha256 over fields with their labels and lengths, in hex.

        The compiler's version and the content of included files are not in it: the cache adds them.
        """
        digest = hashlib.sha256(b"cujit request 2\0")
        for label, value in self._fields():
            for part in (label.encode(), value.encode("utf-8", "surrogatepass")):
                digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def _fields(self) -> Iterator[tuple[str, str]]:
        source = self.source
        yield "language", source.language
        yield "text", source.text
        yield "program", source.program_name
        for name, text in source.headers:
            yield "header", name
            yield "header text", text
        yield "kind", self.kind.value
        for module in source.modules:
            yield "module", module.name
            yield "module data", hashlib.sha256(module.data).hexdigest()
        if source.libdevice:
            yield "libdevice", "added"
        for argument in self.arguments():
            yield "argument", argument
        for argument in self.assembler_arguments():
            yield "assembler argument", argument
        for name in self.names:
            yield "name", name

    def __str__(self) -> str:
        lines = [f"{self.source.name} -> {self.kind.value} for {self.arch}"]
        lines += [f"  names: {', '.join(self.names)}"] * bool(self.names)
        lines.append(f"  arguments: {' '.join(self.arguments())}")
        lines += [f"  assembler: {' '.join(self.assembler_arguments())}"] * bool(self.assembler_arguments())
        lines += ["  with libdevice"] * self.source.libdevice
        lines += [f"  headers: {', '.join(name for name, _ in self.source.headers)}"] * bool(self.source.headers)
        return "\n".join(lines)
