"""The variables of the environment that cujit reads: ``cujit --help`` lists them, and ``docs/environment.md``."""

from __future__ import annotations

from cujit.values import NamedTuple


class Variable(NamedTuple):
    """One variable: what it takes, what it is for, what holds without it, and the page with the whole of it."""

    name: str
    takes: str
    meaning: str
    unset: str = ""
    page: str = ""

    @property
    def said(self) -> str:
        """What the help says of it; of several words that it takes, the first is that of who says nothing."""
        if "," in self.takes:
            return f"{self.meaning}: {self.takes}"
        return self.meaning + (f"; {self.unset} if unset" if self.unset else "")


VARIABLES = (
    Variable("CUJIT_CACHE", "0 or 1", "whether anything is kept", "1", "cache"),
    Variable("CUJIT_CACHE_BYTES", "a size", "the most that the cache holds, such as 4GiB", "2GiB", "cache"),
    Variable("CUJIT_CACHE_DIR", "a directory", "the cache that is written", "$XDG_CACHE_HOME/cujit", "cache"),
    Variable("CUJIT_CACHE_ROOTS", "paths", "caches and packs that are only read, with : between them", "", "cache"),
    Variable(
        "CUJIT_COMPILE", "auto, warn, never, never-jit", "what is done about what no cache has", "auto", "shipping"
    ),
    Variable("CUJIT_RECORD", "a directory", "write down there what is compiled", "", "worklists"),
    Variable("CUJIT_REMOTE", "a URL", "a cache that many machines share", "", "remote"),
    Variable("CUJIT_REMOTE_WAIT_S", "seconds", "how long a process waits for it in vain", "0.15", "remote"),
    Variable(
        "CUJIT_SOURCES", "a directory", "texts compiled with lines, for ncu and cuda-gdb", "", "how-to/see-source"
    ),
    Variable("CUJIT_TRUST", "a file", "the public keys whose signatures are believed", "", "remote"),
    Variable("CUJIT_TUNE", "auto, never, again", "what is done about tunings that are not there", "auto", "tuning"),
    Variable("CUJIT_CPU_OPTIMIZE", "0 or 1", "whether LLVM optimises for the CPU device", "1", "cpu"),
    Variable(
        "CUJIT_DUMP", "stages, times or all", "print stages of the compiler of the CPU device", "", "cpu-compiler"
    ),
    Variable("CUJIT_PERF", "0, 1, ptx", "show kernels of the CPU device to perf and gdb", "0", "cpu"),
    Variable("CUJIT_EMULATE", "settings", "which device child processes emulate"),
    Variable("CUDA_HOME", "a directory", "a toolkit to look for, where no wheel brings it"),
    Variable("CUDA_PATH", "a directory", "the same, asked second"),
    Variable("CUDA_VISIBLE_DEVICES", "numbers", "which GPUs the driver shows"),
    Variable("NO_COLOR", "anything", "anything but nothing is --color never"),
    Variable("SOURCE_DATE_EPOCH", "seconds", "the time that is noted in packs and lists", "0", "worklists"),
    Variable("XDG_CACHE_HOME", "a directory", "where caches of the user are", "~/.cache", "cache"),
    Variable("XDG_RUNTIME_DIR", "a directory", "where locks are, of a cache that other machines share", "", "cache"),
)
"""Ours first, by subject; then what is read of others."""
