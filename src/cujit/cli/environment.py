"""The environment variables that cujit reads, for ``cujit --help`` and ``docs/environment.md``."""

from __future__ import annotations

from cujit.values import NamedTuple


class EnvironmentVariable(NamedTuple):
    """One variable: its values, its meaning, its default, and the page that explains it."""

    name: str
    takes: str
    meaning: str
    unset: str = ""
    page: str = ""

    @property
    def described(self) -> str:
        """Return the meaning and the default, as the help prints them."""
        return self.meaning + (f" Default: {self.unset}." if self.unset else "")


VARIABLES = (
    EnvironmentVariable("CUJIT_CACHE", "0 or 1", "Whether to cache compiled images: 0 (no) or 1 (yes).", "1", "cache"),
    EnvironmentVariable("CUJIT_CACHE_BYTES", "size", "Maximum size of the cache, such as 4GiB.", "2GiB", "cache"),
    EnvironmentVariable("CUJIT_CACHE_DIR", "directory", "Directory of the cache.", "$XDG_CACHE_HOME/cujit", "cache"),
    EnvironmentVariable("CUJIT_CACHE_ROOTS", "paths", "Read-only caches and packs, separated by colons.", "", "cache"),
    EnvironmentVariable(
        "CUJIT_COMPILE",
        "auto, warn, never, never-jit",
        "On a cache miss, compile (auto), compile and warn (warn), or raise an error (never).",
        "auto",
        "shipping",
    ),
    EnvironmentVariable(
        "CUJIT_PYTHON", "file", "Python interpreter for worker processes of a frozen program.", "", "installation"
    ),
    EnvironmentVariable(
        "CUJIT_RECORD", "directory", "Directory to record compile requests in, for worklists.", "", "worklists"
    ),
    EnvironmentVariable("CUJIT_REMOTE", "URL", "URL of a shared remote cache.", "", "remote"),
    EnvironmentVariable(
        "CUJIT_REMOTE_WAIT_S", "seconds", "Seconds to wait for an unresponsive remote cache.", "0.15", "remote"
    ),
    EnvironmentVariable(
        "CUJIT_SOURCES",
        "directory",
        "Directory to copy the source of each kernel to, for ncu and cuda-gdb.",
        "",
        "how-to/see-source",
    ),
    EnvironmentVariable("CUJIT_TRUST", "file", "File of trusted public keys, for a remote cache.", "", "remote"),
    EnvironmentVariable(
        "CUJIT_TUNE",
        "auto, never, again",
        "When cujit.tune benchmarks: auto (if no result is stored), again (always) or never.",
        "auto",
        "tuning",
    ),
    EnvironmentVariable(
        "CUJIT_CPU_OPTIMIZE",
        "0 or 1",
        "Whether to optimize CPU-device kernels with LLVM: 0 (no) or 1 (yes).",
        "1",
        "cpu",
    ),
    EnvironmentVariable(
        "CUJIT_DUMP",
        "stages, times or all",
        "What to print about the CPU device's compiler: stages, times or all.",
        "",
        "cpu-compiler",
    ),
    EnvironmentVariable(
        "CUJIT_PERF",
        "0, 1 or ptx",
        "Show CPU-device kernels to perf and gdb: 0 (no), 1 (by source line), ptx (by PTX line).",
        "0",
        "cpu",
    ),
    EnvironmentVariable(
        "CUJIT_EMULATE",
        "settings",
        "Emulator settings that cujit emulate passes to its child processes.",
        "",
        "emulate",
    ),
    EnvironmentVariable("CUDA_HOME", "directory", "CUDA toolkit to use for libraries that aren't installed as wheels."),
    EnvironmentVariable("CUDA_PATH", "directory", "CUDA toolkit to use if CUDA_HOME isn't set."),
    EnvironmentVariable("CUDA_VISIBLE_DEVICES", "numbers", "GPUs to make visible to CUDA programs."),
    EnvironmentVariable("NO_COLOR", "any text", "Disable color if set to any non-empty value."),
    EnvironmentVariable(
        "SOURCE_DATE_EPOCH",
        "seconds",
        "Time to record in packs and worklists, in seconds since the Unix epoch.",
        "0",
        "worklists",
    ),
    EnvironmentVariable("XDG_CACHE_HOME", "directory", "Base directory of user caches.", "~/.cache", "cache"),
    EnvironmentVariable(
        "XDG_RUNTIME_DIR", "directory", "Directory for lock files if the cache is on a shared file system.", "", "cache"
    ),
)
"""cujit's own variables first, by subject; then the variables of other tools that cujit reads."""
