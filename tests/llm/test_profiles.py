"""What is known of servers cites its source, and a wrong profile is named. Issue 3, item 3."""

import ast
import inspect
import re
from pathlib import Path

import msgspec
import pytest

from playhead.errors import ConfigError
from playhead.llm import servers
from playhead.llm.profiles import DEFAULT, Profile, profile_file, read_profile
from playhead.llm.servers import HOSTS, PROFILES, chosen_profile, named_profile, profile_for

SOURCE = inspect.getsource(servers)
LINES = SOURCE.splitlines()
CITATION = re.compile(r"https://[^\s/]+\.[a-z]+/\S+|\b[\w.-]+/[\w.-]+#[0-9]+")
LABELS = {"name", "evidence"}
NAMES = (
    "azure cerebras deepseek gemini-compatible groq llama.cpp lm-studio mistral ollama openai openrouter "
    "together vllm xai"
)


def _written() -> dict[str, dict[str, ast.keyword]]:
    """The keywords of each profile as the source text has them."""
    calls = [
        node
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Profile"
    ]
    keywords = [{str(keyword.arg): keyword for keyword in call.keywords} for call in calls]
    return {ast.literal_eval(of["name"].value): of for of in keywords}


def _comment_above(line: int) -> str:
    """The comment that ends right above a line (counted from 1)."""
    above: list[str] = []
    for text in reversed(LINES[: line - 1]):
        if not text.lstrip().startswith("#"):
            break
        above.insert(0, text.strip(" #"))
    return " ".join(above)


WRITTEN = _written()
VALUES = [
    pytest.param(keyword, id=f"{name}-{field}")
    for name, keywords in WRITTEN.items()
    for field, keyword in keywords.items()
    if field not in LABELS
]


def _differing(profile: Profile) -> set[str]:
    default = msgspec.structs.asdict(DEFAULT)
    return {field for field, value in msgspec.structs.asdict(profile).items() if value != default[field]}


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ------------------------------------------------------------------ built in


@pytest.mark.parametrize("keyword", VALUES)
def test_a_value_that_differs_from_the_default_has_a_source_above_it(keyword: ast.keyword) -> None:
    """R: issue 3 item 3: each value cites its public source."""
    assert CITATION.search(_comment_above(keyword.lineno))


@pytest.mark.parametrize("text", ["", "as its documents say", "see https://x", "issue 12", "#12"])
def test_words_without_an_address_are_no_source(text: str) -> None:
    """R: issue 3 item 3: the check above can fail."""
    assert not CITATION.search(text)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_says_what_differs_and_nothing_else(name: str) -> None:
    """R: issue 3 item 3: unknown stays at the safest default; only the probe measures."""
    assert PROFILES[name].evidence == "documented"
    assert set(WRITTEN[name]) - LABELS == _differing(PROFILES[name]) - LABELS


def test_the_servers_of_the_issue_are_built_in_under_their_names() -> None:
    """R: issue 3 item 3."""
    assert sorted(PROFILES) == NAMES.split()
    assert all(profile.name == name for name, profile in PROFILES.items())
    assert len(WRITTEN) == len(PROFILES)


# ------------------------------------------------------------------ choice


@pytest.mark.parametrize(("host", "name"), HOSTS.items())
def test_a_host_and_the_hosts_below_it_have_a_profile(host: str, name: str) -> None:
    """R: issue 3 item 3: chosen by base URL."""
    for url in (f"https://{host}/v1", f"https://eu.{host}:8443/v1", f"HTTPS://{host.upper()}/v1"):
        assert profile_for(url) is PROFILES[name]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_only_looks_like_a_known_one_has_none(host: str) -> None:
    """R: issue 3 item 3: a profile of the wrong server is worse than none."""
    for url in (f"https://my{host}/v1", f"https://{host}.example/v1", f"https://x.example/{host}/v1"):
        assert profile_for(url) is DEFAULT


@pytest.mark.parametrize("port", [1234, 8000, 8080, 11434])
def test_a_port_is_no_evidence_of_a_server(port: int) -> None:
    """R: issue 3 item 3: servers on one's own machine are chosen by name."""
    assert profile_for(f"http://localhost:{port}/v1") is DEFAULT
    assert profile_for(f"http://127.0.0.1:{port}/v1") is DEFAULT


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_is_found_by_its_name(name: str) -> None:
    """R: issue 3 item 3: chosen by name."""
    assert named_profile(name) is PROFILES[name]


@pytest.mark.parametrize("name", ["", "OpenAI", "llama-cpp", "lmstudio", "../openai"])
def test_a_wrong_name_is_told_with_the_right_ones(name: str) -> None:
    """R: issue 3 item 3."""
    with pytest.raises(ConfigError) as caught:
        named_profile(name)
    assert repr(name) in str(caught.value)
    assert all(known in str(caught.value) for known in PROFILES)


