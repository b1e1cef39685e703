"""`Probe` finds out by asking what a server takes. Issue 3, item 6; wire cases, section M."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from playhead import AgentLoop, AuthError, ConfigError, LLMError, ModelNotFoundError, tool
from playhead.config import connect_with, create_probe, load_settings
from playhead.errors import LLMConnectionError, LLMTimeoutError, ProtocolError, QuotaError
from playhead.events import RunEnd
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile, read_profile
from playhead.llm.servers import PROFILES
from playhead.probe import Finding, Probe, ProbeReport, write_profile
from playhead.testing import (
    FakeProvider,
    Reply,
    Request,
    gemini_text,
    hang,
    openai_text,
    reply_html,
    reply_json,
)
from playhead.types import AssistantMessage, ChatMessage, ToolCall, ToolMessage, UserMessage
from tests.support.quirky import LM_STUDIO_LIKE, MISTRAL_LIKE, OPENAI_LIKE, QuirkyServer, Rules
from tests.support.strict_apis import Refused, check_openai

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0123456789abcdef"
PERMITTED: dict[str, Any] = {
    "assistant_empty": "text",
    "replay_reasoning": "never",
    "needs_assistant_after_tool": False,
    "merge_users": False,
    "prefill": True,
    "tool_choice": "named",
    "stream_tools": True,
    "usage_in_stream": True,
    "max_tokens_field": "max_tokens",
    "id_codec": "any",
    "max_tool_name": 128,
    "schema_dialect": "json_schema",
    "needs_tools_with_tool_history": False,
}


def probe_of(url: str, **environ: str) -> Probe:
    settings = {
        "LLM_PROVIDER": "openai-compatible",
        "LLM_MODEL": "some-model",
        "LLM_API_KEY": KEY,
        "LLM_BASE_URL": f"{url}/v1",
        "PLAYHEAD_HOME": str(load_settings().home),
    }
    return create_probe(load_settings({**settings, **environ}))


async def measured(rules: Rules, **environ: str) -> tuple[ProbeReport, FakeProvider]:
    server = QuirkyServer(rules)
    async with FakeProvider(default=server) as provider:
        report = await probe_of(provider.url, **environ).run()
    return report, provider


def fields_of(report: ProbeReport) -> dict[str, Any]:
    assert report.profile is not None
    return {name: getattr(report.profile, name) for name in PERMITTED}


def finding(report: ProbeReport, name: str) -> Finding:
    return [f for f in report.findings if f.name == name][-1]


# ---------------------------------------------------------------- what is found

SERVERS: dict[str, tuple[Rules, dict[str, Any]]] = {
    "mistral-like": (
        MISTRAL_LIKE,
        {
            "needs_assistant_after_tool": True,
            "id_codec": "alnum9",
            "usage_in_stream": False,
            "max_tool_name": 64,
            "prefill": False,
        },
    ),
    "lm-studio-like": (
        LM_STUDIO_LIKE,
        {
            "needs_assistant_after_tool": True,
            "merge_users": True,
            "tool_choice": "words",
            "stream_tools": False,
            "prefill": False,
        },
    ),
    "openai-like": (
        OPENAI_LIKE,
        {"max_tokens_field": "max_completion_tokens", "id_codec": "short40", "max_tool_name": 64},
    ),
}


@tool
async def lookup(city: str) -> str:
    """Look up the code of a city."""
    return f"N-{city}"


NASTY: list[ChatMessage] = [
    UserMessage(content="Hello"),
    AssistantMessage(content="Hi.", reasoning="hm", provider_metadata={"gemini": {"parts": [{"x": 1}]}}),
    UserMessage(content="Look"),
    AssistantMessage(
        content="",
        tool_calls=[ToolCall("functions.f:0/" + "y" * 50, "lookup", {}), ToolCall("b.2", "lookup", {})],
    ),
    ToolMessage(content="x", tool_call_id="b.2", tool_name="lookup"),
    UserMessage(content="Wait."),
    UserMessage(content="What is the code of Oslo? Use the tool."),
]


@pytest.mark.parametrize("name", SERVERS)
async def test_three_quirky_servers_get_three_right_profiles_which_connect_then_uses(name: str) -> None:
    """Issue 3, shown by: written to a file, read by `connect`, accepted by the strict server."""
    rules, expected = SERVERS[name]
    server = QuirkyServer(rules)
    async with FakeProvider(default=server) as provider:
        probe = probe_of(provider.url)
        report = await probe.run()
        assert fields_of(report) == {**PERMITTED, **expected}
        assert report.profile is not None
        assert probe.file is not None
        write_profile(probe.file, report.profile)
        settings = load_settings()
        llm = connect_with(settings, "openai-compatible", "some-model", KEY, f"{provider.url}/v1")
        assert isinstance(llm, OpenAICompatible)
        assert llm.profile == report.profile == read_profile(probe.file)
        assert (llm.profile.name, llm.profile.evidence) == (report.server, "measured")
        server.refusals.clear()
        events = [event async for event in AgentLoop(llm, tools=[lookup]).stream(NASTY)]
        assert isinstance(events[-1], RunEnd)
        assert (events[-1].result.finish_reason, events[-1].result.text) == ("final", "ok")
        assert [m.content for m in events[-1].result.messages if isinstance(m, ToolMessage)] == ["N-Oslo"]
    assert server.refusals == []


@pytest.mark.parametrize("name", sorted(PROFILES))
async def test_a_server_as_strict_as_a_built_in_profile_takes_what_was_measured_of_it(name: str) -> None:
    """Issue 3 item 6: judged by checks that know nothing of the probe."""
    model, refusals = QuirkyServer(Rules()), list[str]()

    def server(request: Request) -> Reply:
        try:
            check_openai(request.json, PROFILES[name])
        except Refused as why:
            refusals.append(str(why))
            return reply_json({"error": {"message": str(why)}}, 400)
        return model(request)

    async with FakeProvider(default=server) as provider:
        report = await probe_of(provider.url).run()
        assert finding(report, "together").follows == "The profile fits"
        refusals.clear()
        llm = OpenAICompatible("some-model", KEY, f"{provider.url}/v1", profile=report.profile)
        events = [event async for event in AgentLoop(llm, tools=[lookup]).stream(NASTY)]
    assert (refusals, model.refusals) == ([], [])
    assert isinstance(events[-1], RunEnd)
    assert events[-1].result.text == "ok"


ONE_RULE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "the new limit only": (
        {"limit_fields": frozenset({"max_completion_tokens"})},
        {"max_tokens_field": "max_completion_tokens"},
    ),
    "the old limit taken and not heeded": (
        {"heeded_limits": frozenset({"max_completion_tokens"})},
        {"max_tokens_field": "max_completion_tokens"},
    ),
    "no limit heeded": ({"heeded_limits": frozenset()}, {}),
    "no empty text": ({"refused_contents": frozenset({""})}, {"assistant_empty": "null"}),
    "no empty text, no null": (
        {"refused_contents": frozenset({"", "null"})},
        {"assistant_empty": "omit"},
    ),
    "some text is a must": (
        {"refused_contents": frozenset({"", "null", "absent"})},
        {"assistant_empty": "placeholder"},
    ),
    "reasoning of calls": ({"reasoning": "calls"}, {"replay_reasoning": "calls"}),
    "all reasoning": ({"reasoning": "always"}, {"replay_reasoning": "always"}),
    "no reasoning": ({"reasoning": "refused"}, {}),
    "no user after a result": ({"user_after_tool": False}, {"needs_assistant_after_tool": True}),
    "no two users": ({"users_in_a_row": False}, {"merge_users": True}),
    "roles in turn": (
        {"counts_calls": False},
        {"merge_users": True, "needs_assistant_after_tool": True},
    ),
    "no prefill": ({"prefill": False}, {"prefill": False}),
    "prefill says nothing": ({"prefill": "silent"}, {"prefill": False}),
    "no named tool": ({"choice": "words"}, {"tool_choice": "words"}),
    "a named tool is taken for auto": ({"choice_heeded": "words"}, {"tool_choice": "words"}),
    "no demand": ({"choice": "none"}, {"tool_choice": "none"}),
    "ids of 9": ({"id_pattern": r"[A-Za-z0-9]{9}"}, {"id_codec": "alnum9"}),
    "ids of 40": ({"id_pattern": r".{1,40}"}, {"id_codec": "short40"}),
    "ids without signs": ({"id_pattern": r"[\w-]{1,64}"}, {"id_codec": "safe64"}),
    "short ids without signs": ({"id_pattern": r"[\w-]{1,20}"}, {"id_codec": "alnum9"}),
    "names of 64": ({"name_length": 64}, {"max_tool_name": 64}),
    "names of 100": ({"name_length": 100}, {"max_tool_name": 70}),
    "names of 35": ({"name_length": 35}, {"max_tool_name": 32}),
    "names come back cut": ({"name_cut": 64}, {"max_tool_name": 64}),
    "plain schemas": ({"rich_schemas": False}, {"schema_dialect": "openapi"}),
    "tools with calls": ({"no_tools_with_history": False}, {"needs_tools_with_tool_history": True}),
    "no stream options": ({"stream_options": False}, {"usage_in_stream": False}),
    "usage is promised": ({"usage_comes": False}, {"usage_in_stream": False}),
    "calls lost in streams": ({"stream_calls": "lost"}, {"stream_tools": False}),
    "parallel calls merged in streams": ({"stream_calls": "merged"}, {"stream_tools": False}),
    "no pictures": ({"pictures": False}, {}),
}


@pytest.mark.parametrize("case", ONE_RULE)
async def test_one_rule_changes_one_field(case: str) -> None:
    """Issue 3 item 6: each flag by the form that permits most, and nothing that was not found."""
    rules, expected = ONE_RULE[case]
    report, provider = await measured(replace(Rules(), **rules))
    assert fields_of(report) == {**PERMITTED, **expected}
    assert all(f.measured for f in report.findings if f.name in PERMITTED)
    assert finding(report, "together").said.endswith("taken")
    assert report.requests == len(provider.requests) <= 45
    limits = [r.json.get("max_tokens") or r.json.get("max_completion_tokens") for r in provider.requests]
    assert all(0 < limit <= 512 for limit in limits)


@pytest.mark.parametrize("status", [400, 422, 404, 403, 500, 503])
async def test_a_refusal_is_known_whatever_its_status(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3 item 6: templates fail with 500; only the form that then works proves it."""
    monkeypatch.setattr("playhead.probe.asking._WAIT", 0)
    report, _ = await measured(Rules(user_after_tool=False, status=status))
    assert fields_of(report) == {**PERMITTED, "needs_assistant_after_tool": True}
    said = finding(report, "needs_assistant_after_tool").said
    assert (f"failed twice ({status})" if status >= 500 else f"refused ({status})") in said


