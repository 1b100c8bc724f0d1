"""The expressions that find programs and stages around a message are compiled only for texts that may match."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.oom import programs, stages
from memdiag.oom.lazily import Words

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 47.41 GiB"
)
LAZY = [
    *(words for table in (programs.ENGINES, programs.TRAINERS, programs.SHARING) for _, words in table),
    programs.FUSED_COMMUNICATION,
    *(value for value in vars(stages).values() if isinstance(value, Words)),
    *(words for _, words in stages._REINFORCED),
]


@pytest.mark.parametrize("words", LAZY, ids=lambda words: words.words[0])
def test_every_match_of_an_expression_contains_one_of_its_words(words):
    @settings(max_examples=60, database=None, deadline=None)
    @given(st.from_regex(words.expression))
    def check(text):
        assert any(word in text for word in words.words)

    check()


def test_a_message_alone_compiles_no_expression_of_programs_and_stages():
    program = (
        "import json\nfrom memdiag.oom import lazily\nfrom memdiag.oom.read import read_text\n"
        f"read_text({MESSAGE!r})\nbefore = lazily._compiled.cache_info().currsize\n"
        "read_text('  File \"/usr/lib/vllm/worker.py\", line 3, in evaluate\\n' + "
        f"{MESSAGE!r})\nprint(json.dumps([before, lazily._compiled.cache_info().currsize]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    before, after = json.loads(done.stdout)
    assert before <= 1
    assert 2 <= after < len(LAZY) / 2
