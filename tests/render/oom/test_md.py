from __future__ import annotations

import re

import pytest

from memdiag.render.oom.md import render
from memdiag.render.support.look import Look


@pytest.mark.parametrize("name", ["one", "many", "bare", "nothing", "hostile"])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_is_plain(oom_samples, name, unicode):
    shown = render(getattr(oom_samples, name)(), Look(unicode=unicode))
    assert shown.startswith("## memdiag: ")
    assert not {char for char in shown if char != "\n" and not char.isprintable()}
    assert unicode or shown.isascii()


def test_one(oom_samples):
    shown = render(oom_samples.one())
    assert shown.startswith(
        "## memdiag: FRAGMENTATION (confidence high)\n\nGPU 3, rank 3, train.log:10412\n\n**Enough memory was free"
    )
    assert "| `█` allocated by PyTorch | 10.00 GiB | 62.5% |  |" in shown
    assert "### Try first\n\n1. Use expandable segments (torch" in shown
    assert "   ```\n   export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n   ```" in shown
    assert "Remedy 6" in shown
    assert "<details><summary>Message: PyTorch on CUDA · GPU 3" in shown


def test_many(oom_samples):
    shown = render(oom_samples.many())
    assert "| 9 | 0-7 | fragmentation | 2.00 GiB to 9.00 GiB | PyTorch | train.log:10412 |" in shown
    assert "- **host RAM**: The kernel ended it. (train.log:20000)" in shown


def test_text_of_a_log_cannot_format(oom_samples):
    shown = re.sub(r"```.*?```", "", render(oom_samples.hostile()), flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<b>", re.sub(r"`[^`\n]+`", "", shown))
