"""JIT options in the driver's own terms, and the buffers that it writes its logs into."""

from __future__ import annotations

from typing import Any

from cujit.devices.jit_options import JitOptions
from cujit.errors import OptionError
from cujit.toolchain.driver import Driver

_LOG_BYTES = 64 << 10
_SPLIT_HELP = "remove split_compile, or run `pip install 'cuda-bindings>=13'` to install bindings that have it"


class JitLogs:
    """The two logs of one compilation by the driver. Their buffers don't move while the driver may write to them."""

    def __init__(self) -> None:
        self.info, self.errors = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)

    @property
    def text(self) -> str:
        """The text of both logs, with errors last."""
        return "\n".join(filter(None, (_text(self.info), _text(self.errors))))


def driver_options(driver: Driver, jit_options: JitOptions, logs: JitLogs) -> dict[Any, Any]:
    """Spell options for the driver: ``CUjit_option`` to value, both logs among them.

    Source: CUDA Driver API manual, ``CUjit_option`` and ``CUjit_cacheMode``.
    """
    option = driver.bindings.CUjit_option
    options: dict[Any, Any] = {
        option.CU_JIT_INFO_LOG_BUFFER: logs.info,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: len(logs.info),
        option.CU_JIT_ERROR_LOG_BUFFER: logs.errors,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(logs.errors),
        option.CU_JIT_LOG_VERBOSE: 1,
    }
    requested = {
        option.CU_JIT_MAX_REGISTERS: jit_options.max_registers,
        option.CU_JIT_OPTIMIZATION_LEVEL: jit_options.opt_level,
        option.CU_JIT_GENERATE_LINE_INFO: jit_options.line_info or None,
        option.CU_JIT_GENERATE_DEBUG_INFO: jit_options.debug or None,
        option.CU_JIT_MAX_THREADS_PER_BLOCK: jit_options.max_threads,
        option.CU_JIT_MIN_CTA_PER_SM: jit_options.min_blocks,
        option.CU_JIT_OVERRIDE_DIRECTIVE_VALUES: jit_options.override_directives or None,
    }
    options |= {name: int(value) for name, value in requested.items() if value is not None}
    if jit_options.split_compile is not None:
        name = getattr(option, "CU_JIT_SPLIT_COMPILE", None)
        if name is None:
            raise OptionError(
                "cuda-bindings 12 doesn't define CU_JIT_SPLIT_COMPILE", help=_SPLIT_HELP, code="option-rejected"
            )
        options[name] = jit_options.split_compile
    if jit_options.cache_mode is not None:
        mode = f"CU_JIT_CACHE_OPTION_{jit_options.cache_mode.upper()}"
        options[option.CU_JIT_CACHE_MODE] = getattr(driver.bindings.CUjit_cacheMode, mode)
    return options


def _text(log: bytearray) -> str:
    return bytes(log).split(b"\0", 1)[0].decode(errors="replace").strip()
