"""Every benchmark, in one run: ``make bench``."""

from __future__ import annotations

import cache_store
import closure
import compile_time
import launch
import saxpy
import warm_process

import cache
import kernels


def main() -> None:
    """Print each table."""
    for benchmark in (saxpy, kernels, compile_time, launch, cache_store, closure, cache, warm_process):
        print("\n".join(benchmark.run()), flush=True)


if __name__ == "__main__":
    main()
