"""The command line: parse, call, print.

Results go to stdout, everything else to stderr; control codes only to a terminal.
"""

import sys

from playhead.cli.exits import WRONG


def main() -> None:
    """Run the command `playhead` and end the process with its exit code."""
    try:
        import click  # noqa: F401  # asked for here, so that its absence is said and not raised
    except ModuleNotFoundError:
        sys.stderr.write(
            "Error: the command line is not installed.\nInstall it with: pip install 'playhead[cli]'\n"
        )
        sys.exit(WRONG)
    from playhead.cli.commands import run

    sys.exit(run())
