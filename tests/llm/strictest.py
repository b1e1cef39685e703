"""The strictest servers that conversations are handed to, as profiles and options."""

from playhead.llm.profiles import Profile

LONG = "look_up_the_time_of_high_and_low_water_at_a_port_of_the_north_sea"[:64]
STRICTEST = Profile(
    name="strictest",
    assistant_empty="placeholder",
    needs_assistant_after_tool=True,
    merge_users=True,
    tool_choice="none",
    stream_tools=False,
    id_codec="alnum9",
    max_tool_name=40,
    schema_dialect="openapi",
    needs_tools_with_tool_history=True,
)
REASONING = Profile(name="reasoning", replay_reasoning="always", assistant_empty="null", id_codec="short40")
BUDGET = {"type": "enabled", "budget_tokens": 1024}
