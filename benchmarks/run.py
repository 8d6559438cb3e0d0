"""Every benchmark, in one run: ``make bench``."""

from __future__ import annotations

import compile_time
import saxpy

import kernels


def main() -> None:
    """Print each table."""
    for benchmark in (saxpy, kernels, compile_time):
        print("\n".join(benchmark.run()), flush=True)


if __name__ == "__main__":
    main()
