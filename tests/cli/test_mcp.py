"""memdiag mcp, through the client of the official SDK, over stdio."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys

import pytest

from memdiag.cli import agent_tools
from memdiag.cli.main import COMMANDS, main
from memdiag.errors import MemdiagError

NO_SDK = "needs the package mcp, version 2"


def test_tools_answer_over_stdio(root):
    if importlib.util.find_spec("mcp") is None:
        pytest.skip(NO_SDK)
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    trace = "examples/gpt-train.pickle"
    message = (root / "examples" / "oom.log").read_text(encoding="utf-8")

    async def ask():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "memdiag", "mcp"],
            env={"PYTHONPATH": str(root), "PATH": os.environ["PATH"], "MEMDIAG_LANG": "en"},
            cwd=str(root),
        )
        async with Client(stdio_client(server)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            calls = {
                "analyze": {"trace": trace},
                "largest_tensors": {"trace": trace, "top": 3},
                "explain_oom": {"message": message},
                "simulate": {"trace": trace, "conf": "expandable_segments:True"},
            }
            found = {name: await client.call_tool(name, given) for name, given in calls.items()}
            return tools, found, await client.call_tool("analyze", {"trace": "--html=no.html"})

    tools, found, failed = asyncio.run(ask())
    assert tools == ["explain_oom", "analyze", "largest_tensors", "simulate", "tune", "fit"]
    said = {name: result.content[0].text for name, result in found.items()}
    assert not any(result.is_error for result in found.values())
    assert all(len(text) <= agent_tools.LONGEST for text in said.values())
    assert "train_gpt.py:83 train" in said["analyze"]
    assert "All of it: memdiag analyze --full --top=10 -- examples/gpt-train.pickle" in said["analyze"]
    assert "train_gpt.py:34 attention" in said["largest_tensors"]
    assert said["explain_oom"].startswith("FRAGMENTATION")
    assert "2.48 GiB" in said["simulate"]
    assert failed.is_error
    assert "--html=no.html: no such file" in failed.content[0].text


def test_a_long_answer_is_cut_after_a_line_and_points_to_the_rest():
    told = agent_tools._cut("a line of the report\n" * 1000, ["analyze", "--", "a trace.pkl"])
    assert len(told) <= agent_tools.LONGEST
    assert "\n… (" in told
    assert told.endswith(
        "\nAll of it: memdiag analyze -- 'a trace.pkl'\n"
        "For programs: add --json (memdiag explain json describes the keys of analyze --json)"
    )


def test_an_error_of_the_command_is_the_error_of_the_tool(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMDIAG_LANG", "en")
    with pytest.raises(MemdiagError, match=r"error: .*nothing\.pkl: no such file\nhint: check the path"):
        agent_tools.analyze(str(tmp_path / "nothing.pkl"))


def test_a_message_in_one_line_is_not_taken_for_a_path():
    message = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 "
    )
    message += (
        "GiB of which 1.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 8.11 GiB is "
    )
    message += "reserved by PyTorch but unallocated. " + "See documentation for Memory Management. " * 10
    assert "All of it: memdiag oom -" in agent_tools.explain_oom(message)


def test_without_the_sdk_the_hint_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp"]) == 2
    assert "pip install 'memdiag[mcp]'" in capsys.readouterr().err


def test_the_configuration_of_the_page_starts_a_command_that_exists(root):
    page = (root / "docs" / "mcp.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    server = json.loads(block)["mcpServers"]["memdiag"]
    assert server["command"] == "memdiag"
    assert server["args"][0] in COMMANDS


def test_the_skill_is_part_of_the_package(root):
    text = (root / "memdiag" / "skill" / "SKILL.md").read_text(encoding="utf-8")
    assert text.startswith("---\nname: memdiag\ndescription: ")
