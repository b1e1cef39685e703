"""The crash test: processes on one database that are killed at random, and what must hold in the end."""
