from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, unit_size
from tests.oom.single import commands, single

FORMS = [
    Form("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    Form(
        "sglang",
        (
            "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 32 tokens.\nAvailable "
            "tokens: 7"
        ),
    ),
    Form(
        "sglang",
        (
            "ValueError: Not enough host memory available. Requesting {requested} but only have {free} free. Please "
            "reduce the size of the hierarchical cache."
        ),
        {"requested": unit_size("requested", "{:.2f} GB", GIB), "free": unit_size("free", "{:.2f} GB", GIB)},
    ),
]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (
            "mem_fraction_static=0.8, tp_size=1\nNot enough memory. Please try to increase --mem-fraction-static.",
            "0.84",
        ),
        ("mem_fraction_static=0.88, tp_size=1\nCapture cuda graph failed: CUDA error: out of memory", "0.80"),
    ],
)
def test_the_advised_memory_fraction_is_higher_or_lower_by_failure(text, share):
    assert single(text).judgement.verdict == "limit"
    assert f"--mem-fraction-static {share}" in commands(text)


def test_a_pytorch_message_with_numbers_takes_precedence():
    text = (
        "Capture cuda graph failed: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
        "79.10 GiB of which 10.00 MiB is free."
    )
    assert single(text).dialect.startswith("torch_cuda")


def test_retracted_requests_are_a_warning():
    assert [
        message.is_warning
        for message in read_text("KV cache pool is full. Retract requests. #retracted_reqs: 1").messages
    ] == [True]


def test_a_negative_token_capacity_means_that_the_weights_do_not_fit():
    message = single(
        "[2025-03-04 05:06:07 TP0] max_total_tokens=65536 is larger than the profiled value -41250. Use the profiled "
        "value instead."
    )
    assert (message.judgement.verdict, "41,250 tokens" in message.judgement.reasons[0]) == ("capacity", True)
    assert "--tp-size" in message.findings[0].fixes[0].change
    assert not read_text(
        "max_total_tokens=65536 is larger than the profiled value 41250. Use the profiled value instead."
    ).messages
