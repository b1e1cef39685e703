"""A tool that tells what the host application shows."""

from typing import Any

from playhead.tools.define import tool
from playhead.types import AgentContext, JsonObject, ToolContext, ToolDefinition


def echo_context() -> ToolDefinition[..., Any]:
    """Make the `echo_context` tool.

    It takes no arguments and returns `projectId`, `mediaCount`, `activeSceneId`, `mediaNames` and
    `playbackTimeMs` of the `AgentContext`; without one, nulls and none, and a `note` that says so.
    """

    @tool(
        name="echo_context",
        description="Tell which project, scene and media are open, and where the playhead is.",
        replay="safe",
    )
    async def echo(context: ToolContext) -> JsonObject:
        shown = context.context
        there = isinstance(shown, AgentContext)
        agent = shown if isinstance(shown, AgentContext) else AgentContext()
        summary: JsonObject = {
            "projectId": agent.project_id,
            "mediaCount": len(agent.media_assets),
            "activeSceneId": agent.active_scene_id,
            "mediaNames": [asset.name for asset in agent.media_assets],
            "playbackTimeMs": agent.playback_time_ms,
        }
        return summary if there else {**summary, "note": "The application gave no context."}

    return echo
