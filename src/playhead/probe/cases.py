"""What takes more than one form after the other: calls in streams, demanded calls, a cut answer."""

from collections.abc import Callable

from playhead.probe.asking import Outcome
from playhead.probe.bench import NOT_ASKED, Bench
from playhead.probe.report import Finding
from playhead.probe.requests import (
    A_CALL,
    LONG_ID,
    LOOKUP,
    NOW,
    SAVE,
    SIGNS_ID,
    TOO_LITTLE,
    after_calls,
    called,
    foreign,
    odd_result,
    picture,
    request,
    twice_asked,
    word,
)
from playhead.types import ChatMessage, LLMRequest, LLMResult, ToolCall, ToolMessage, UserMessage

_OTHER_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


async def answers(bench: Bench) -> Finding:
    """Whether it answers at all. Raises the error if it does not."""
    outcome = await bench.ask(word())
    if outcome.error is not None:
        raise outcome.error
    return Finding("answer", "A word asked for: taken", "The endpoint answers")


async def tools(bench: Bench) -> Finding:
    """Whether tools are taken at all."""
    outcome = await bench.ask(request("What is the code of Oslo?", [LOOKUP], max_tokens=A_CALL))
    bench.takes_tools = outcome.kind != "refused"
    follows = {"taken": "Tools can be used", "refused": "Nothing about tools is asked"}
    return Finding(
        "tools", f"A tool offered: {outcome.words}", follows.get(outcome.kind, "That tells nothing")
    )


# ---------------------------------------------------------------- calls in a stream


async def streamed_calls(bench: Bench) -> Finding:
    """Whether calls come whole in a stream: one without arguments, then two of one tool at once."""
    form = "a tool without arguments called in a stream"
    if not bench.takes_tools:
        return bench.unknown("stream_tools", f"{form}: {NOT_ASKED}")
    now = _demanded(bench, "What time is it? Use the tool.")
    for _ in range(2):  # a model may just not have called
        streamed = await bench.ask(now(), stream=True, stream_tools=True)
        if streamed.kind != "taken" or _whole(streamed, 1):
            break
    if not _whole(streamed, 1):
        return await _compare(bench, form, now, streamed, 1)
    parallel = await bench.ask(_two(), stream=True, stream_tools=True)
    said = f"{form}: came whole; two of one tool at once: {_told(parallel)}"
    if _broken(parallel):
        finding = await _compare(bench, said, _two, parallel, 2)
        return finding if finding.value is False else bench.found("stream_tools", finding.said, True)
    return bench.found("stream_tools", said, True)


async def _compare(
    bench: Bench, form: str, ask: Callable[[], LLMRequest], streamed: Outcome, count: int
) -> Finding:
    """Ask for the whole answer: if that has the calls, the stream lost them."""
    whole = await bench.ask(ask())
    said = f"{form}: {_told(streamed)}; the same without a stream: {_told(whole)}"
    if _whole(whole, count):
        return bench.found("stream_tools", said, False)
    return bench.unknown("stream_tools", said)


def _demanded(bench: Bench, text: str) -> Callable[[], LLMRequest]:
    """A call that is demanded where that is possible, so that it does not hang on the model's mood."""
    demand = None if bench.profile and bench.profile.tool_choice == "none" else "required"
    return lambda: request(text, [NOW], tool_choice=demand, max_tokens=A_CALL)


def _two() -> LLMRequest:
    text = "Look up the codes of Oslo and of Rome. Call the tool for both at once."
    return request(text, [LOOKUP], max_tokens=A_CALL)


def _calls(outcome: Outcome) -> list[ToolCall]:
    return list(outcome.result.message.tool_calls) if outcome.result else []


def _whole(outcome: Outcome, count: int) -> bool:
    calls = _calls(outcome)
    return len(calls) >= count and not any(call.error for call in calls)


def _broken(outcome: Outcome) -> bool:
    return outcome.kind == "refused" or any(call.error for call in _calls(outcome))


def _told(outcome: Outcome) -> str:
    if outcome.result is None:
        return outcome.words
    count, broken = len(_calls(outcome)), sum(bool(call.error) for call in _calls(outcome))
    came = {0: "no call came", 1: "one call came"}.get(count, f"{count} calls came")
    return f"{came}, {broken} with broken arguments" if broken else came


# ---------------------------------------------------------------- demanded, cut, handed on


