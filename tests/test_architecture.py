"""The house stays as ARCHITECTURE.md draws it. Read from the source text, so nothing needs to run."""

import ast
import graphlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
FLOORS = [
    {"types", "events", "ids", "errors", "encode", "weigh", "stretch", "sending", "http", "prompt"},
    {"tools", "llm", "storage", "media", "protocols", "testing"},
    {"port", "options", "limits", "gates", "deltas", "waiting", "answers", "output", "asking", "loop"},
    {"session"},
    {"channels", "probe"},
    {"config"},
    {""},  # the package itself, which hands out the names of all above
    {"server", "cli"},
    {"__main__"},
]
FLOOR = {place: number for number, places in enumerate(FLOORS) for place in places}
SIBLINGS = FLOORS[1]
HEAVY = [
    "aiohttp",
    "av",
    "click",
    "ctranslate2",
    "faster_whisper",
    "genai_prices",
    "httpx",
    "huggingface_hub",
    "numpy",
    "onnxruntime",
    "pydantic",
    "rich",
    "sqlalchemy",
    "starlette",
    "uvicorn",
]


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted((SRC / "playhead").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def _imports(name: str) -> Iterator[str]:
    """Our modules that `name` imports anywhere in its text: in functions and for types alone too."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(TREES[name]):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            origin = ".".join(filter(None, [base if node.level else "", node.module or ""]))
            targets = [
                origin if f"{origin}.{a.name}" not in MODULES else f"{origin}.{a.name}" for a in node.names
            ]
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            targets = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        yield from (target for target in targets if target.split(".")[0] == "playhead")


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _place(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_lower_floors(name: str) -> None:
    own = _place(name)
    assert own in FLOOR, f"{name} is on no floor: give it one here and in ARCHITECTURE.md"
    for target in _imports(name):
        other = _place(target)
        assert other in FLOOR, f"{name} imports {target}, which is on no floor"
        assert FLOOR[other] <= FLOOR[own], f"{name} (floor {FLOOR[own]}) imports {target} ({FLOOR[other]})"
        if own in SIBLINGS and own != other:
            assert other not in SIBLINGS, f"{name} imports its sibling {target}"


@pytest.mark.parametrize("place", sorted({_place(name) for name in MODULES} - {"", "__main__"}))
def test_every_place_is_explained(place: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    assert f"`{place}.py`" in page or f"`{place}/`" in page, f"ARCHITECTURE.md does not say what {place} is"


def test_no_import_cycle() -> None:
    graph = {name: {target for target in _imports(name) if target in MODULES} - {name} for name in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("name", [name for name in MODULES if name != "playhead.config"])
def test_only_config_reads_the_environment(name: str) -> None:
    for node in ast.walk(TREES[name]):
        line = f"{MODULES[name].name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("environ", "environb", "getenv", "getenvb"), line
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            assert not {alias.name for alias in node.names} & {"environ", "environb", "getenv", "getenvb"}, (
                line
            )
        elif isinstance(node, ast.keyword):
            assert node.arg not in ("envvar", "auto_envvar_prefix"), line


def _python_files() -> list[Path]:
    folders = ("src", "tests", "bench", "scripts", "examples")
    skipped = ROOT / "bench" / "out"
    return [p for folder in folders for p in (ROOT / folder).rglob("*.py") if skipped not in p.parents]


@pytest.mark.parametrize("path", _python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_can_be_read_in_one_sitting(path: Path) -> None:
    text = path.read_text()
    limit = 600 if path.is_relative_to(ROOT / "tests") else 400
    assert len(text.splitlines()) <= limit
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} at line {node.lineno}"


@pytest.mark.parametrize("name", [n for n in MODULES if n == "playhead" or not n.endswith("__main__")])
def test_every_exported_name_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", ()):
        assert getattr(module, exported) is not None, exported
        assert exported in dir(module), exported


@pytest.mark.parametrize("statement", ["import playhead", "from playhead import AgentLoop, tool, connect"])
def test_importing_does_no_work_and_loads_nothing_heavy(statement: str, tmp_path: Path) -> None:
    script = f"{statement}\nimport sys; print(*sorted(set({HEAVY}) & set(sys.modules)), end='')"
    environment = {**os.environ, "PYTHONWARNINGS": "error", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
