"""Empty databases of every kind, for the matrix of the stores."""

import itertools
from pathlib import Path

import pytest

from tests.support.postgres import in_schema

DATABASES = ("sqlite", "postgres")
STORES = ("memory", *DATABASES)
_numbers = itertools.count(1)


def new_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """The URL of an empty database of this kind."""
    number = next(_numbers)
    if kind == "sqlite":
        return f"sqlite:///{folder / f'store{number}.db'}"
    return in_schema(request.getfixturevalue("postgres_server"), f"store{number}")