async def test_all_findings_are_words_in_one_line_without_the_key() -> None:
    """Issue 3 item 6: what was tried, what the server did, what follows; never a key."""
    for rules in (MISTRAL_LIKE, LM_STUDIO_LIKE, OPENAI_LIKE):
        report, _ = await measured(rules)
        for found in report.findings:
            assert len(found.text.splitlines()) == 1
            assert found.said
            assert found.follows
            assert found.text.endswith(".")
        assert KEY not in msgspec.json.encode(report).decode()
        assert set(PERMITTED) <= {f.name for f in report.findings}


async def test_the_ten_measurements_are_made() -> None:
    """Wire cases, section M: looked for in what the server was asked."""
    _, provider = await measured(Rules())
    bodies = [request.json for request in provider.requests]
    tools = [t["function"] for body in bodies for t in body.get("tools", [])]
    texts = json.dumps([body["messages"] for body in bodies], ensure_ascii=False)
    streamed_tools = [b["tools"][0]["function"] for b in bodies if b.get("stream") and b.get("tools")]
    assert {"type": "object", "properties": {}} in [t["parameters"] for t in streamed_tools]  # 1
    assert "both at once" in texts  # 2
    assert "日本 😀 \ufffd end" in texts  # 3, as the encoder makes it
    assert max(len(t["name"]) for t in tools) >= 70  # 4
    forced = [n for n, b in enumerate(bodies) if b.get("tool_choice") == "required"]
    assert any(b.get("tool_choice") == "auto" and n - 1 in forced for n, b in enumerate(bodies))  # 5
    assert any(b.get("max_tokens") == 16 and b["tools"] for b in bodies)  # 6
    assert "interrupted before this call finished" in texts  # 7
    assert "data:image/png;base64," in texts  # 8
    assert any(b.get("stream_options") for b in bodies)  # 9
    assert "functions.probe_lookup:0/" in texts  # 10
    assert "thoughtSignature" not in texts


