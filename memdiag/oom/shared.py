r"""Removes unknown prefixes: text that the lines of one message share literally is not part of the message.

A wrapped message has its logger's prefix on every line ("ERROR:root:", "worker3: ", "| " of a box, "E   " of pytest),
and broken numbers are complete only without it. But lists share beginnings too ("Process 4711 has …"), and so do
messages that are printed twice. So a result without shared beginnings counts only if it has more than the result with
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from memdiag.oom.lines import Line, read_line
from memdiag.oom.squeezed import is_code

_QUOTE = re.compile(r"\s{0,3}((?:(?:>|&gt;)\s?){1,9})")
# The first word of a line, up to the end of a label. A number alone does not count: wrapped text begins with one.
_TOKEN = re.compile(r"\s{0,8}(?=[^\s]{0,40}[^\d\s.,%()])[^\s:\]>|\u2502\u2503]{0,40}[:\]>|\u2502\u2503\s]")
# Where a prefix can end: after a label's mark, but not inside a time or a number, nor after a level or a letter alone.
_END = re.compile(
    r"(?:[\]>|)}\u2502\u2503#$]|(?<!\d):|:(?=\s))\s*|(?<=\s)-\s+"
    r"|^\s*(?:[A-Z]\s{2,}|(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL)\s+)"
)
# functions of llama.cpp and similar programs, which name the place, not the speaker
_FUNCTION = re.compile(
    r"\s*(?:(?:ggml|gguf|llama|llm|whisper|clip|common|graph|sched)_\w{1,60}|alloc_tensor_range"
    r"|load_(?:tensors|model|all_data)):"
)
_LONGEST = 120


def unquoted(lines: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """Returns numbered lines without the ">" of quoted mail, if a neighbour is quoted too.

    Alone it may be part of the text: "10513462067 > 1369702144" may be wrapped before it.
    """
    depths = [_depth(raw) if raw[:4].lstrip()[:1] in {">", "&"} else 0 for _number, raw in lines]
    if not any(depths):
        return lines
    taken = []
    for index, (number, raw) in enumerate(lines):
        own = depths[index]
        if own:
            around = max(depths[index - 1] if index else 0, depths[index + 1] if index + 1 < len(lines) else 0)
            match = re.match(rf"\s{{0,3}}(?:(?:>|&gt;)\s?){{{min(own, around)}}}", raw)
            taken.append((number, raw[match.end() :] if match else raw))
        else:
            taken.append((number, raw))
    return taken


def _depth(raw: str) -> int:
    match = _QUOTE.match(raw)
    return match[1].count(">") + match[1].count("&gt;") if match else 0


def without_shared(lines: Sequence[Line]) -> list[Line] | None:
    """Returns the lines of one speaker without the unknown prefixes that some of them share; None if there are none.

    The prefix then becomes the line's speaker, so that "worker3: " and "worker4: " are separated.
    """
    groups: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        match = _TOKEN.match(line.text)
        # A document's name is not a speaker: "./faq.md:12:RuntimeError: …" may occur twice.
        if match and not is_code(line.text) and not _FUNCTION.match(line.text):
            groups.setdefault(match[0].strip(), []).append(index)
    taken: dict[int, tuple[str, int]] = {}
    speakers = {line.key for line in lines}
    for token, members in groups.items():
        if len(members) < 2:
            # "[3] " counts as a speaker only before some words.
            if token[0] == "[" and token.strip("[]") in speakers:
                taken[members[0]] = (token, lines[members[0]].text.index(token) + len(token))
            continue
        shared = [_shared(lines[one].text, lines[other].text) for one, other in pairwise(members)]
        common = Counter(shared)
        for place, index in enumerate(members):
            candidates = [prefix for prefix in shared[max(0, place - 1) : place + 1] if prefix]
            if candidates:
                prefix = max(candidates, key=lambda prefix: (common[prefix], -len(prefix)))
                taken[index] = (token, len(prefix))
    if not taken:
        return None
    return [_cut(line, *taken[index]) if index in taken else line for index, line in enumerate(lines)]


def _shared(one: str, other: str) -> str:
    length, beyond = 0, min(len(one), len(other), _LONGEST) + 1
    while beyond - length > 1:
        middle = (length + beyond) // 2
        length, beyond = (middle, beyond) if one[:middle] == other[:middle] else (length, middle)
    end = 0
    for match in _END.finditer(one, 0, length):
        end = match.end()
    return one[:end]


def _cut(line: Line, token: str, length: int) -> Line:
    # other facts about the speaker in the prefix
    inner = read_line(line.number, line.text[line.text.index(token) + len(token) :])
    rest = read_line(line.number, line.text[length:])
    name = rest.key or inner.key or (token.strip("[]<>:|") if any(map(str.isalnum, token)) else "")
    ranks = (line.rank, inner.rank, rest.rank)
    return replace(
        rest,
        rank=next((rank for rank in ranks if rank is not None), None),
        local_rank=next(
            (rank for rank in (line.local_rank, inner.local_rank, rest.local_rank) if rank is not None), None
        ),
        log_pid=next((pid for pid in (rest.log_pid, inner.log_pid, line.log_pid) if pid is not None), None),
        key=f"{line.key}|{name}" if line.key and name else line.key or name,
        repeats=line.repeats or rest.repeats,
        outer=(*line.outer, line.key) if line.key and name else line.outer,
    )
