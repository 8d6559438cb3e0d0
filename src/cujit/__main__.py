"""``python -m cujit`` is the command ``cujit``."""

from cujit.cli import main

if __name__ == "__main__":
    main(prog_name="cujit")