async def test_a_dialect_without_profiles_is_looked_at_and_told() -> None:
    """Issue 3 item 6: the part that makes sense, in words; each form is tried once."""

    def server(request: Request) -> Reply:
        refused = b"inlineData" in request.body
        return reply_json({"error": {"code": 400, "message": "x"}}, 400) if refused else gemini_text("ok")

    async with FakeProvider(default=server) as provider:
        settings = load_settings({"LLM_PROVIDER": "gemini", "LLM_MODEL": "m", "LLM_API_KEY": KEY})
        report = await create_probe(settings, base_url=provider.url).run()
        assert report.requests == len(provider.requests) <= 20
    assert report.profile is None
    assert "reads no pictures" in finding(report, "pictures").follows
    assert finding(report, "usage_in_stream").said == "Usage asked for in a stream: taken"
    assert not any(f.measured or f.value is not None for f in report.findings)


# ---------------------------------------------------------------- what cannot be found


async def test_what_cannot_be_measured_stays_and_is_said() -> None:
    """Issue 3 item 6: here every id is refused, whatever its form."""
    report, _ = await measured(Rules(id_pattern=r"probe0001"))
    assert fields_of(report) == {**PERMITTED, "id_codec": "any"}
    found = finding(report, "id_codec")
    assert not found.measured
    assert found.said.count("refused (400)") == 4
    assert "stays any, not measured" in found.follows
    assert "not taken together" in finding(report, "together").follows


