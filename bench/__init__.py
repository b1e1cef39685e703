"""Speed, measured against a hand-written loop in the same run: `make bench`. Never part of the tests."""
