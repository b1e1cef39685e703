"""One tool in each of the three forms. Needs LLM_* as quickstart.py, and the package pydantic."""

import asyncio

try:
    from pydantic import BaseModel
except ImportError:
    raise SystemExit("This example needs pydantic: pip install 'playhead[pydantic]'") from None

from playhead import AgentLoop, Tool, ToolContext, ToolParameter, connect, tool


@tool  # the schema comes from the annotations; `context` is not in it
async def celsius(fahrenheit: float, context: ToolContext) -> float:
    """Convert a temperature to Celsius."""
    context.progress(1.0, "converted")
    return round((fahrenheit - 32) / 1.8, 1)


class Way(BaseModel):
    start: str
    end: str


def measure(way: Way) -> dict[str, object]:  # a function that blocks runs in a thread
    return {"from": way.start, "to": way.end, "km": 1106}


distance = Tool("distance", "Tell how far it is.", input_model=Way, execute=measure)
name = ToolParameter("name", "string", required=True)
greet = Tool("greet", "Greet.", parameters=[name], execute=lambda args: f"Hello, {args['name']}!")


async def main() -> None:
    loop = AgentLoop(connect(), tools=[celsius, distance, greet])
    result = await loop.run("Greet Ada. How far is it from Paris to Rome? What is 98.6 F in Celsius?")
    answers = [f"{m.tool_name}: {m.content}" for step in result.steps for m in step.tool_results]
    print(*answers, result.text or result.error_message, sep="\n")


asyncio.run(main())