async def test_a_server_without_tools_is_asked_nothing_about_them() -> None:
    report, provider = await measured(Rules(tools=False))
    assert sum("tools" in request.json for request in provider.requests) == 1
    measured_fields = {f.name for f in report.findings if f.measured}
    assert measured_fields == {"max_tokens_field", "usage_in_stream", "merge_users", "prefill"}
    assert "no tools are taken" in finding(report, "id_codec").said


async def test_what_was_known_before_stays_where_nothing_was_found() -> None:
    """A measured profile must not know less than the built-in one that it replaces."""
    report, _ = await measured(Rules(tools=False), LLM_PROFILE="deepseek")
    assert report.profile is not None
    assert report.profile.replay_reasoning == "always"
    report, _ = await measured(Rules(), LLM_PROFILE="vllm")
    assert report.profile is not None
    assert (report.profile.replay_reasoning, report.profile.lenient_arguments) == ("calls", True)
    assert report.profile.merge_users is False


@pytest.mark.parametrize(
    "trouble", [reply_json({}, 429, {"Retry-After": "0"}), reply_json({}, 503, {"Retry-After": "0"})]
)
async def test_what_passes_is_asked_once_more(trouble: Reply) -> None:
    """Issue 3 item 6: one retry at most."""
    server = QuirkyServer(Rules())
    async with FakeProvider(trouble, default=server) as provider:
        report = await probe_of(provider.url).run()
        assert provider.requests[0].body == provider.requests[1].body
    assert fields_of(report) == PERMITTED


