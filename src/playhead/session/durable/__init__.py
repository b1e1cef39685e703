"""Runs that go on after the death of their process, on DBOS Transact. Only this package imports it."""
