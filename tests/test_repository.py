"""What the repository says of itself is so."""

import ast
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import playhead

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Extras whose packages have pins of their own: outside `all`, locked and tested by themselves.
APART = ["any-llm"]
TARGETS = dict(re.findall(r"^([a-z]+):.*?## (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def _pins(lock: Path) -> set[str]:
    return {line.rstrip(" \\") for line in lock.read_text().splitlines() if re.match(r"[a-z]", line)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_holds_names_versions_and_hashes_and_nothing_else(lock: Path) -> None:
    pin = r"[a-z0-9-]+==[0-9][a-z0-9.]*( ; [a-zA-Z0-9_'.<>=! ]+)?"
    entry = rf"{pin}( \\\n    --hash=sha256:[0-9a-f]{{64}})+\n"
    text = re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    assert re.fullmatch(f"({entry})+", text)
    assert "/" not in lock.read_text()


def test_the_demo_installs_a_part_of_what_the_tests_install() -> None:
    demo, dev = (_pins(ROOT / "requirements" / name) for name in ("demo.txt", "dev.txt"))
    assert demo < dev
    assert any(pin.startswith("hatchling==") for pin in demo)


@pytest.mark.parametrize(
    ("lock", "extras", "groups"),
    [
        ("demo.txt", ["cli", "server", "speech", "speech-model"], ["build"]),
        ("dev.txt", [extra for extra in EXTRAS if extra not in APART], ["build", "dev"]),
        *((f"{extra}.txt", [extra], []) for extra in APART),
    ],
)
def test_every_direct_requirement_is_locked_as_it_asks(
    lock: str, extras: list[str], groups: list[str]
) -> None:
    asked = {"build": PYPROJECT["build-system"]["requires"], **PYPROJECT["dependency-groups"]}
    wanted = [*PROJECT["dependencies"], *(text for group in groups for text in asked[group])]
    wanted += [text for extra in extras for text in EXTRAS[extra] if not text.startswith("playhead[")]
    pins = [pin.partition(" ;")[0].split("==") for pin in _pins(ROOT / "requirements" / lock)]
    for requirement in map(Requirement, wanted):
        versions = [version for name, version in pins if name == requirement.name]
        assert versions, f"{requirement.name} is not locked: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_the_extra_all_is_every_extra_that_needs_no_environment_of_its_own() -> None:
    (everything,) = EXTRAS["all"]
    assert sorted(re.findall(r"[a-z-]+", everything.partition("[")[2])) == sorted(
        set(EXTRAS) - {"all", *APART}
    )


@pytest.mark.parametrize("verb", ["demo", "test", "lint", "types", "check", "bench", "lock"])
def test_make_help_explains_every_verb(verb: str) -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {verb} +{re.escape(TARGETS[verb])}$", shown, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_commands_that_the_pages_give_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    used = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    assert {"demo", "test"} <= used
    assert used <= set(TARGETS)


def test_ci_checks_lint_and_types_and_runs_what_make_test_runs() -> None:
    script = ROOT / ".ci" / "run"
    lines = re.findall(r"^(?:exec )?make .*?([a-z]+)$", script.read_text(), re.MULTILINE)
    assert lines == ["lint", "types", "test"]
    assert os.access(script, os.X_OK)


def test_the_changelog_is_open_and_names_this_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert PROJECT["version"] == playhead.__version__
    released = headings[1:]
    assert not released or released[0] == playhead.__version__


def test_decisions_are_numbered_dated_and_short() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert pages
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert re.match(rf"# {int(page.name[:4])}\. .+\n\n\d{{4}}-\d\d-\d\d\n", text), page.name
        assert len(text.splitlines()) <= 60, page.name


def test_no_file_names_a_place_on_this_machine() -> None:
    places = [f"{ROOT}/".encode(), f"{Path.home()}/".encode()]
    found = [str(p.relative_to(ROOT)) for p in _tracked() if any(place in p.read_bytes() for place in places)]
    assert found == []


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in (p for p in _tracked() if p.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", playhead.__all__)
def test_every_exported_class_and_function_says_what_it_is(name: str) -> None:
    value = getattr(playhead, name)
    if isinstance(value, type) or inspect.isroutine(value):
        text = inspect.getdoc(value) or ""
        # A dataclass without a docstring is given its own signature for one.
        assert not text.startswith(f"{name}(")
        assert re.match(r"[A-Z`].*[.:]", text), text[:80]


def _foreign_imports(folder: str) -> set[str]:
    """Top-level names of modules that are neither ours nor the standard library's."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            found |= {name.partition(".")[0] for name in names}
    return found - sys.stdlib_module_names - {"playhead", "tests", "bench", "examples"}


@pytest.mark.parametrize(
    ("folder", "groups"),
    [("src", []), ("examples", ["dev"]), ("tests", ["dev"])],
    ids=["src", "examples", "tests"],
)
def test_every_import_is_of_a_package_that_is_asked_for(folder: str, groups: list[str]) -> None:
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    texts += [text for group in groups for text in PYPROJECT["dependency-groups"][group]]
    asked = {canonicalize_name(Requirement(text).name) for text in texts}
    homes = importlib.metadata.packages_distributions()
    stray = [
        name
        for name in sorted(_foreign_imports(folder))
        if not asked & {canonicalize_name(home) for home in homes.get(name, [])}
    ]
    assert stray == []
