"""``python -m cujit`` is the command ``cujit``."""

from cujit.cli import process_main

if __name__ == "__main__":
    process_main()
