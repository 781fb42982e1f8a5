"""Translate text, one line in, one line out: `python translate.py -m runs/default < source.txt > target.txt`."""

import sys


def main() -> int:
    """Load and run the program; importing torch takes a second, and an interrupt meanwhile is one like any other."""
    from gnmt.errors import run_program
    from gnmt.translation.program import translate

    return run_program(lambda: translate(sys.argv[1:]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
