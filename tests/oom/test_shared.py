"""Unknown prefixes are removed from wrapped messages because all their lines share them; lists keep shared text."""

from __future__ import annotations

import pytest

from memdiag.oom.dialects import dialects
from memdiag.oom.lines import read_line
from memdiag.oom.read import read_text
from memdiag.oom.shared import unquoted, without_shared

GIVEN = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 47.41 GiB "
    "of which 270.69 MiB is free. Including non-PyTorch memory, this process has 47.13 GiB memory in use. Of the "
    "allocated memory 33.30 GiB is allocated by PyTorch, and 13.19 GiB is reserved by PyTorch but unallocated."
)
PREFIXES = (
    "> ",
    ">> ",
    "> > ",
    "&gt; ",
    "\u2502 ",
    "\u2503 ",
    "ERROR:root:",
    "[ERROR] ",
    "12:30:01 ERROR ",
    "E   ",
    "worker3: ",
    "node7: ",
    "[worker-3] ",
    "stderr: ",
    "<stderr> ",
    "[3] ",
    "2025-01-02 03:04:05,678 [ERROR] rank 2: ",
    ">>> ",
    "app.log: ",
    "train.py:ERROR: ",
    "2025-05-11T08:14:22.918273+00:00 app[web.1]: ",
    "[rank3]: ERROR:root:",
    "[worker-3] [rank3]: ",
)
FROM_PREFIX = {"rank", "local_rank", "log_pid"}


def _wrapped(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]


def _fields(text: str) -> list[dict[str, object]]:
    return [
        {name: value for name, value in message.fields.items() if name not in FROM_PREFIX}
        for message in read_text(text).messages
    ]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_wrapped_message_is_joined_without_its_shared_prefix(prefix):
    for width in (*range(43, 120, 7), 64, 80, 100):
        text = "\n".join(prefix + piece for piece in _wrapped(GIVEN, width))
        assert _fields(f"Traceback (most recent call last):\n{text}\n") == _fields(GIVEN), text


@pytest.mark.parametrize(("_form", "message"), [example for dialect in dialects() for example in dialect.EXAMPLES])
def test_an_unknown_prefix_does_not_change_the_fields_of_an_example(_form, message):
    text = f"Traceback (most recent call last):\n{message}"
    assert _fields("\n".join(f"<stderr> {line}" for line in text.split("\n"))) == _fields(text)


def test_alternating_lines_of_two_workers_are_separated():
    one, other = _wrapped(GIVEN, 70), _wrapped(GIVEN.replace("1.50", "1.75").replace("GPU 0", "GPU 1"), 70)
    text = "\n".join(f"[worker-0] {first}\n[worker-1] {second}" for first, second in zip(one, other, strict=True))
    assert [(fields["device_index"], fields["requested_bytes"]) for fields in _fields(text)] == [
        (0, 3 << 29),
        (1, 7 << 28),
    ]


@pytest.mark.parametrize("outer", ["[rank3]: ", "trainer-1  | ", "(RayTrainWorker pid=12) ", "3: "])
def test_only_the_outer_of_two_prefixes_is_on_every_line_of_a_wrapped_message(outer):
    inner = "(EngineCore_0 pid=212) ERROR 08-20 02:11:09 [core.py:700] "
    text = "\n".join(outer + piece for piece in _wrapped(inner + GIVEN, 90))
    (message,) = read_text(text).messages
    assert message.fields["log_pid"] == 212
    assert _fields(text) == _fields(GIVEN)


def test_a_quotation_mark_without_quoted_neighbours_is_kept():
    lines = [(1, "Out of memory: 10513462067"), (2, "> 1369702144")]
    assert unquoted(lines) == lines
    assert unquoted([(1, "> 33."), (2, "> 30 GiB")]) == [(1, "33."), (2, "30 GiB")]
    assert unquoted([(1, "> memory is"), (2, "> >> allocated")]) == [(1, "memory is"), (2, ">> allocated")]


def test_a_shared_prefix_never_ends_inside_a_number_or_a_time():
    lines = [read_line(number, f"job 7 at 1:2{number}:3 is 1.{number}") for number in range(2)]
    assert without_shared(lines) is None
    assert without_shared([read_line(1, "12 34"), read_line(2, "12 35")]) is None


def test_html_entities_are_decoded():
    html = GIVEN.replace("capacity of", "capacity&nbsp;of").replace(" GiB.", "&#32;GiB.")
    assert _fields(html) == _fields(GIVEN)
    assert (
        read_line(1, "&gt; it isn&amp;#39;t &lt;here&gt; &quot;now&quot; &amp;c&#x27;").text
        == "it isn't <here> \"now\" &c'"
    )
