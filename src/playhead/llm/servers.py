"""Built-in profiles. Each value that differs from the default cites its public source."""

from playhead.llm.profiles import Profile

PROFILES: dict[str, Profile] = {
    "openai": Profile(
        name="openai",
        evidence="documented",
        # https://platform.openai.com/docs/api-reference/chat/create: `max_tokens` is deprecated and
        # not taken by reasoning models; `include_usage` adds a last chunk with the usage.
        usage_in_stream=True,
        max_tokens_field="max_completion_tokens",
        tool_choice="named",
        prefill=True,
    ),
}

HOSTS: dict[str, str] = {"api.openai.com": "openai"}
"""The profile of a host and of all hosts below it."""
