"""Use events to measure how long a program spends compiling, and to find kernels that it compiles more than once."""

from collections import Counter

import cujit
import cujit.events


class Seen:
    """What was made, how often each was asked for, and the seconds of all."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.seconds = 0.0

    def __call__(self, event: cujit.events.Happening) -> None:
        """Count one event."""
        if isinstance(event, cujit.events.Made):
            self.seconds += event.seconds
        if isinstance(event, (cujit.events.Made, cujit.events.CacheHit)):
            self.asked[event.subject] += 1


def work() -> None:
    """Stand for the program."""
    for n in (1, 2, 1):
        cujit.compile(cujit.Source.cuda("__global__ void k(int* x) { *x = N; }", name=f"k{n}.cu", define={"N": n}))


def main() -> Seen:
    """Run the program, and tell."""
    seen = Seen()
    with cujit.events.subscribe(seen):
        work()
    for subject, times in seen.asked.most_common():
        print(f"{subject}: {times}")
    print(f"compiled for {seen.seconds:.2f} s")
    return seen


if __name__ == "__main__":
    main()
