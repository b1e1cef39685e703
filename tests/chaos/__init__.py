"""The crash test: processes that are killed at any moment, and what must hold in spite of it.

`make chaos` runs it long, on SQLite and on Postgres; the suite runs it short.
"""
