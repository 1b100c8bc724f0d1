r"""Parses one line of a log: the program's text, and the speaker from the prefixes of loggers and launchers.

Messages come through torchrun, srun, mpirun, Ray, docker, Kubernetes, half a dozen logging libraries, terminals and
clipboards, each of which may add a prefix, in any order. ``read_lines`` removes known prefixes from the front. Text
that could be part of a message is kept. An example is CANN's "[ERROR] 2025-12-03-12:16:41 (PID:10652, Device:0,
RankID:-1)", whose dash between date and time no logger writes. Quotation marks and numbers at the start of a wrapped
line are others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or a part of one.

    Attributes:
        number: Line number in its file, from 1.
        text: The program's text, without ANSI codes, timestamp, rank, process or quotation mark before it.
        rank: Rank named before the text ("[rank3]:", "rank=3"), or None.
        local_rank: Local rank named before the text ("[default3]:").
        log_pid: Process named before the text ("(Worker pid=123)").
        key: Identity of the speaker, to separate interleaved speakers; "" if the line names none.
        repeats: Number of repetitions according to Ray ("[repeated 6x across cluster]").
        outer: Keys of the outer speakers of a nested one: "[rank3]: (Worker pid=7) " is within rank 3.
    """

    number: int
    text: str
    rank: int | None = None
    local_rank: int | None = None
    log_pid: int | None = None
    key: str = ""
    repeats: int = 0
    outer: tuple[str, ...] = ()


# ESC as a byte, as JSON, Python, C and terminals spell it, or lost in the clipboard (then only colours are certain).
_ANSI = re.compile(
    r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e|\^\[|\u241b)"
    r"(?:\[[0-9;:?]{0,40}[A-Za-z]|\][^\x07\x1b\\]{0,200}(?:\x07|\x1b\\)|\([AB0])"
    r"|\[(?:\d{1,2}|10[0-7])(?:;\d{1,3}){0,4}m"
)
# Newlines that JSON or repr wrote as two characters. "D:\nets\x" is a path: a word and another backslash follow.
_BREAK = re.compile(r"\r\n?|(?<![A-Za-z]:)(?:\\+r)?\\+n(?![A-Za-z0-9_.-]{1,60}\\[A-Za-z0-9_])")
# Web pages and mails are copied with their entities, including escaped entities ("&amp;#39;").
_ENTITY = re.compile(r"&(?:amp;){0,4}(?:#(\d{2,5})|#[xX]([0-9a-fA-F]{2,4})|(lt|gt|quot|apos|nbsp|amp));")
_ENTITIES = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ", "amp": "&"}
# tqdm's bar: it ends without a newline, so the program's next text follows it in the same line.
_BAR = re.compile(
    r"(?:^[^|%\[\]]{0,60}:)?\s{0,3}\d{1,3}%\|[^|]{0,250}\|"
    r"(?:\s{0,3}[\d.,kMGT?]{1,20}/[\d.,kMGT?]{1,20}[^\[\r\n]{0,12}\[[^\]]{0,160}\]?)?"
)
_REPEATED = re.compile(r"\s*\[repeated (\d{1,9})x across (?:the )?\w{1,20}\](?:\s*\(Ray dedup.{0,400})?\s*$")

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
_DATE = r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d/\d\d/\d{2,4}|\d\d-\d\d-\d{4})"
_ZONE = r"(?:\s?Z|\s?[+-]\d\d:?\d\d|\s?UTC|\s[AP]M)?"
_MONTH = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}"
_PROGRAM = r"\s[\w.-]{1,64}\s[\w./@-]{1,64}(?:\[\d{1,9}\])?:"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|FATAL|EXCEPTION)"