async def demanded_then_free(bench: Bench) -> Finding:
    """Whether a demanded call is made, and whether the model then answers in its own words."""
    name, form = "demanded_call", "A call demanded, then the result without a demand"
    if not bench.takes_tools:
        return Finding(name, f"{form}: {NOT_ASKED}", "That tells nothing")
    if bench.profile and bench.profile.tool_choice == "none":
        return Finding(name, f"{form}: not asked, since demands are not taken", "Calls cannot be demanded")
    first = await bench.ask(request("Hello.", [NOW], tool_choice="required", max_tokens=A_CALL))
    if first.result is None:
        return Finding(name, f"{form}: {first.words}", "That tells nothing")
    message = first.result.message
    if not message.tool_calls:
        return Finding(name, f"{form}: no call came", "Do not rely on a demand with this model")
    results = [ToolMessage(content="12:00", tool_call_id=c.id, tool_name=c.name) for c in message.tool_calls]
    history: list[ChatMessage] = [UserMessage(content="Hello."), message, *results]
    then = await bench.ask(request(history, [NOW], tool_choice="auto", max_tokens=A_CALL))
    if then.result is None:
        return Finding(name, f"{form}: called, then {then.words}", "A loop over this model will end there")
    free = "answered freely" if not then.result.message.tool_calls else "called again"
    return Finding(name, f"{form}: called, then {free}", "A demanded call fits into a loop")


async def cut_answer(bench: Bench) -> Finding:
    """Whether the output limit holds inside a call, and whether the answer says that it was cut."""
    form = f"A long call cut at {TOO_LITTLE} tokens"
    if not bench.takes_tools:
        return Finding("cut_answer", f"{form}: {NOT_ASKED}", "That tells nothing")
    outcome = await bench.ask(_long())
    result = outcome.result
    if result is None:
        return Finding("cut_answer", f"{form}: {outcome.words}", "That tells nothing")
    if _too_long(result):
        return await _other_limit(bench, f"{form}: {result.usage.output_tokens} tokens came")
    if result.stop_reason == "length":
        return Finding("cut_answer", f"{form}: it says so", "Nothing of such an answer is run")
    if any(call.error for call in result.message.tool_calls):
        return Finding(
            "cut_answer",
            f"{form}: it says {result.stop_reason}, with broken arguments",
            "The broken arguments give it away, and such a call is not run",
        )
    return Finding("cut_answer", f"{form}: a complete answer came", "That tells nothing")


async def _other_limit(bench: Bench, said: str) -> Finding:
    """The limit was taken and not heeded: perhaps it is read from the other field."""
    if bench.profile is None:
        return Finding("cut_answer", said, "The limit is not heeded")
    field = _OTHER_FIELD[bench.profile.max_tokens_field]
    outcome = await bench.ask(_long(), max_tokens_field=field)
    said = f"{said}; with the limit as {field}: {outcome.words}"
    if outcome.result is not None and not _too_long(outcome.result):
        return bench.found("max_tokens_field", f"{said}, and heeded", field)
    return Finding("cut_answer", said, "The limit is not heeded under either name")


def _long() -> LLMRequest:
    text = "Save the numbers from one to two hundred, written out in words. Use the tool."
    return request(text, [SAVE], max_tokens=TOO_LITTLE)


def _too_long(result: LLMResult) -> bool:
    # Servers count a little differently; twice the limit is no matter of counting.
    return (result.usage.output_tokens or 0) > 2 * TOO_LITTLE


async def odd_text(bench: Bench) -> Finding:
    """Whether a result may hold other scripts, and what the encoder makes of a NUL."""
    return await _one(
        bench,
        "odd_text",
        "A result with other scripts, an emoji and a NUL",
        odd_result(),
        "Results may hold any text",
        "Results with such text will be refused",
    )


async def pictures(bench: Bench) -> Finding:
    """Whether a picture that a tool returned can be handed on."""
    return await _one(
        bench,
        "pictures",
        "A picture returned by a tool",
        picture(),
        "Pictures can be handed on",
        "The model reads no pictures: do not send it any",
    )


async def foreign_history(bench: Bench) -> Finding:
    """Whether a history of another provider is taken, for dialects without profiles."""
    ids = await bench.ask(after_calls(SIGNS_ID, LONG_ID))
    whole = await bench.ask(foreign())
    good = ids.kind == whole.kind == "taken"
    follows = "Threads can be moved here" if good else "Threads of other providers may be refused here"
    said = f"Ids of another provider: {ids.words}; its reasoning and data left out: {whole.words}"
    return Finding("foreign_history", said, follows)


async def together(bench: Bench) -> Finding:
    """Whether what was taken one by one is also taken together."""
    history = [*foreign().messages, *called(SIGNS_ID, LONG_ID, said="", answered=False)]
    asked = request([*history, *twice_asked().messages], [LOOKUP])
    return await _one(
        bench,
        "together",
        "A history with all of this at once",
        asked,
        "The profile fits" if bench.profile else "Such a history can go on here",
        "The forms that were taken one by one are not taken together: look at the server's log",
    )


async def _one(bench: Bench, name: str, form: str, asked: LLMRequest, good: str, bad: str) -> Finding:
    if bench.lacks_tools(asked):
        return Finding(name, f"{form}: {NOT_ASKED}", "That tells nothing")
    outcome = await bench.ask(asked)
    follows = {"taken": good, "refused": bad}.get(outcome.kind, "That tells nothing")
    return Finding(name, f"{form}: {outcome.words}", follows)
