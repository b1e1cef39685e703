"""`playhead chat`: one message, a pipe, and a conversation on a real terminal."""

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from playhead.testing import (
    FakeProvider,
    Request,
    openai_calls,
    openai_sse,
    reply_json,
)
from tests.cli.approving import COMMAND as APPROVING
from tests.cli.support import CANARY, ESCAPES, playhead, terminal

pytestmark = pytest.mark.anyio


def provider_env(provider: FakeProvider) -> dict[str, str]:
    return {
        "LLM_PROVIDER": "openai-compatible",
        "LLM_MODEL": "some-model",
        "LLM_API_KEY": CANARY,
        "LLM_BASE_URL": f"{provider.url}/v1",
    }


def said(request: Request) -> list[tuple[str, Any]]:
    """What the model was shown, without the instructions."""
    return [(m["role"], m["content"]) for m in request.json["messages"] if m["role"] != "system"]


async def test_a_message_is_answered_on_stdout_and_nothing_else_is() -> None:
    async with FakeProvider(openai_sse("It is ", "about you.")) as provider:
        done = await playhead("chat", "What is it about?", env=provider_env(provider))
    assert (done.code, done.out, done.err) == (0, "It is about you.\n", "")
    assert said(provider.requests[0]) == [("user", "What is it about?")]


@pytest.mark.parametrize(
    ("args", "stdin", "asked"),
    [
        ((), b"Only the pipe\n", "Only the pipe"),
        (("Both",), "a pipe, in UTF-8: \u00fc\n".encode(), "Both\n\na pipe, in UTF-8: \u00fc"),
        (("Only the argument",), b"", "Only the argument"),
        (("Bytes",), b"\xff\n", "Bytes\n\n\ufffd"),
    ],
)
async def test_what_is_piped_in_is_the_message_or_comes_behind_it(
    args: tuple[str, ...], stdin: bytes, asked: str
) -> None:
    async with FakeProvider(openai_sse("ok")) as provider:
        done = await playhead("chat", *args, env=provider_env(provider), stdin=stdin)
    assert done.code == 0
    assert said(provider.requests[0]) == [("user", asked)]


@pytest.mark.parametrize("args", [(), ("",), ("  ",)])
async def test_an_empty_message_is_wrong_usage(args: tuple[str, ...]) -> None:
    done = await playhead("chat", *args, env={"LLM_PROVIDER": "mock"}, stdin=b" \n")
    assert done.code == 2
    assert "message" in done.fault[0]
    assert "playhead chat" in done.fault[1]


async def test_without_a_model_it_says_what_is_missing() -> None:
    """R44."""
    done = await playhead("chat", "hi", env={"LLM_PROVIDER": "openai-compatible", "LLM_API_KEY": CANARY})
    assert done.code == 2
    assert done.out == ""
    assert "LLM_MODEL" in done.fault[0]
    assert CANARY not in done.err


async def test_calls_and_their_results_are_shown_beside_the_answer() -> None:
    """R31: the default registry; a failing tool is told, and the answer still comes (R22)."""
    script = (openai_calls([("transcribe_video", {"assetId": "x"})]), openai_sse("Nothing is loaded."))
    async with FakeProvider(*script) as provider:
        done = await playhead("chat", "Transcribe x", env=provider_env(provider))
    assert (done.code, done.out) == (0, "Nothing is loaded.\n")
    assert 'transcribe_video {"assetId": "x"}' in done.err
    assert "transcribe_video failed: No media loaded" in done.err
    names = [tool["function"]["name"] for tool in provider.requests[0].json["tools"]]
    assert names == ["transcribe_video"]


@pytest.mark.parametrize(
    ("status", "todo"), [(401, "LLM_API_KEY"), (404, "LLM_MODEL"), (429, "Try again"), (500, "Try again")]
)
async def test_a_failing_provider_is_two_lines_and_exit_code_1(status: int, todo: str) -> None:
    """R16, R43: no key, no body of the provider."""
    body = {"error": {"message": f"secret detail {CANARY}"}}
    async with FakeProvider(default=reply_json(body, status)) as provider:
        done = await playhead("chat", "hi", env=provider_env(provider))
    assert (done.code, done.out) == (1, "")
    assert todo in done.fault[1]
    assert CANARY not in done.err


