"""Tools: how they are declared, kept by name, validated and run."""

from playhead.tools.define import Tool, tool
from playhead.tools.registry import DefinitionRegistry, ToolRegistry

__all__ = ["DefinitionRegistry", "Tool", "ToolRegistry", "tool"]
