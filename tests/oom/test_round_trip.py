"""Printed values are read back for every form, wrapped, quoted, coloured or interleaved as in logs and terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memdiag.oom.dialects import dialects
from memdiag.oom.read import read_text
from tests.oom.message_forms import Form

FOLDER = Path(__file__).parent / "dialects"
LOG = ("rank", "local_rank", "log_pid")


def _forms() -> list[Form]:
    found: list[Form] = []
    for path in sorted(FOLDER.glob("*.py")):
        module = import_module(f"tests.oom.dialects.{path.stem}")
        found += getattr(module, "FORMS", ())
    return found


FORMS = _forms()
EXAMPLES = [(name, text) for dialect in dialects() for name, text in dialect.EXAMPLES]


@dataclass(frozen=True)
class Decoration:
    """Text around each line of a message, and the fields of the speaker that it names."""

    name: str
    before: str
    after: str = ""
    says: tuple[tuple[str, int], ...] = ()


DECORATIONS = (
    Decoration("none", ""),
    Decoration("rank", "[rank3]: ", says=(("rank", 3),)),
    Decoration("torchrun", "[default5]:", says=(("local_rank", 5),)),
    Decoration("torchrun and rank", "[default5]:[rank13]: ", says=(("local_rank", 5), ("rank", 13))),
    Decoration("torchrun to a file", "[default5]<stderr>:", says=(("local_rank", 5),)),
    Decoration("srun", "12: ", says=(("rank", 12),)),
    Decoration("Open MPI", "[1,3]<stderr>:", says=(("rank", 3),)),
    Decoration("Ray", "(RayTrainWorker pid=4711, ip=10.0.0.8) ", says=(("log_pid", 4711),)),
    Decoration("Ray in colour", "\x1b[36m(WorkerDict pid=4711)\x1b[0m ", says=(("log_pid", 4711),)),
    Decoration("Ray in lost colour", "[36m(WorkerDict pid=4711)[0m [rank7]: ", says=(("log_pid", 4711), ("rank", 7))),
    Decoration(
        "vLLM",
        "(VllmWorker rank=3 pid=1090) ERROR 06-05 06:18:13 [multiproc_executor.py:470] ",
        says=(("rank", 3), ("log_pid", 1090)),
    ),
    Decoration("older vLLM", "ERROR 03-04 07:29:31 engine.py:400] "),
    Decoration("logging", "2024-05-11 02:24:26,980 - trainer.py[line:147] - ERROR: "),
    Decoration("loguru", "2024-05-11 02:24:26.980 | ERROR    | __main__:main:42 - "),
    Decoration("glog", "E0511 02:24:26.980123 4711 worker.cc:12] "),
    Decoration("Kubernetes", "2024-05-11T02:24:26.980123456Z stderr F [rank3]: ", says=(("rank", 3),)),
    Decoration("GitHub", "2024-05-11T02:24:26.9801234Z ##[error]"),
    Decoration("compose", "server-1  | "),
    Decoration("syslog", "May 11 02:24:26 node1 train[77]: "),
    Decoration("quoted", "> "),
    Decoration("comment", "# "),
    Decoration("list of code", "- `[rank7]: ", "`", says=(("rank", 7),)),
    Decoration("indented", "        "),
    Decoration("colour", "\x1b[31m", "\x1b[0m"),
)


@st.composite
def wrappings(draw: st.DrawFn) -> Callable[[str], list[str]]:
    """Draws a function that splits a message into lines: unchanged, at a fixed width as terminals do, or at spaces."""
    kind = draw(st.sampled_from(("none", "terminal", "terminal", "blanks")))
    width = draw(st.integers(40, 120))
    if kind == "none":
        return lambda text: text.split("\n")
    if kind == "terminal":
        return lambda text: [
            line[start : start + width] for line in text.split("\n") for start in range(0, len(line) or 1, width)
        ]
    return lambda text: [piece for line in text.split("\n") for piece in _at_blanks(line, width)]


def _at_blanks(line: str, width: int) -> list[str]:
    pieces, piece = [], ""
    for word in line.split(" "):
        if piece and len(piece) + len(word) > width:
            pieces.append(piece)
            piece = word
        else:
            piece = f"{piece} {word}" if piece else word
    return [*pieces, piece]


def _wraps_shell_words(form: str) -> bool:
    # "Killed" is recognised only as a whole line, so it cannot be wrapped.
    return form in {"host_killed", "oom_killer"}


@st.composite
def decorated(draw: st.DrawFn, message: str, form: str) -> tuple[str, dict[str, object], str]:
    """Draws a message as it appears in a log, the fields of its prefix, and the name of the decoration."""
    decoration = draw(st.sampled_from(DECORATIONS))
    pieces = message.split("\n") if _wraps_shell_words(form) else draw(wrappings())(message)
    lines = [f"{decoration.before}{piece}{decoration.after}" for piece in pieces]
    rank = dict(decoration.says).get("rank")
    if rank is not None and not dict(decoration.says).get("log_pid") and draw(st.booleans()):
        other = "[rank6]:     return self._call_impl(*args, **kwargs)"
        lines = [line for own in lines for line in (own, other)]
    end = draw(st.sampled_from(("\n", "\r\n")))
    return end.join(lines) + end, dict(decoration.says), decoration.name


def _expected(fields: dict[str, object], says: dict[str, object]) -> dict[str, object]:
    # A rank in the message itself takes precedence over one in the prefix.
    return {**says, **fields}


RELAXED = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.dialect}: {form.template[:50]}")
def test_any_values_of_any_form_are_read_back(form):
    @RELAXED
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message, fields = data.draw(form.messages())
        text, says, name = data.draw(decorated(message, form.dialect))
        found = [one for one in read_text(text).messages if one.dialect == form.dialect]
        assert len(found) == 1, (name, text, [(one.dialect, one.fields) for one in read_text(text).messages])
        assert dict(found[0].fields) == _expected(fields, says), (name, text)

    check()


@pytest.mark.parametrize(("form", "message"), EXAMPLES)
def test_an_example_is_read_the_same_with_any_decoration(form, message):
    plain = [(one.dialect, dict(one.fields)) for one in read_text(message).messages]
    assert [name for name, _ in plain] == [form]

    @RELAXED
    @given(decorated(message, form))
    def check(made: tuple[str, dict[str, object], str]) -> None:
        text, says, name = made
        found = [(one.dialect, dict(one.fields)) for one in read_text(text).messages]
        assert found == [(form, _expected(fields, says)) for _, fields in plain], (name, text)

    check()
