from __future__ import annotations

import pytest

from tests.oom.message_forms import Form
from tests.oom.single import commands, single

FORMS = [
    Form(
        "serving",
        (
            "RuntimeError: Not enough memory to handle 2048 prefill tokens. You need to decrease "
            "`--max-batch-prefill-tokens`"
        ),
    ),
    Form("serving", "Insufficient VRAM for model and cache"),
]


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (
            (
                "ValueError: Not enough memory to handle 512 prefill tokens. You need to decrease "
                "`--max-batch-prefill-tokens`"
            ),
            "tgi",
        ),
        ("RuntimeError: Not enough memory to handle 4000 max total tokens", "tgi"),
        ("ValueError: Insufficient space in devices", "exllama"),
    ],
)
def test_framework_of_each_engine(text, framework):
    message = single(text)
    assert (message.dialect, message.framework, message.judgement.verdict) == ("serving", framework, "capacity")


def test_a_flashinfer_overflow_advises_a_workspace_of_twice_the_request():
    head = (
        "RuntimeError: Error in function 'aligned_alloc' at flashinfer/allocator.h:49: Buffer overflow when allocating "
        "memory for "
    )
    text = (
        f"{head}batch_prefill_tmp_v with size 805306368 and alignment 16, but only 402653184 bytes available in "
        "AlignedAllocator."
    )
    message = single(text)
    assert (message.framework, message.judgement.verdict) == ("flashinfer", "limit")
    assert message.fields == {"requested_bytes": 805306368, "free_bytes": 402653184}
    assert f"WORKSPACE_BUFFER_SIZE={2 * 805306368}" in commands(text)


def test_flashinfer_messages_without_sizes_are_read():
    message = single("RuntimeError: Out of workspace memory in AlignedAlloactor")
    assert (message.framework, message.fields) == ("flashinfer", {})


def test_a_failed_mindie_warm_up_is_a_limit():
    text = (
        "[llm] [ERROR] [logging.py-348] : Warmup failed, because of model inference out of memory when "
        "`maxInputTokenLen` set to 4096. Please try to decrease `maxPrefillTokens` in config.json of mindie-service."
    )
    message = single(text)
    assert (message.framework, message.backend, message.judgement.verdict) == ("mindie", "npu", "limit")
    assert "maxInputTokenLen limits this length to 4,096" in message.judgement.reasons[0]
    assert '"maxPrefillTokens"' in commands(text)


def test_fewer_tokens_are_the_first_remedy():
    assert "--max-batch-prefill-tokens" in commands(FORMS[0].template)
