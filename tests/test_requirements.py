"""Every requirement of sections A to H has a test that names it.

The ids are those of the project's requirements; persistence in a database, the call log and the
channels (I, L) belong to issues that are not finished.
"""

import re
from pathlib import Path

import pytest

SECTIONS = {
    "A, chat store": "R1-R5",
    "B, agent store": "R6-R9",
    "C, chat route": "R10-R17 R41-R45",
    "D, orchestrator": "R18-R28 R49-R52",
    "E, tools": "R29-R32 R46-R48 R59-R61 S5-S8",
    "F, types": "R33-R34",
    "G, adapters": "R35-R40 R53-R58 R62-R66",
    "H, loop": "S1-S4 S9-S17",
    "J, router and client": "S21-S24",
}


def _ids(text: str) -> list[str]:
    found = []
    for kind, first, last in re.findall(r"\b([RS])(\d+)(?:-[RS](\d+))?", text):
        found += [f"{kind}{n}" for n in range(int(first), int(last or first) + 1)]
    return found


def _named() -> set[str]:
    tests = (p for p in Path(__file__).parent.rglob("test_*.py") if p != Path(__file__))
    return {id for path in tests for id in _ids(path.read_text())}


NAMED = _named()


@pytest.mark.parametrize("id", [id for ids in SECTIONS.values() for id in _ids(ids)])
def test_each_requirement_has_a_test_that_names_it(id: str) -> None:
    assert id in NAMED, f"no test names {id}"
