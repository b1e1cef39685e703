"""Models of any-llm (S27). Its tests run in an environment of their own: see `any_llm_checks.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from playhead import ConfigError, connect

ROOT = Path(__file__).parent.parent.parent
CHECKS = "tests/llm/any_llm_checks.py"
PYTHON = ROOT / ".venv-any-llm" / "bin" / "python"


def set_up(timeout: float = 400) -> "subprocess.CompletedProcess[str]":
    """Make the environment, unless it is there; pip may need a proxy or an index of its own to reach."""
    command = ["bash", "scripts/setup.sh", "any-llm"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.timeout(660)
def test_the_adapter_over_any_llm_keeps_its_promises() -> None:
    """S27, issue 4: over real sockets, loopback only; set up once, by the first run that needs it."""
    made = set_up()
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", CHECKS],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout


@pytest.mark.timeout(420)
def test_a_second_set_up_does_nothing() -> None:
    """Issue 4: it must not install again."""
    set_up()
    before = PYTHON.parent.stat()
    again = set_up(timeout=10)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert PYTHON.parent.stat() == before


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extra `any-llm`, which `all` does not bring."""
    monkeypatch.setitem(sys.modules, "any_llm", None)
    with pytest.raises(ConfigError, match=r"playhead\[any-llm\]"):
        connect("any-llm", "openai:gpt-5", "k")


@pytest.mark.parametrize("model", ["gpt-5", ":gpt-5", "openai:"])
def test_a_model_names_its_provider(model: str) -> None:
    with pytest.raises(ConfigError, match="provider:model"):
        connect("any-llm", model, "k")
