"""What the model is given: ids, history, prompt, limits. Requirements H."""

from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    ChatMessage,
    ConfigError,
    LLMRequest,
    LLMResult,
    LoopOptions,
    SystemMessage,
    UserMessage,
)
from playhead.events import EmitDelta
from playhead.testing import (
    openai_calls,
    openai_text,
)
from tests.loop.support import Scripted, add, calls, run, text

pytestmark = pytest.mark.anyio


async def test_ids_of_the_run_correlate() -> None:
    """S10: the turn's id in the result, the events and the ids of what the loop makes."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})]), openai_text("2"))
    assert result.messages[2].id == f"{result.turn_id}/1/1"


async def test_an_earlier_identical_user_message_is_kept() -> None:
    """S17: sameness of content is not sameness."""
    model = Scripted(text())
    history: list[ChatMessage] = [UserMessage("again"), AssistantMessage("ok"), UserMessage("again")]
    await AgentLoop(model).run(history)
    assert [m.content for m in model.requests[0].messages] == ["again", "ok", "again"]


async def test_the_model_gets_its_own_list() -> None:
    """S13: what it does to the list is its own affair."""

    class Rude:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert isinstance(request.messages, list)
            request.messages.clear()
            return text()

    history: list[ChatMessage] = [UserMessage("hi")]
    result = await AgentLoop(Rude()).run(history)
    assert len(history) == 1
    assert [m.content for m in result.messages] == ["done"]


async def test_the_system_prompt_may_depend_on_the_context() -> None:
    """S3: assembled for each step, first in the request, never part of the messages."""
    model = Scripted(calls("add"), text())
    loop = AgentLoop(model, tools=[add], system=lambda context: f"Scene {context['scene']}.")
    result = await loop.run("hi", context={"scene": 7})
    assert [r.system for r in model.requests] == ["Scene 7.", "Scene 7."]
    assert not any(isinstance(m, SystemMessage) for m in result.messages)


async def test_time_outs_and_limits_reach_the_model_together() -> None:
    """S14: one beside the other."""
    model = Scripted(text())
    options = LoopOptions(call_timeout=3, total_timeout=9, max_tokens=50, temperature=0.1)
    await AgentLoop(model, options=options).run("hi")
    request = model.requests[0]
    assert (request.timeout, request.total_timeout) == (3, 9)
    assert (request.max_tokens, request.temperature) == (50, 0.1)


@pytest.mark.parametrize(
    "wrong", [{"max_steps": 0}, {"max_steps": True}, {"max_steps": 2.0}, {"tool_timeout": 0}]
)
def test_a_limit_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    """Design 4: `max_steps` is an integer of at least 1; the text names the value."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LoopOptions(**wrong)


async def test_a_model_that_raises_something_else_ends_the_run_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model of the application's own must not take the run down, nor leak its text."""
    result = await AgentLoop(Scripted(ZeroDivisionError("sk-secret"))).run("hi")
    assert (result.finish_reason, result.error_code) == ("error", "llm")
    assert "sk-secret" not in (result.error_message or "")
    assert "ZeroDivisionError" in caplog.text
