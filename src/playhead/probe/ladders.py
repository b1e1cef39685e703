"""The fields of a profile that one form after the other finds out, and those forms."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from playhead.llm.profiles import Profile
from playhead.probe.bench import Ladder, Rung
from playhead.probe.requests import (
    A_CALL,
    LONG_ID,
    LOOKUP,
    NOW,
    RICH,
    SIGNS_ID,
    after_calls,
    called,
    foreign,
    half_said,
    request,
    stopped,
    twice_asked,
    word,
)
from playhead.types import LLMResult, ToolSchema

T = TypeVar("T")

_NAME_LENGTHS = (128, 70, 64, 40, 32, 16)
_OTHERS_LENGTH = 70
_EMPTY_FORMS = {
    "text": "empty text beside a call",
    "null": "null beside a call",
    "omit": "a call without any content",
    "placeholder": "a few words beside a call",
}
_REASONING_FORMS = {
    "never": "earlier answers without their reasoning",
    "calls": "answers with calls with a field for their reasoning",
    "always": "all answers with a field for their reasoning",
}


def max_tokens_field(start: Profile) -> Ladder:
    """The field of the output limit. The first question of all: it needs nothing else."""
    fields = _first(start.max_tokens_field, ("max_tokens", "max_completion_tokens"))
    return Ladder("max_tokens_field", [Rung(f, f"the limit of the answer as {f}", word) for f in fields])


def max_tool_name(start: Profile | None) -> Ladder:
    """The longest name of a tool. A dialect without profiles shortens long names by itself."""
    lengths = _NAME_LENGTHS if start else (_OTHERS_LENGTH,)
    return Ladder("max_tool_name", [_tool_name(length) for length in lengths])


def tool_choice() -> Ladder:
    """How a call may be demanded. One that is not the obvious one shows whether the demand counts."""
    tools = [LOOKUP, NOW]
    return Ladder(
        "tool_choice",
        [
            Rung(
                "named",
                "a tool demanded by its name",
                partial(request, "What is the code of Oslo?", tools, tool_choice=NOW.name, max_tokens=A_CALL),
                _calls_now,
            ),
            Rung("words", "any tool demanded", partial(request, "Hello.", tools, tool_choice="required")),
            Rung("none", "tools without a demand", partial(request, "Hello.", tools)),
        ],
    )


def schema_dialect() -> Ladder:
    """Whether schemas may say all that JSON Schema can say."""
    weather = partial(request, "What is the weather in Oslo?", [RICH])
    return Ladder(
        "schema_dialect",
        [
            Rung("json_schema", "a schema with $ref, anyOf, const and null", weather),
            Rung("openapi", "the same in the OpenAPI subset", weather),
        ],
    )


def usage_in_stream() -> Ladder:
    """Whether a stream tells its usage when asked to."""
    return Ladder(
        "usage_in_stream",
        [
            Rung(True, "usage asked for in a stream", word, _has_usage),
            Rung(False, "a stream that is not asked for it", word),
        ],
        stream=True,
    )


def replay_reasoning(start: Profile) -> Ladder:
    """Whether earlier reasoning must come back. The first question about histories: a server that
    wants it refuses all others."""
    values = _first(start.replay_reasoning, tuple(_REASONING_FORMS))
    return Ladder("replay_reasoning", [Rung(v, _REASONING_FORMS[v], foreign) for v in values])


def of_histories(start: Profile) -> Sequence[Ladder]:
    """What a history may look like. Each differs in one thing from what is known to be taken."""
    empties = _first(start.assistant_empty, tuple(_EMPTY_FORMS))
    both_ids, no_tools = partial(after_calls, SIGNS_ID, LONG_ID), partial(request, called())
    return (
        Ladder("assistant_empty", [Rung(v, _EMPTY_FORMS[v], partial(after_calls, said="")) for v in empties]),
        Ladder(
            "id_codec",
            [
                Rung("any", f"ids of calls with signs, and of {len(LONG_ID)} characters", both_ids),
                Rung("short40", "such ids cut to 40 characters", both_ids),
                Rung("safe64", "such ids in letters, digits, _ and -, up to 64", both_ids),
                Rung("alnum9", "such ids as 9 letters and digits", both_ids),
            ],
        ),
        Ladder(
            "needs_tools_with_tool_history",
            [
                Rung(False, "calls in the history and no tools in the request", no_tools),
                Rung(True, "the same with a tool that does nothing", no_tools),
            ],
        ),
        Ladder(
            "needs_assistant_after_tool",
            [
                Rung(False, "a new message directly behind the result of a stopped call", stopped),
                Rung(True, "the same with a short answer between them", stopped),
            ],
        ),
        Ladder(
            "merge_users",
            [
                Rung(False, "two user messages in a row", twice_asked),
                Rung(True, "the two as one", twice_asked),
            ],
        ),
        Ladder(
            "prefill",
            [
                Rung(True, "a history that ends with half an answer", half_said, _says_something),
                Rung(False, "the same with a user's 'Go on.' behind it", half_said),
            ],
        ),
    )


def _first(value: T, others: Sequence[T]) -> list[T]:
    """The value that holds so far comes first: without need nothing is changed."""
    return [value, *(other for other in others if other != value)]


def _tool_name(length: int) -> Rung:
    name = "probe_lookup_".ljust(length, "x")
    tool = ToolSchema(name, LOOKUP.description, LOOKUP.parameters, LOOKUP.input_schema)
    ask = partial(request, "What is the code of Oslo? Use the tool.", [tool], max_tokens=A_CALL)
    return Rung(length, f"a tool's name of {length} characters", ask, partial(_calls_only, name))


def _calls_only(name: str, result: LLMResult) -> bool:
    """A name that comes back cut would fit no tool. A model that calls nothing has not cut it."""
    return all(call.name == name for call in result.message.tool_calls)


def _calls_now(result: LLMResult) -> bool:
    names = [call.name for call in result.message.tool_calls]
    return names[:1] == [NOW.name] or (not names and result.stop_reason == "length")


def _has_usage(result: LLMResult) -> bool:
    return result.usage.input_tokens is not None or result.usage.output_tokens is not None


def _says_something(result: LLMResult) -> bool:
    message = result.message
    return bool(message.content or message.reasoning or result.stop_reason == "length")
