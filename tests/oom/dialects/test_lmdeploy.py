from __future__ import annotations

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import commands, single

PLACE = "/root/lmdeploy/src/turbomind/models/llama/LlamaBatch.cc:358"
FORMS = [
    Form("lmdeploy", f"RuntimeError: [TM][ERROR]  No enough blocks. Assertion fail: {PLACE}"),
    Form("lmdeploy", "RuntimeError: No enough gpu memory for runtime."),
]


def test_a_cache_without_blocks_for_one_request_needs_a_larger_share():
    text = f"terminate called after throwing an instance of 'std::runtime_error'\n  what():  {FORMS[0].template}"
    message = single(text)
    assert (message.framework, message.program, message.judgement.verdict) == ("lmdeploy", "LMDeploy", "limit")
    assert message.findings[0].fixes[0].change == "--cache-max-entry-count 0.9"
    assert "--session-len 4096" in commands(text)


def test_the_blocks_of_the_start_are_named():
    start = (
        "[TM][INFO] [BlockManager] block_size = 64 MB\n[TM][INFO] [BlockManager] max_block_count = 32\n"
        "[TM][INFO] [BlockManager] chunk_size = 1\n"
    )
    reasons = single(start + FORMS[0].template).judgement.reasons
    assert any("32 blocks of 64 MB" in str(reason) for reason in reasons)


def test_the_check_of_newer_versions_is_read():
    message = single("[TM][FATAL] engine.cc(412): Check failed: sequences.empty() || !active.empty() No enough blocks")
    assert message.dialect == "lmdeploy"


def test_too_little_memory_for_the_pytorch_engine_is_capacity():
    message = single(FORMS[1].template)
    assert (message.framework, message.judgement.verdict) == ("lmdeploy", "capacity")
    assert "--max-prefill-token-num" in message.findings[0].fixes[0].change


def test_blocks_of_other_programs_are_no_message():
    assert not read_text("mkfs: No enough blocks").messages
