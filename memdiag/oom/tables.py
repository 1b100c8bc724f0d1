"""Tables of memory in use, which people pass instead of an error: PyTorch's memory summary, nvidia-smi and the like.

They name no failed allocation. Without a message, the report says what the text is and which figures it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.results.oom import MemoryTable
from memdiag.units import GIB, KIB, MIB, TIB

_MOST_TABLES = 64
_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_AMOUNT = r"\|\s*(\d+) ([KMGT]?i?B)\s*\|\s*(\d+) ([KMGT]?i?B)"
_SUMMARY = re.compile(r"PyTorch \w+ memory summary, device ID (\w+)")
_OOMS = re.compile(r"OOMs:\s*(\d+)")
_ALLOCATED, _RESERVED = re.compile(rf"Allocated memory\s*{_AMOUNT}"), re.compile(rf"reserved memory\s*{_AMOUNT}")
_MIB_OF_MIB = r"(\d+) ?MiB\s*/\s*(\d+) ?MiB"

# Name of the program: its mark, the pattern of a device with used and total memory, and the unit of both numbers.
_PROGRAMS: dict[str, tuple[re.Pattern[str], re.Pattern[str], int]] = {
    "nvidia-smi": (
        re.compile(r"\| NVIDIA-SMI "),
        re.compile(rf"^\|\s+(?P<device>\d+)\s+[A-Z][^\n|]*\|[^\n]*\n\|[^\n]*?{_MIB_OF_MIB}", re.MULTILINE),
        MIB,
    ),
    "nvidia-smi -q": (
        re.compile(r"=+NVSMI LOG=+"),
        re.compile(
            r"^GPU (?P<device>[0-9A-F:.]+)$(?:(?!^GPU ).)*?FB Memory Usage\s+Total\s+: (?P<total>\d+) MiB\s+"
            r"(?:Reserved\s+: \d+ MiB\s+)?Used\s+: (?P<used>\d+) MiB",
            re.MULTILINE | re.DOTALL,
        ),
        MIB,
    ),
    "npu-smi": (
        re.compile(r"\| npu-smi "),
        re.compile(
            r"^\|\s*(?P<device>\d+)\s+\w[^\n|]*\|[^\n]*\n\|\s*\d+\s[^\n]*?(\d+)\s*/\s*(\d+)\s*\|\s*$", re.MULTILINE
        ),
        MIB,
    ),
    "rocm-smi": (
        re.compile(r"ROCm System Management Interface"),
        re.compile(
            r"GPU\[(?P<device>\d+)\]\s*: VRAM Total Memory \(B\): (?P<total>\d+)\s+"
            r"GPU\[\d+\]\s*: VRAM Total Used Memory \(B\): (?P<used>\d+)"
        ),
        1,
    ),
    "amd-smi": (
        re.compile(r"\b(?:TOTAL|USED)_VRAM: "),
        re.compile(
            r"GPU: (?P<device>\d+)\b(?:(?!GPU: ).)*?TOTAL_VRAM: (?P<total>\d+) MB\s+USED_VRAM: (?P<used>\d+) MB",
            re.DOTALL,
        ),
        MIB,
    ),
    "xpu-smi": (
        re.compile(r"\| GPU Memory Used \(MiB\)"),
        re.compile(
            r"\| Device ID\s*\| (?P<device>\d+)(?:(?!Device ID).)*?GPU Memory Used \(MiB\)\s*\| (\d+)", re.DOTALL
        ),
        MIB,
    ),
    "gpustat": (
        re.compile(r"^\[\d+\] [^\n|]+\|[^\n|]+\|\s*\d+ / +\d+ MB", re.MULTILINE),
        re.compile(r"^\[(?P<device>\d+)\] [^\n|]+\|[^\n|]+\|\s*(\d+) / +(\d+) MB", re.MULTILINE),
        MIB,
    ),
}
_QUERY = re.compile(r"^[^\n]*\bmemory\.(?:used|total) \[MiB\][^\n]*$", re.MULTILINE)


def memory_tables(text: str, source: str = "") -> list[MemoryTable]:
    """Returns the devices in the tables of a text; a table without figures is one entry without a device."""
    found = [*_summaries(text, source)]
    for program, (mark, pattern, unit) in _PROGRAMS.items():
        if mark.search(text) is None:
            continue
        rows = [
            MemoryTable(source, program, match["device"], *(size and size * unit for size in _sizes(match)))
            for match in pattern.finditer(text)
        ]
        found += rows or [MemoryTable(source, program)]
    return [*found, *_queried(text, source)][:_MOST_TABLES]


def _sizes(match: re.Match[str]) -> tuple[int, int | None]:
    """Returns the used and the total memory of a row; by their names if these are not in this order."""
    named = match.groupdict()
    if "used" in named:
        return int(named["used"]), int(named["total"])
    numbers = [int(text) for text in match.groups()[1:]]
    return numbers[0], numbers[1] if len(numbers) > 1 else None


def _summaries(text: str, source: str) -> Iterator[MemoryTable]:
    heads = list(_SUMMARY.finditer(text))
    for number, head in enumerate(heads):
        part = text[head.end() : heads[number + 1].start() if number + 1 < len(heads) else None]
        allocated, reserved, ooms = _ALLOCATED.search(part), _RESERVED.search(part), _OOMS.search(part)
        yield MemoryTable(
            source,
            "memory_summary",
            head[1],
            _bytes(allocated),
            None,
            _bytes(reserved),
            int(ooms[1]) if ooms else None,
        )


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(match[1]) * _UNITS.get(match[2], 1)


def _queried(text: str, source: str) -> Iterator[MemoryTable]:
    """Yields the rows of ``nvidia-smi --query-gpu=… --format=csv``."""
    for head in _QUERY.finditer(text):
        names = [name.strip() for name in head[0].split(",")]
        for row, line in enumerate(text[head.end() :].lstrip("\r\n").splitlines()):
            values = dict(zip(names, (value.strip() for value in line.split(",")), strict=False))
            sizes = [re.match(r"(\d+) MiB", values.get(f"memory.{name} [MiB]", "")) for name in ("used", "total")]
            if len(values) < len(names) or not any(sizes):
                break
            used, total = (int(size[1]) * MIB if size else None for size in sizes)
            yield MemoryTable(source, "nvidia-smi", values.get("index", str(row)), used, total)