async def test_a_field_that_is_not_answered_is_not_guessed() -> None:
    """A limit on requests says nothing about the form; the rest is measured."""
    strict = QuirkyServer(Rules())

    def busy(request: Request) -> Reply:
        if "stream_options" in request.json:
            return reply_json({}, 429, {"Retry-After": "0"})
        return strict(request)

    async with FakeProvider(default=busy) as provider:
        report = await probe_of(provider.url).run()
    found = finding(report, "usage_in_stream")
    assert (found.value, found.measured) == (False, False)
    assert "no answer (rate limit)" in found.said
    assert fields_of(report) == {**PERMITTED, "usage_in_stream": False}


# ---------------------------------------------------------------- what fails

FAILURES: dict[str, tuple[Reply, type[LLMError]]] = {
    "the key": (reply_json({"error": {"message": f"bad key {KEY}"}}, 401), AuthError),
    "no credit": (reply_json({"error": {"message": "x"}}, 402), QuotaError),
    "the model": (reply_json({"error": {"message": "x"}}, 404), ModelNotFoundError),
    "a page": (reply_html(status=200), ProtocolError),
    "every form refused": (reply_json({"error": {"message": "x"}}, 400), LLMError),
    "not there": (Reply((), "rst"), LLMConnectionError),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_an_endpoint_that_does_not_answer_is_an_error(case: str) -> None:
    """Issue 3 item 6: the cause, in its own words, after at most a retry for each form."""
    reply, expected = FAILURES[case]
    async with FakeProvider(default=reply) as provider:
        with pytest.raises(expected) as caught:
            await probe_of(provider.url).run()
        assert len(provider.requests) <= 2
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("after", [1, 7, 20])
async def test_an_endpoint_that_is_lost_on_the_way_is_an_error(after: int) -> None:
    """Half a measurement is none."""
    strict = QuirkyServer(Rules())
    count = 0

    def server(request: Request) -> Reply:
        nonlocal count
        count += 1
        return strict(request) if count <= after else reply_json({}, 401)

    async with FakeProvider(default=server) as provider:
        with pytest.raises(AuthError):
            await probe_of(provider.url).run()


async def test_a_measurement_has_a_time_limit() -> None:
    """Issue 3 item 6."""
    told: list[Finding] = []
    async with FakeProvider(openai_text("ok"), default=hang()) as provider:
        with pytest.raises(LLMTimeoutError, match=r"not complete after 0\.3 s and 2 requests.*--time-limit"):
            await probe_of(provider.url).run(told.append, time_limit=0.3)
    assert [found.name for found in told] == ["max_tokens_field"]


async def test_a_stop_goes_through() -> None:
    async with FakeProvider(default=hang()) as provider:
        task = asyncio.create_task(probe_of(provider.url).run())
        await provider.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"LLM_MODEL": ""}, "LLM_MODEL"),
        ({"LLM_PROVIDER": "mock"}, "nothing to measure"),
        ({"LLM_PROVIDER": "unknown"}, "Unknown LLM provider: unknown"),
        ({"LLM_PROFILE": "nonsense"}, "no profile 'nonsense'"),
    ],
)
async def test_wrong_settings_are_told_before_anything_is_asked(environ: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        probe_of("http://127.0.0.1:9", **environ)


# ---------------------------------------------------------------- files


async def test_a_profile_file_is_replaced_whole(tmp_path: Path) -> None:
    """Issue 3 item 6: atomic, and readable for people."""
    path = tmp_path / "profiles" / "host.json"
    write_profile(path, Profile(name="old"))
    write_profile(path, Profile(name="new", evidence="measured"))
    assert read_profile(path) == Profile(name="new", evidence="measured")
    assert [p.name for p in path.parent.iterdir()] == ["host.json"]
    assert path.read_text().count("\n") > 10


async def test_two_servers_on_one_machine_have_two_files() -> None:
    one, two = probe_of("http://127.0.0.1:1234"), probe_of("http://127.0.0.1:8000")
    assert one.file != two.file
    assert one.file is not None
    assert one.file.parent == load_settings().profiles_folder
