"""`python -m playhead`: the same as the command `playhead`."""

from playhead.cli import main

if __name__ == "__main__":
    main()