# Prefixes of a message, as regular expressions for the start of a line. They are tried repeatedly until none matches.
# Groups: rank, local (rank), pid, who (another name of the speaker).
_SPEAKERS = (
    r"\[rank\s?(?P<rank_a>\d{1,7})\]:?",  # PyTorch
    # Common forms: [Rank 3], (rank=3), [RANK:3].
    r"[\[(](?i:rank)[\s:=_-]{0,2}(?P<rank_b>\d{1,7})(?:/\d{1,7})?[\])]:?",
    r"(?i:rank)\s?(?P<rank_c>\d{1,7})\]?:(?=\s)",  # PyTorch's without its brackets
    r"\[(?P<rank_d>\d{1,7})\]:(?=\s)",
    # torchrun: [default3]:
    r"\[[a-z_]{1,20}(?P<local_a>\d{1,5})(?:\|(?P<rank_e>\d{1,7}))?\](?::<std(?:out|err)>:?|<std(?:out|err)>:|:)",
    r"\[\d{1,6},(?P<rank_f>\d{1,7})\]<std(?:out|err|diag)>:",  # Open MPI: job and rank
    # Ray and vLLM: (Worker pid=123, ip=10.0.0.1), (VllmWorker rank=3 pid=1090), (Actor(1, 2) pid=3)
    r"\((?P<who_ray>[^()\n]{0,120}(?:\([^()\n]{0,60}\)[^()\n]{0,40})?)\bpid=(?P<pid>\d{1,9})(?:[,\s][^()\n]{0,160})?\)",
    r"\((?P<who_service>raylet|gcs_server|autoscaler[^()]{0,20}|dashboard|raylet,[^()]{1,60})\)(?=\s|$)",
    r"\[(?P<who_pod>pod/[^\]\s]{1,200})\]",  # kubectl logs --prefix
    # mpiexec -l of MPICH: the rank; other programs write other numbers in this form.
    r"\[(?P<who_index>\d{1,5})\](?=\s+(?:\d{4}-|[\[(]|(?!NCCL)[A-Z]|rank\d|[\w.]{1,80}Error))",
)
_STAMPS = (
    # [2025-04-23 19:23:11 TP0], Ray's "E 9751 9751"
    rf"\[{_DATE}[T _:-]{_CLOCK}{_ZONE}(?:\s(?P<who_stamp>[^\[\]]{{1,80}}))?\]",
    # Kubernetes among them
    rf"{_DATE}(?:[T _:]|,\s){_CLOCK}{_ZONE}:?(?=[\s\[(|]|$)(?:\s(?:stdout|stderr)\s[FP](?=\s|$))?",
    # syslog, with host and program
    rf"\[?{_MONTH}\s(?:\d{{4}}\s)?{_CLOCK}{_ZONE}(?:\s\d{{4}})?\]?(?:{_PROGRAM})?(?=[\s\[]|$)",
    # AWS Neuron, with process and thread
    rf"\d{{4}}-[A-Z][a-z]{{2}}-\d\d\s{_CLOCK}(?:\s+\d{{1,9}}:\d{{1,9}}(?=\s))?",
    rf"\[?{_CLOCK}\]?(?=\s)",
    r"\[\s{0,8}\d{1,9}\.\d{6}\](?:\[\s{0,6}[TC]\d{1,9}\])?",  # dmesg
    rf"{_LEVEL}\s+\d\d-\d\d\s{_CLOCK}\s+(?:\[[^\[\]\s]{{1,100}}\]|[\w./-]{{1,80}}:\d{{1,6}}\])",  # vLLM
    rf"\[?[IWEFCVD]\d{{2,8}}\s+{_CLOCK}\s+(?:\d{{1,9}}\s+)?[\w./+-]{{1,100}}:\d{{1,6}}\]",  # glog, klog, absl, c10
    r"\[[IWEFC]\s[\w./+-]{1,100}:\d{1,6}\]",  # c10 before 2.2
    # llama.cpp: minutes, seconds, milliseconds, microseconds since the start
    r"\d{1,6}\.\d\d\.\d{3}\.\d{3}\s[DIWE](?=\s|$)",
    r"\[[\w./-]{1,80}\.py:\d{1,6}(?::[\w<>.]{1,60})?\]",  # DeepSpeed, and vLLM's cut off
    # Any program's, before a rank; others are CANN's.
    rf"\[{_LEVEL}\](?=\s+(?:\[?rank\s?\d|\[[a-z]{{1,20}}\d{{1,5}}\]:))",
    r"##\[\w{1,20}\]|::(?:error|warning|notice|debug)(?:\s[^:]{0,120})?::",  # GitHub Actions
)
# Text that logging libraries put between a timestamp and the message: " - name - ERROR - ", "| ERROR |
# module:function:3 - ".
_PLACE = r"\[?(?:[\w./<>-]{1,80}\.py(?::[\w<>]{1,60})?:\d{1,6}|[\w.]{1,80}:[A-Za-z_<][\w<>]{0,60}:\d{1,6})\]?"
_LOGGING = (
    rf"[-|:]?\s*(?:[^\s|]{{1,80}}\s+[-|]\s+){{0,3}}\[?{_LEVEL}\]?(?:\s*[-|:]\s*|\s+(?=\[?[\w.<>]{{1,80}}(?:\.py)?:\d))"
    rf"(?:{_PLACE}\s*[-|:]?\s+)?"
)
# Marks of quoted mail, comments and lists. "10513462067 > 1369702144" and ">> allocated memory" wrapped before ">" do
# not count.
_MARKS = (
    r">(?!\s*\d(?!\d{0,3}[-/:]\d))(?!>?\s*allocated)|#+(?=[\s\[(]|$)|//+(?=\s)|[-*+|\u2502\u2503\u2551](?=\s)"
    r"|[`\"']{1,3}(?=[\[(]\w)"
)
_SIDES = "\u2502\u2503\u2551"  # of boxes that rich draws around tracebacks; the left border is among the marks
_FIRST = (
    r"[a-z0-9][\w.-]{0,60}\s{1,40}\|(?=\s)",  # docker compose
    r"\d{1,7}:(?=\s)(?!\s*\d+\s+Killed)",  # srun --label
)

