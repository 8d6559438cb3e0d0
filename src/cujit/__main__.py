"""Run the command ``cujit`` as ``python -m cujit``."""

from cujit.cli import process_main

if __name__ == "__main__":
    process_main()
