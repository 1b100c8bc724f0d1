"""``memdiag mcp``: serve memdiag's answers to agents, by the Model Context Protocol over stdin and stdout."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from memdiag.errors import MemdiagError
from memdiag.text import phrase


def mcp() -> None:
    """Serve memdiag's tools to agents (Model Context Protocol over stdio).

    The tools explain an out-of-memory error, analyze a trace, list the largest
    tensors, simulate and tune allocator settings, and search configurations
    that fit. Each answer has at most 2,000 tokens and names the command that
    prints everything.

    Exit status: 0 success, 2 error.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise MemdiagError(phrase("mcp.missing"), phrase("mcp.missing.hint")) from None
    from memdiag.cli.agent_tools import TOOLS
    from memdiag.version import __version__

    server = MCPServer("memdiag", instructions=phrase("mcp.instructions"), version=__version__, log_level="WARNING")
    for tool in TOOLS:
        server.tool(structured_output=False)(_with_errors(tool, ToolError))
    server.run("stdio")


def _with_errors(tool: Callable[..., str], error_of_tool: type[Exception]) -> Callable[..., str]:
    """Returns a tool whose errors the SDK reports with their text; it hides that of all others."""

    @wraps(tool)
    def answer(*arguments: object, **options: object) -> str:
        try:
            return tool(*arguments, **options)
        except MemdiagError as error:
            raise error_of_tool(error.message) from None

    return answer
