"""User options for the compiler that turns PTX into machine code when an image is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from cujit.cache.settings import Compiling
from cujit.errors import NotCompiledError, OptionError, alike, spell
from cujit.values import dataclass, replace

ASSEMBLERS = ("auto", "driver", "nvjitlink", "none")
CACHE_MODES = ("none", "ca", "cg")
_MOST_REGISTERS = 255
_HIGHEST_LEVEL = 4
_MOST_THREADS, _MOST_BLOCKS = 1024, 32
_MOST_COMPILING = 1024


@dataclass(frozen=True)
class JitOptions:
    """Options of the driver's JIT; None and False mean that the option is not said.

    ``max_registers`` is per thread, ``opt_level`` from 0 to 4; ``line_info`` and ``debug`` keep lines of the source,
    ``cache_mode`` is how global loads are cached: ``none``, ``ca`` (all levels) or ``cg`` (L2 alone).
    ``max_threads`` is the most threads of a block, and ``min_blocks`` how many such blocks an SM should run, for
    kernels without launch bounds; with ``override_directives`` these and ``max_registers`` count in kernels that have
    their own, too. ``split_compile`` is how many threads optimize; 0 is one for each processor.
    ``assembler`` chooses who makes machine code of PTX: ``driver``, ``nvjitlink``, or ``auto``, which is the driver
    as long as it can and the installed nvJitLink for PTX that is newer; ``none`` makes PTX an error on a GPU. None of
    them does anything to machine code.

    Source: CUDA Driver API manual, ``CUjit_option``; nvJitLink manual, "Supported Link Options".

    Raises:
        OptionError: a value is of the wrong type, or outside of its range.
    """

    max_registers: int | None = None
    opt_level: int | None = None
    line_info: bool = False
    debug: bool = False
    cache_mode: str | None = None
    assembler: str = "auto"
    max_threads: int | None = None
    min_blocks: int | None = None
    override_directives: bool = False
    split_compile: int | None = None

    def __post_init__(self) -> None:
        _check_number("max_registers", self.max_registers, 1, _MOST_REGISTERS)
        _check_number("opt_level", self.opt_level, 0, _HIGHEST_LEVEL)
        _check_number("max_threads", self.max_threads, 1, _MOST_THREADS)
        _check_number("min_blocks", self.min_blocks, 1, _MOST_BLOCKS)
        _check_number("split_compile", self.split_compile, 0, _MOST_COMPILING)
        if self.min_blocks is not None and self.max_threads is None:
            raise OptionError(
                "min_blocks applies to blocks of max_threads threads, but max_threads is not set",
                help="max_threads=256",
            )
        for name in ("line_info", "debug", "override_directives"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False, not {spell(getattr(self, name))}")
        _check_word("cache_mode", self.cache_mode, CACHE_MODES)
        _check_word("assembler", self.assembler, ASSEMBLERS)

    @classmethod
    def of(cls, given: JitOptions | Mapping[str, object] | None) -> JitOptions:
        """Return JitOptions for a user's options: a mapping, JitOptions, or None.

        Raises:
            OptionError: an option is unknown or has an invalid value.
        """
        if given is None:
            return _PLAIN
        if isinstance(given, JitOptions):
            return given
        if not isinstance(given, Mapping):
            raise OptionError(f"JIT options must be a mapping, not {type(given).__name__}", help=_HELP)
        known = cls.__match_args__
        for name in given:
            if name not in known:
                near = alike(name if isinstance(name, str) else spell(name), known, most=1)
                raise OptionError(
                    f"unknown JIT option {spell(name)}",
                    help=f"did you mean {spell(near[0])}?" if near else _HELP,
                    code="option-unknown",
                )
        return cls(**given)  # type: ignore[arg-type]  # checked when it is made

    def under(self, compiling: Compiling) -> JitOptions:
        """Return the options, restricted by a compilation policy.

        Raises:
            NotCompiledError: nvJitLink was requested by name, but the policy forbids it.
        """
        if not compiling.is_forbidden:
            return self
        if self.assembler == "nvjitlink":
            raise NotCompiledError(
                f"nvJitLink was requested, but compilation is disabled here ({compiling})",
                help="write assembler='auto'",
            )
        is_driver_barred = compiling is Compiling.NEVER_JIT or self.assembler == "none"
        return replace(self, assembler="none" if is_driver_barred else "driver")

    @property
    def nvjitlink_arguments(self) -> tuple[str, ...]:
        """The options as nvJitLink arguments, as far as nvJitLink supports them. The cache mode is
        passed on to ptxas.
        """
        rows = (
            (f"-maxrregcount={self.max_registers}", self.max_registers is not None),
            (_LEVELS[self.opt_level or 0], self.opt_level is not None),
            ("-lineinfo", self.line_info),
            ("-g", self.debug),
            (f"-Xptxas=-dlcm={self.cache_mode}", self.cache_mode in ("ca", "cg")),
            (f"-Xptxas=--maxntid={self.max_threads}", self.max_threads is not None),
            (f"-Xptxas=--minnctapersm={self.min_blocks}", self.min_blocks is not None),
            ("-Xptxas=--override-directive-values", self.override_directives),
            (f"-split-compile={self.split_compile}", self.split_compile is not None),
        )
        return tuple(argument for argument, is_set in rows if is_set)


# nvJitLink itself knows -O0 and -O3 (measured, 13.5); its assembler knows all of 0 to 3.
_LEVELS = ("-O0", "-Xptxas=-O1", "-Xptxas=-O2", "-O3", "-O3")
_HELP = (
    "there are max_registers, opt_level, line_info, debug, cache_mode, assembler, max_threads, min_blocks, "
    "override_directives and split_compile"
)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if value is None:
        return
    if type(value) is not int or not least <= value <= most:
        raise OptionError(f"{name} must be a number from {least} to {most}, not {spell(value)}")


def _check_word(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise OptionError(f"{name} is {spell(value)}, expected {', '.join(choices)}")


_PLAIN = JitOptions()
