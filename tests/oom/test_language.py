"""Chinese reports of messages are English only in names, code and quotations; texts are loaded only when needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.oom.dialects import DIALECTS
from memdiag.oom.read import read_text
from memdiag.text import Phrase, in_language, speaking
from tests.oom.corpus import CORPUS

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 47.41 GiB "
    "of which 270.69 MiB is free. Including non-PyTorch memory, this process has 47.13 GiB memory in use. Of the "
    "allocated memory 33.30 GiB is allocated by PyTorch, and 13.19 GiB is reserved by PyTorch but unallocated."
)
_CHINESE = re.compile("[\u3400-\u9fff]")


def texts() -> list[str]:
    """Returns the examples of every dialect, and the messages of the corpus if it is present."""
    found = [example for name in DIALECTS for _, example in DIALECTS[name].EXAMPLES]
    if CORPUS.exists():
        found += [json.loads(line)["text"] for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    return found


def reasons_and_parts():
    for text in texts():
        for message in read_text(text).messages:
            yield from message.judgement.reasons
            yield from (entry.what for entry in message.ledger)


def test_every_reason_and_every_part_of_the_breakdown_is_a_phrase():
    assert [text for text in reasons_and_parts() if not isinstance(text, Phrase)] == []


def test_every_reason_is_a_sentence_in_both_languages():
    wrong = []
    for text in texts():
        for reason in {reason for message in read_text(text).messages for reason in message.judgement.reasons}:
            chinese = reason.in_language("zh")
            if not (reason.endswith(".") and chinese.endswith("。") and _CHINESE.search(chinese)):
                wrong.append((reason, chinese))
    assert wrong == []


def test_reasons_follow_the_language():
    with speaking("zh"):
        (message,) = read_text(MESSAGE).messages
    assert message.judgement.reasons[0].startswith("已预留但未分配 13.19 GiB。")


def loaded(code: str) -> list[str]:
    """Returns the areas of phrases that a program loads in a separate process."""
    program = (
        "import json\nfrom memdiag import text\nareas = []\nread = text.Path.read_text\n"
        "text.Path.read_text = lambda self, *given, **named: (areas.append(self.stem), read(self, *given, "
        "**named))[1]\n"
        f"{code}\nimport sys\nprint(json.dumps([area for area in areas if (text.FOLDER / f'{{area}}.json').exists()]), "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    return json.loads(done.stderr.splitlines()[-1])


def test_no_phrases_are_loaded_at_start():
    every = (
        "from memdiag.oom.dialects import DIALECTS\nfrom memdiag.registry import resolve\nfor name in DIALECTS: "
        "DIALECTS[name]"
    )
    assert (
        loaded(
            f"{every}\nimport memdiag.oom.read, memdiag.oom.verdict, memdiag.oom.ledger, memdiag.render.oom.terminal"
        )
        == []
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_message_loads_only_its_own_phrases(language):
    areas = loaded(f"from memdiag.cli.main import main\nmain(['--lang', {language!r}, 'oom', {MESSAGE!r}])")
    assert {"oom", "cause", "oom_ledger"} <= {*areas}
    assert "oom_dialects" not in areas
    assert len(areas) == len(set(areas)) <= 8


def test_a_limit_of_the_host_has_the_same_title_in_both_languages():
    text = "Memory cgroup out of memory: Killed process 4711 (python) total-vm:30kB, anon-rss:20kB"
    english = read_text(text).messages[0].findings[0].title
    with speaking("zh"):
        chinese = read_text(text).messages[0].findings[0].title
        assert chinese == in_language(english, "zh")