# ------------------------------------------------------------------ files


@pytest.mark.parametrize("profile", [DEFAULT, *PROFILES.values()], ids=lambda profile: profile.name)
def test_a_profile_file_says_the_same_when_read_again(profile: Profile, tmp_path: Path) -> None:
    """R: issue 3 items 3 and 6: the probe writes a file that is read."""
    assert read_profile(_write(tmp_path / "p.json", msgspec.json.encode(profile))) == profile


def test_a_profile_file_need_not_say_what_is_as_usual(tmp_path: Path) -> None:
    """R: issue 3 item 3: overridable by a profile file."""
    file = _write(tmp_path / "p.json", b'{"name": "mine", "mergeUsers": true, "idCodec": "safe64"}')
    assert read_profile(file) == Profile(name="mine", merge_users=True, id_codec="safe64")


WRONG = {
    "nothing": (b"", "truncated"),
    "no json": (b"merge_users = true", "malformed"),
    "not utf-8": (b'{"name": "\xff"}', "UTF-8"),
    "a list": (b"[]", "array"),
    "no name": (b'{"mergeUsers": true}', "name"),
    "wrong type": (b'{"name": "m", "mergeUsers": "yes"}', "mergeUsers"),
    "unknown word": (b'{"name": "m", "toolChoice": "any"}', "toolChoice"),
    "unknown field": (b'{"name": "m", "mergeUser": true}', "mergeUser"),
    "python's spelling": (b'{"name": "m", "merge_users": true}', "merge_users"),
    "no room for a name": (b'{"name": "m", "maxToolName": 0}', "maxToolName"),
    "too deep": (b'{"x": ' + b"[" * 100_000, "x"),
}


@pytest.mark.parametrize(("data", "fault"), WRONG.values(), ids=WRONG)
def test_a_wrong_profile_file_is_told_with_its_fault(data: bytes, fault: str, tmp_path: Path) -> None:
    """R: issue 3 item 3: a misspelt field is not passed over in silence."""
    with pytest.raises(ConfigError) as caught:
        read_profile(_write(tmp_path / "wrong.json", data))
    assert "'wrong.json' is not a profile" in str(caught.value)
    assert fault in str(caught.value).partition("is not a profile")[2]
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(("made", "fault"), [(False, "No such file"), (True, "directory")])
def test_a_profile_file_that_cannot_be_read_is_told(made: bool, fault: str, tmp_path: Path) -> None:
    """R: issue 3 item 3."""
    path = tmp_path / "gone.json"
    if made:
        path.mkdir()
    with pytest.raises(ConfigError, match=fault) as caught:
        read_profile(path)
    assert "'gone.json'" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_choice_is_a_name_or_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R: issue 3 item 3: `LLM_PROFILE`; a built-in name comes first, whatever files lie around."""
    mine = Profile(name="mine", prefill=True)
    for place in ("mine.json", "mine", name):
        _write(tmp_path / place, msgspec.json.encode(mine))
    monkeypatch.chdir(tmp_path)
    assert chosen_profile(name) is PROFILES[name]
    for choice in (str(tmp_path / "mine"), "mine.json", "mine", f"./{name}"):
        assert chosen_profile(choice) == mine


@pytest.mark.parametrize("choice", ["openia", "", "llama-cpp"])
def test_a_choice_that_is_neither_is_told_with_the_names(choice: str) -> None:
    with pytest.raises(ConfigError, match=r"There is no profile .*llama\.cpp"):
        chosen_profile(choice)


@pytest.mark.parametrize("choice", ["gone.json", "folder/gone"])
def test_a_file_that_is_not_there_is_told_as_a_file(choice: str) -> None:
    with pytest.raises(ConfigError, match="profile file 'gone"):
        chosen_profile(choice)


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "api.openai.com.json"),
        ("http://LOCALHOST:1234/v1/", "localhost_1234.json"),
        ("http://localhost:11434", "localhost_11434.json"),
        ("http://[::1]:8000/v1", "__1_8000.json"),
        ("https://user:pw@host.example/v1?key=x", "host.example.json"),
        ("http://../../x", "...json"),
        ("http://a\\..\\b/v1", "a_.._b.json"),
    ],
)
def test_each_server_has_one_file_inside_the_folder(base_url: str, name: str, tmp_path: Path) -> None:
    """R: issue 3 item 6: by host and port, whatever stands in a URL."""
    path = profile_file(tmp_path, base_url)
    assert path.name == name
    assert path.parent.resolve() == path.resolve().parent == tmp_path.resolve()