async def test_a_cut_answer_is_never_shown_as_a_whole_one() -> None:
    """Design 7.11."""
    async with FakeProvider(openai_sse("Half an ans", finish_reason="length")) as provider:
        done = await playhead("chat", "hi", env=provider_env(provider))
    assert (done.code, done.out) == (0, "Half an ans\n")
    assert "output limit" in done.err


async def test_an_attempt_that_broke_off_is_not_part_of_the_answer() -> None:
    """Design 4: what was shown before an attempt is void. On a pipe it is not there at all."""
    broken = openai_sse("Half an ans", cut="rst", finish_reason=None, done=False)
    async with FakeProvider(broken, openai_sse("A whole answer.")) as provider:
        done = await playhead("chat", "hi", env=provider_env(provider))
    assert (done.code, done.out) == (0, "A whole answer.\n")
    assert "starting over" in done.err


async def test_an_answer_cannot_drive_the_terminal() -> None:
    async with FakeProvider(openai_sse("a\x1b[2J\x1b]0;title\x07b")) as provider:
        done = await playhead("chat", "hi", env=provider_env(provider))
    assert not ESCAPES.search(done.out)


async def test_a_conversation_remembers_and_ctrl_d_ends_it() -> None:
    async with (
        FakeProvider(openai_sse("Hello Ada."), openai_sse("Ada.")) as provider,
        terminal("chat", env=provider_env(provider)) as shown,
    ):
        await shown.wait_for("> ")
        shown.type("I am Ada.\r")
        await shown.wait_for("Hello Ada.")
        await shown.wait_for("> ")
        shown.type("Who am I?\r")
        await shown.wait_for("\nAda.")
        await shown.wait_for("> ")
        shown.type("\x04")
        assert await shown.ended() == 0
    assert said(provider.requests[1]) == [
        ("user", "I am Ada."),
        ("assistant", "Hello Ada."),
        ("user", "Who am I?"),
    ]


async def test_a_conversation_is_gone_on_with_later() -> None:
    """Design 5: what was said is in the database; the id of the thread is told, beside the answers."""
    script = (openai_sse("Hello Ada."), openai_sse("You are Ada."), openai_sse("Still Ada."))
    async with FakeProvider(*script) as provider:
        env = provider_env(provider)
        async with terminal("chat", env=env) as shown:
            await shown.wait_for("> ")
            thread = re.findall(r"--thread (\S+)", shown.everything)[0]
            shown.type("I am Ada.\r")
            await shown.wait_for("Hello Ada.")
            await shown.wait_for("> ")
            shown.type("\x04")
            assert await shown.ended() == 0
        done = await playhead("chat", "--thread", thread, "Who am I?", env=env)
        assert (done.code, done.out, done.err) == (0, "You are Ada.\n", "")
        async with terminal("chat", "--thread", thread, env=env) as shown:
            await shown.wait_for("> ")
            shown.type("Sure?\r")
            await shown.wait_for("Still Ada.")
    assert said(provider.requests[2]) == [
        ("user", "I am Ada."),
        ("assistant", "Hello Ada."),
        ("user", "Who am I?"),
        ("assistant", "You are Ada."),
        ("user", "Sure?"),
    ]


CALLS = [("publish", {"title": "one"}), ("publish", {"title": "two"})]


async def test_a_call_that_waits_is_asked_about_on_the_terminal() -> None:
    """Design 5: yes is a yes and everything else a no; also when it was left waiting before."""
    async with FakeProvider(openai_calls(CALLS), openai_sse("One of two.")) as provider:
        env = provider_env(provider)
        async with terminal("chat", "--thread", "t", env=env, command=APPROVING) as shown:
            await shown.wait_for("> ")
            shown.type("Publish\r")
            await shown.wait_for('Run publish {"title": "one"} ? [y/N]')
            # The terminal is closed before there is an answer.
        async with terminal("chat", "--thread", "t", env=env, command=APPROVING) as shown:
            await shown.wait_for('Run publish {"title": "one"} ? [y/N]')
            shown.type("y\r")
            await shown.wait_for("one is out")
            await shown.wait_for('Run publish {"title": "two"} ? [y/N]')
            shown.type("\r")
            await shown.wait_for("Not approved.")
            await shown.wait_for("One of two.")
            await shown.wait_for("> ")
            shown.type("\x04")
            assert await shown.ended() == 0
    assert [text for role, text in said(provider.requests[1]) if role == "tool"] == [
        "one is out",
        "Not approved.",
    ]


