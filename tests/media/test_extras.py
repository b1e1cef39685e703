"""Without the extra, media can be imported, and says what to install when it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.media import build

HEAVY = ["av", "numpy", "onnxruntime", "faster_whisper", "ctranslate2", "aiohttp", "filelock"]
MODULES = [
    path.relative_to(Path(build.PACKAGE).parents[2]).with_suffix("").as_posix().replace("/", ".")
    for path in sorted(build.PACKAGE.parent.rglob("*.py"))
    if path.stem not in ("__init__",)
]
BLOCKED = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""


def run(script: str) -> str:
    command = [sys.executable, "-c", BLOCKED + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_can_be_imported_without_the_extra() -> None:
    """R32: heavy parts are loaded when they are used."""
    assert len(MODULES) > 15
    run("\n".join(f"import {module}" for module in MODULES))


@pytest.mark.parametrize(
    "use",
    [
        "from playhead.media.probe import probe; probe(path)",
        "from playhead.media.reader import AudioReader; list(AudioReader(path).blocks())",
        "from playhead.media.windows import VoiceDetector; VoiceDetector()",
        "from playhead.media.models import models_lock; models_lock(path.parent)",
    ],
)
def test_use_without_the_extra_names_it(use: str) -> None:
    """R32: pip install 'playhead[speech]'."""
    script = f"""
from pathlib import Path
from playhead.errors import MediaError
path = Path({str(build.JFK)!r})
try:
    {use}
except MediaError as error:
    print(error.code, error)
"""
    said = run(script)
    assert said.startswith("needs_package")
    assert "pip install 'playhead[speech]'" in said