_PREFIX = re.compile(r"\s*(?:" + "|".join((*_SPEAKERS, *_STAMPS, _MARKS)) + ")")
_SERVICE = re.compile(rf"\s*(?:(?P<who_compose>{_FIRST[0]})|(?P<rank_srun>{_FIRST[1]}))")
_AFTER_STAMP = re.compile(r"\s*" + _LOGGING)
# pdsh, DeepSpeed's launcher
_HOST = re.compile(r"\s*([\w.-]{1,64}):\s+(?=\[rank\d|\[[a-z]{1,20}\d+\]|\(\w[^()]{0,80}pid=)")
# A line that begins with a letter has a prefix only if this matches, which is rare: this test saves the others.
_NAMED = re.compile(
    rf"(?i:rank)|{_MONTH}|{_LEVEL}\s+\d|[IWEFCVD]\d"
    r"|[\w.-]{1,64}(?:\s{1,40}\||:\s+[\[(])"
)
_RANK_IN_ACTOR = re.compile(r"\brank=(\d{1,7})")
_TENSOR_PARALLEL = re.compile(r"(?:[A-Z]{2}\d{1,5}\s?)+$")
_MOST_PREFIXES = 16
_LONGEST_PREFIX = 1000


class _Speaker:
    """Facts about a line's speaker, collected from its prefixes."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.log_pid: int | None = None
        self.place = ""
        self.other = ""
        self.outer: list[str] = []

    def take(self, match: re.Match[str]) -> None:
        if match.lastgroup is None:
            return
        key = self.key
        if key:
            self.outer.append(key)
        for group, text in match.groupdict().items():
            if text is None:
                continue
            kind = group.partition("_")[0]
            if kind == "rank" and self.rank is None:
                self.rank = int(text.strip(" :"))
            elif kind == "local":
                self.local_rank = int(text)
            elif kind == "pid":
                self.log_pid = int(text)
            else:
                self._name(group, text)

    def _name(self, group: str, text: str) -> None:
        if group == "who_ray":
            rank = _RANK_IN_ACTOR.search(text)
            if rank and self.rank is None:
                self.rank = int(rank[1])
        elif group in {"who_compose", "who_pod"}:
            self.place = text.strip(" |")
        elif group != "who_stamp" or _TENSOR_PARALLEL.search(text):
            self.other = text

    @property
    def key(self) -> str:
        who = next(
            (
                f"{kind}{value}"
                for kind, value in (
                    ("pid", self.log_pid),
                    ("rank", self.rank),
                    ("local", self.local_rank),
                    ("", self.other or None),
                )
                if value is not None
            ),
            "",
        )
        return f"{self.place}/{who}" if self.place else who


def read_lines(number: int, raw: str) -> list[Line]:
    r"""Parses a line of a log, which carriage returns or a literal "\n" may divide into several.

    Args:
        number: Its number in the file.
        raw: The line, without its newline.
    """
    text = raw.replace("\0", "")
    if "&" in text:
        text = unescaped(text)
    if "[" in text:
        text = _ANSI.sub("", text)
    parts = _BREAK.split(text) if "\r" in text or "\\" in text else [text]
    lines = [_read(number, part) for part in parts]
    return [line for line in lines if line.text or line.key] or lines[:1]


def unescaped(text: str) -> str:
    """Returns ``text`` with the characters that HTML spells as entities."""

    def character(match: re.Match[str]) -> str:
        decimal, hexadecimal, name = match.groups()
        return _ENTITIES[name] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))

    return _ENTITY.sub(character, text)


def read_line(number: int, raw: str) -> Line:
    """Parses a line of a log; the parts of a divided one are joined by spaces, and the first named speaker wins."""
    lines = read_lines(number, raw)
    speaker = next((line for line in lines if line.key), lines[0])
    text = " ".join(line.text for line in lines)
    repeats = max(line.repeats for line in lines)
    return Line(number, text, speaker.rank, speaker.local_rank, speaker.log_pid, speaker.key, repeats)


def _read(number: int, text: str) -> Line:
    repeats = 0
    if "[repeated " in text:
        match = _REPEATED.search(text, max(0, len(text) - 500))
        if match:
            repeats, text = int(match[1]), text[: match.start()]
    if "%|" in text:
        text = _BAR.sub(" ", text).strip()
    speaker = _Speaker()
    position, quoted = _prefix(text, speaker)
    text = text[position:]
    # Spaces before the text are its indentation, except for the one that ends the prefix.
    if position and text.startswith(" "):
        text = text[1:]
    text = text.rstrip()
    if quoted:
        text = text.removesuffix(quoted)
    if text[-1:] in _SIDES:
        text = text.rstrip(_SIDES)
    key = speaker.key
    outer = tuple(name for name in dict.fromkeys(speaker.outer) if name != key) if speaker.outer else ()
    return Line(number, text.rstrip(), speaker.rank, speaker.local_rank, speaker.log_pid, key, repeats, outer)


def _prefix(text: str, speaker: _Speaker) -> tuple[int, str]:
    """Returns the start of the text after all prefixes, and the quotation mark that was opened."""
    if text[:1].isalpha() and not _NAMED.match(text):
        return 0, ""
    position, quoted, stamped = 0, "", False
    match: re.Match[str] | None
    for _ in range(_MOST_PREFIXES):
        if position > _LONGEST_PREFIX:
            break
        match = _PREFIX.match(text, position)
        if match is None and stamped:
            match, stamped = _AFTER_STAMP.match(text, position), False
        if match is None and not speaker.key:
            match = _SERVICE.match(text, position)
        if match is None:
            match = _HOST.match(text, position)
            speaker.place = speaker.place or (match[1] if match else "")
        if match is None or match.end() == position:
            break
        taken = match[0].strip()
        if taken[:1] in {"`", '"', "'"}:
            quoted = taken
        stamped = stamped or taken[:1].isdigit() or taken[:1] == "["
        speaker.take(match)
        position = match.end()
    return position, quoted


def by_speaker(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Returns the lines by speaker, in order of first appearance.

    A line without a speaker belongs to the previous speaker. A line that names only the outer of nested speakers, such
    as a wrapped line, belongs to the inner one that spoke last.
    """
    groups: dict[str, list[Line]] = {}
    inner: dict[str, str] = {}
    last = ""
    for line in lines:
        if line.key:
            last = inner.get(line.key, line.key)
            for key in line.outer:
                inner[key] = last
        groups.setdefault(last, []).append(line)
    return groups