async def test_where_nobody_can_be_asked_it_is_a_no() -> None:
    async with FakeProvider(openai_calls(CALLS[:1]), openai_sse("Then not.")) as provider:
        done = await playhead("chat", "Publish", env=provider_env(provider), command=APPROVING)
    assert (done.code, done.out) == (0, "Then not.\n")
    assert 'Not approved, because nobody is here to ask: publish {"title": "one"}' in done.err
    assert said(provider.requests[1])[-1] == ("tool", "Not approved. Nobody is here to approve it.")


async def test_without_the_package_of_databases_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; from playhead.cli.commands import run; sys.exit(run())"
    )
    done = await playhead("chat", "hi", env={"LLM_PROVIDER": "mock"}, command=(sys.executable, "-c", code))
    assert (done.code, done.out) == (2, "")
    assert "'sqlalchemy'" in done.fault[0]
    assert "pip install" in done.fault[1]


async def test_ctrl_c_stops_an_answer_and_keeps_what_was_said() -> None:
    """S14, design 4 (cancellation): the conversation goes on, its history is valid."""
    story = openai_sse("Once upon", " a time", pause=_after(2))
    async with (
        FakeProvider(story, openai_sse("Yes.")) as provider,
        terminal("chat", env=provider_env(provider)) as shown,
    ):
        await shown.wait_for("> ")
        shown.type("Tell me a story\r")
        await shown.wait_for("Once upon")
        shown.type("\x03")
        await shown.wait_for("(stopped)")
        await shown.wait_for("> ")
        shown.type("Did you begin?\r")
        await shown.wait_for("Yes.")
        await shown.wait_for("> ")
        shown.type("\x04")
        assert await shown.ended() == 0
    history = said(provider.requests[1])
    assert [role for role, _ in history] == ["user", "assistant", "user"]
    assert history[1][1].startswith("Once upon")


async def test_ctrl_c_at_the_prompt_ends_nothing() -> None:
    async with terminal("chat", env={"LLM_PROVIDER": "mock"}) as shown:
        await shown.wait_for("> ")
        shown.type("half a li")
        await shown.wait_for("half a li")
        await shown.press_until("\x03", "Ctrl-D ends")
        await shown.wait_for("> ")
        shown.type("hello\r")
        await shown.wait_for("The context is")
        await shown.wait_for("> ")
        shown.type("\x04")
        assert await shown.ended() == 0


async def test_ctrl_c_ends_a_single_answer_with_exit_code_130() -> None:
    async with (
        FakeProvider(openai_sse("Once upon", pause=_after(2))) as provider,
        terminal("chat", "Tell me", env=provider_env(provider)) as shown,
    ):
        await provider.wait_for_requests(1)
        await shown.wait_for("Once")
        shown.type("\x03")
        await shown.wait_for("(stopped)")
        assert await shown.ended() == 130


async def test_a_failed_turn_can_be_said_again() -> None:
    """A provider's failure does not end the conversation, and leaves no double message."""
    async with (
        FakeProvider(reply_json({}, 401), openai_sse("Now.")) as provider,
        terminal("chat", env=provider_env(provider)) as shown,
    ):
        await shown.wait_for("> ")
        shown.type("Hi\r")
        await shown.wait_for("Error: ")
        await shown.wait_for("> ")
        shown.type("Hi\r")
        await shown.wait_for("Now.")
        await shown.wait_for("> ")
        shown.type("\x04")
        assert await shown.ended() == 0
    assert said(provider.requests[1]) == [("user", "Hi")]


def _after(count: int) -> Callable[[int], Any]:
    """Send so many pieces and no more, until the client has gone."""

    async def hold(number: int) -> None:
        if number > count:
            await asyncio.Event().wait()

    return hold
