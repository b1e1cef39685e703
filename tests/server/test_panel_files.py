"""The panel's files: what is vendored is what was published, what is ours is small, and all is shipped."""

import gzip
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.server.panels import WEB

ROOT = WEB.parent
VENDORED = {
    "web/panel/vendor/dompurify-3.5.0/LICENSE": (
        "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    ),
    "web/panel/vendor/dompurify-3.5.0/LICENSE-MPL": (
        "fab3dd6bdab226f1c08630b1dd917e11fcb4ec5e1e020e2c16f83a0a13863e85"
    ),
    "web/panel/vendor/dompurify-3.5.0/purify.es.mjs": (
        "5e8c53cd086a012531fc754ee6a7ad7a02e8a06fc4dadd805b912e128c3f6c58"
    ),
    "web/panel/vendor/marked-18.2.1/LICENSE": (
        "8e3a3f82f59a60958f56ca08f445647c32a4733dc7ca6c2c46f6eb898471ab9c"
    ),
    "web/panel/vendor/marked-18.2.1/marked.esm.js": (
        "5371fea86fd0656b4fc7bea7c94c663109d82789b69433eeee78d42895aa44de"
    ),
    "tests/vendor/axe-core-4.14.1/axe.min.js": (
        "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
    ),
    "tests/vendor/axe-core-4.14.1/LICENSE": (
        "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e"
    ),
}


def test_what_is_vendored_is_as_it_was_published() -> None:
    """By its checksum, with its licence; nothing else lies beside it."""
    folders = (WEB / "panel" / "vendor", ROOT / "tests" / "vendor")
    found = {path.relative_to(ROOT).as_posix(): path for folder in folders for path in folder.rglob("*.*")}
    files = {name: path for name, path in found.items() if path.is_file()}
    files |= {name: ROOT / name for name in VENDORED}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == VENDORED


def test_the_script_is_small() -> None:
    """At most 24 kB, packed: what a page loads of ours to run."""
    scripts = [WEB / "panel.js", *sorted((WEB / "panel").glob("*.js"))]
    size = len(gzip.compress(b"".join(script.read_bytes() for script in scripts), 9))
    assert size <= 24 * 1024, size
    for script in scripts:
        text = script.read_text()
        assert len(text.splitlines()) <= 400, script.name
        imported = re.findall(r'(?:from|import\()\s*"([^"]+)"', text)
        assert all(name.startswith("./") for name in imported), "no address but beside the module itself"


def test_the_types_name_what_the_element_has() -> None:
    types, element = (WEB / "panel.d.ts").read_text(), (WEB / "panel" / "element.js").read_text()
    public = set(re.findall(r"^  (?:get |set |async )?([a-z]\w+)\(.*\{$", element, re.MULTILINE))
    public -= {"constructor", "connectedCallback", "disconnectedCallback", "attributeChangedCallback"}
    assert {name for name in public if not re.search(rf"\b{name}\b", types)} == set()
    page = (ROOT / "docs" / "panel.md").read_text()
    assert {name for name in public if f"`{name}" not in page} == set()


def test_every_property_and_part_that_is_for_hosts_is_on_the_page() -> None:
    page = (ROOT / "docs" / "panel.md").read_text()
    css = (WEB / "panel" / "panel.css").read_text()
    scripts = "".join(script.read_text() for script in (WEB / "panel").glob("*.js"))
    properties = set(re.findall(r"var\((--playhead-[a-z-]+)", css))
    parts = set(re.findall(r'\bpart: "(\w+)"', scripts))
    assert len(properties) > 5
    assert len(parts) > 5
    assert [name for name in {*properties, *parts} if f"`{name}`" not in page] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_a_wheel_serves_the_panel(wheel: Path, tmp_path: Path) -> None:
    """All of it is in the wheel, and the app that is installed from it finds it there."""
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path)
    shipped = tmp_path / "playhead" / "server" / "web"
    ours = {path.relative_to(WEB) for path in WEB.rglob("*") if path.is_file()}
    assert {path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file()} == ours
    script = "from playhead.server.app import PANEL; print(PANEL)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(done.stdout.strip()) == shipped
