"""Exit codes: done, failed, wrong usage or configuration, interrupted."""

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
