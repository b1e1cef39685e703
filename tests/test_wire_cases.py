"""Every wire case that the model layer, the loop and the sessions answer for has a test that names it.

The ids are those of the project's list of publicly reported faults; their gaps are the list's own.
Cases of what is not there yet are not listed: an OpenAI-compatible route (Q217), tools that fetch
addresses (Q223, Q224), channels (Q226, Q227, Q229), and protocols, telemetry and transcription (L).
"""

import ast
import re
from pathlib import Path

import pytest

CASES = {
    "A, bytes": "Q001 Q002 Q004 Q005 Q007 Q008 Q010 Q011 Q013 Q014 Q016 Q017 Q019 Q020 Q022",
    "B, calls": "Q023 Q025 Q026 Q028 Q029 Q031 Q032 Q034 Q035 Q037 Q038 Q040 Q041 Q043 Q044",
    "C, arguments": "Q046 Q047 Q049 Q050 Q052 Q053 Q055 Q056 Q058 Q059",
    "D, content": "Q061 Q062 Q064 Q065 Q067 Q068 Q070 Q071 Q073 Q074 Q076 Q077 Q079 Q080 Q082",
    "E, requests": "Q083 Q085 Q086 Q088 Q089 Q091 Q092 Q094 Q095 Q097 Q098 Q100 Q101 Q103",
    "F, attempts": "Q104 Q106 Q107 Q109 Q110 Q112 Q113 Q115 Q116 Q118 Q119 Q121 Q122",
    "G, Gemini": "Q124 Q125 Q127 Q128 Q130 Q131 Q133 Q134 Q136 Q137 Q139 Q140 Q142 Q143 Q145 Q146 Q148 "
    "Q149 Q151",
    "H, Anthropic": "Q152 Q154 Q155 Q157 Q158 Q160 Q161 Q163 Q164",
    "I, one response": "Q166 Q167 Q169 Q170 Q172 Q173 Q175 Q176 Q178 Q179 Q181 Q182 Q184 Q185 Q187",
    "I, approvals": "Q188",
    "J, sessions": "Q190 Q191 Q193 Q194 Q196 Q197 Q199 Q200 Q202 Q203 Q205 Q206 Q208 Q209",
    "K, routes": "Q211 Q212 Q214 Q215 Q218 Q220 Q221 Q230",
    "late": "Q239 Q241 Q242 Q244 Q245 Q247 Q248 Q250 Q251",
}
IDS = [id for ids in CASES.values() for id in ids.split()]


def _named() -> dict[str, list[str]]:
    """The tests that name each case: in their name, their docstring or the cases they are given."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if path == Path(__file__):
            continue
        tree = ast.parse(path.read_text())
        tables = {
            target.id: ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                given = [ast.unparse(decorator) for decorator in node.decorator_list]
                used = [text for name, text in tables.items() if any(name in words for words in given)]
                said = " ".join([node.name, ast.get_docstring(node) or "", *given, *used])
                for id in set(re.findall(r"q\d{3}", said.lower())):
                    found.setdefault(id.upper(), []).append(f"{path.name}::{node.name}")
    return found


NAMED = _named()


@pytest.mark.parametrize("id", IDS)
def test_each_case_has_a_test_that_names_it(id: str) -> None:
    """Issue 3: one test for each case; a case without one is a promise without proof."""
    assert NAMED.get(id), f"No test names {id}. Write one, with the id in its name or its docstring."


def test_the_list_holds_each_case_once() -> None:
    """125 of the model layer and the loop, 23 of sessions and routes, 9 late ones."""
    assert len(IDS) == len(set(IDS))
    assert sorted(IDS) == IDS
    assert len(IDS) == 157
