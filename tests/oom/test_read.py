"""Any text is read without an error, and an internal error loses only the affected part of a message."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.oom import advice, ledger, read, verdict
from memdiag.oom.dialects import DIALECTS, dialects
from memdiag.oom.read import read_text
from tests.oom.corpus import CORPUS, scores

EXAMPLES = [text for dialect in dialects() for _, text in dialect.EXAMPLES]
GIVEN = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 8.00 GiB of which 0.50 GiB is free."
)


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    # Errors in dialects, arithmetic and advice are raised instead of skipped.
    monkeypatch.setenv("MEMDIAG_DEBUG", "1")


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """Draws parts of examples, joined and with other characters inserted."""
    pieces = []
    for _ in range(draw(st.integers(1, 5))):
        text = draw(st.sampled_from(EXAMPLES))
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, len(text)))
        between = draw(
            st.one_of(
                st.sampled_from(["\n", "", " ", "\r", "\\n", "\x1b[0m", "[rank1]: ", "0", "-1", "9" * 40]),
                st.text(max_size=20),
            )
        )
        place = draw(st.integers(start, end))
        pieces.append(text[start:place] + between + text[place:end])
    return draw(st.sampled_from(["", "\n", "\n[rank2]: "])).join(pieces)


@given(st.text())
def test_any_text_is_read(text):
    read_text(text)


@settings(max_examples=120, deadline=None)
@given(mangled())
def test_any_mangled_message_is_read(text):
    report = read_text(text)
    for message in report.messages:
        json.dumps(dict(message.fields))
        assert message.count >= 1
        assert message.line >= 1
        assert not any(isinstance(value, int) and value < 0 for value in message.fields.values()), message.fields


@given(st.binary(max_size=3000))
def test_any_bytes_are_read(data):
    read._MessageReader().read([data], "x")


@pytest.mark.skipif(not CORPUS.is_file(), reason="the collection of real messages (../shared) is not here")
def test_real_messages_are_read_field_by_field():
    missed = {score.name: score.wrong for score in scores() if score.wrong}
    assert missed == {}


@pytest.mark.skipif(not CORPUS.is_file(), reason="the collection of real messages (../shared) is not here")
def test_all_real_messages_in_one_log_are_found():
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    quiet = "\n".join(["step 1 loss 0.5"] * 200)
    log = "\n".join(f"{row['text']}\n{quiet}" for row in rows)
    found = {message.dialect for message in read_text(log).messages}
    assert found >= {row["format"] for row in rows}


@pytest.mark.parametrize(("module", "name"), [(verdict, "judge"), (ledger, "account"), (advice, "advise")])
def test_an_error_in_one_part_loses_only_that_part(monkeypatch, module, name):
    def broken(*_given):
        raise ZeroDivisionError

    monkeypatch.setattr(module, name, broken)
    with pytest.raises(ZeroDivisionError):
        read_text(GIVEN)
    monkeypatch.delenv("MEMDIAG_DEBUG")
    (message,) = read_text(GIVEN).messages
    assert message.fields["requested_bytes"] == 3 << 29


def test_an_error_in_a_dialect_loses_only_its_messages(monkeypatch):
    def broken(_text):
        raise RecursionError

    monkeypatch.setattr(DIALECTS["oom-killer"], "find", broken)
    monkeypatch.delenv("MEMDIAG_DEBUG")
    (message,) = read_text(f"Out of memory: Killed process 4711 (python)\n{GIVEN}").messages
    assert message.dialect == "torch_cuda_21"


def test_distinct_messages_beyond_a_bound_are_counted_only(monkeypatch):
    monkeypatch.setattr(read, "MOST_MESSAGES", 3)
    report = read_text("\n".join(f"[rank{rank}]: {GIVEN}" for rank in range(5)))
    assert (len(report.messages), report.num_messages_omitted) == (3, 2)


def test_many_ranks_are_read_one_by_one():
    report = read_text("\n".join(f"[rank{rank}]: {GIVEN}" for rank in range(4000)))
    assert [message.rank for message in report.messages] == list(range(4000))


def test_a_long_message_is_shown_in_part():
    (message,) = read_text(GIVEN + " Process 4711 has 1.00 GiB memory in use." * 1000).messages
    assert len(message.text) <= read.LONGEST_TEXT


def test_no_heavy_module_and_only_the_matching_dialect_is_loaded():
    code = (
        "import sys; from memdiag.oom.read import read_text; read_text('Killed'); print([name for name in sys.modules "
        "if name.split('.')[0] in {'numpy', 'pandas', 'numba', 'torch', 'rich', 'typer'}], "
        "'memdiag.oom.dialects.tensorflow' in sys.modules, 'memdiag.oom.dialects.host_killed' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["[]", "False", "True"]
