"""``memdiag.serving`` reads the start-up log of each engine into an account that sums up to the card."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.results.serving import PART_KINDS
from memdiag.serving.engines import ENGINES
from memdiag.serving.read import is_server_log, read_log, read_log_text
from memdiag.units import GIB, MIB

LOGS = Path(__file__).parent / "logs"


def read(name, total=None):
    return read_log(str(LOGS / f"{name}.log"), total)


def parts(card, unit=GIB):
    """Returns the parts of a card in GiB; parts of one kind are summed."""
    found = {}
    for part in card.parts:
        found[part.kind] = found.get(part.kind, 0) + (part.bytes or 0)
    return {kind: round(size / unit, 2) for kind, size in found.items()}


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_the_parts_of_every_log_sum_up_and_name_their_lines(path):
    report = read_log(str(path))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert report.cards
    for card in report.cards:
        assert card.total_bytes in {None, card.sum_bytes}
        assert (card.total_bytes is None) == (card.whole == "unknown")
        for part in card.parts:
            assert part.kind in PART_KINDS
            assert part.kind not in {"overlap", "rounding"}
            if part.basis == "printed":
                assert part.text.split()[0] in lines[part.line - 1]


def test_vllm_v0_prints_the_whole_division():
    report = read("vllm_v0")
    assert (report.engine, report.version, report.kv_blocks, report.max_concurrency) == ("vllm", "0.7.3", 4096, 8.0)
    first, second = report.cards
    expected = {
        "weights": 6.0,
        "kv_cache": 8.25,
        "activations": 1.5,
        "graphs": 0.75,
        "other": 0.25,
        "free_or_outside": 3.25,
    }
    assert parts(first) == expected
    assert parts(second)["kv_cache"] == 8.0
    assert first.budget_bytes == 16 * GIB


def test_vllm_v1_without_the_size_of_the_card_leaves_the_rest_unknown():
    (card,) = read("vllm_v1").cards
    assert card.whole == "unknown"
    assert parts(card) == {"weights": 9.5, "kv_cache": 6.0, "graphs": 0.5, "unknown": 0}
    assert card.parts[-1].bytes is None


def test_the_size_of_the_card_makes_the_rest_of_vllms_budget_known():
    report = read("vllm_v1", 20 * GIB)
    (card,) = report.cards
    assert card.budget_bytes == 18 * GIB  # 0.9 of 20 GiB, of which 9.5 and 6 are named
    assert parts(card)["activations_and_other"] == 2.5
    assert card.sum_bytes == 20 * GIB
    assert (report.kv_tokens, report.max_model_len, report.max_concurrency) == (65536, 16384, 4.0)


def test_newer_vllm_includes_the_estimate_of_graphs_in_the_activation_peak():
    (card,) = read("vllm_now").cards
    assert parts(card) == {
        "weights": 12.0,
        "kv_cache": 8.0,
        "activations": 0.9,
        "graphs": 0.4,
        "other": 0.4,
        "before_start": 0.5,
        "free": 1.8,
    }


def test_vllm_ascend_names_npu_graphs():
    report = read("vllm_ascend")
    assert report.engine == "vllm-ascend"
    assert parts(report.cards[0]) == {
        "weights": 10.0,
        "kv_cache": 44.0,
        "activations": 1.0,
        "graphs": 0.2,
        "other": 0.8,
        "before_start": 2.0,
        "free": 4.0,
    }


def test_a_capture_that_fails_gets_the_fraction_that_leaves_the_missing_memory():
    failure = read("vllm_capture_fails").failure
    assert failure.line == 7
    assert failure.missing_bytes == 412 * MIB
    changes = [fix.change for fix in failure.fixes]
    assert changes[0] == "--gpu-memory-utilization 0.94"  # 0.97 less 412 and 150 MiB of 24 GiB, rounded down
    assert changes[1] == f"--kv-cache-memory-bytes {5 * GIB - (412 + 150) * MIB}"


def test_a_request_that_is_too_long_gets_a_larger_fraction_or_a_shorter_length():
    failure = read("vllm_too_long").failure  # at the default of 0.92, 1 GiB of 40 GiB is missing
    assert [fix.change for fix in failure.fixes] == ["--gpu-memory-utilization 0.95", "--max-model-len 52416"]


def test_a_fraction_above_the_memory_that_was_free_is_not_offered():
    text = (LOGS / "vllm_too_long.log").read_text(encoding="utf-8").replace("(39.00/40.00", "(36.50/40.00")
    assert [fix.change for fix in read_log_text(text).failure.fixes] == ["--max-model-len 52416"]


def test_sglangs_account_sums_up_to_the_memory_that_was_free_when_loading_began():
    report = read("sglang")
    assert [(card.who, card.whole) for card in report.cards] == [("TP0", "free_at_start"), ("TP1", "free_at_start")]
    assert parts(report.cards[0]) == {"weights": 10.0, "kv_cache": 22.0, "graphs": 0.9, "other": 1.1, "free": 4.5}
    assert (report.kv_tokens, report.max_concurrency) == (200_000, 5.0)
    assert report.settings["--mem-fraction-static"] == 0.85
    (first, _) = read("sglang", 40 * GIB).cards
    assert first.whole == "card"
    assert parts(first)["before_start"] == 1.5


def test_sglang_without_room_for_a_pool_needs_a_larger_fraction():
    failure = read("sglang_no_pool").failure
    assert [fix.change for fix in failure.fixes] == ["--mem-fraction-static 0.79"]  # 60 of 78 GB are weights


def test_sglangs_progress_of_capture_has_the_size_of_the_graphs():
    lines = (
        "[2026-01-01 00:00:00 TP0] Load weight end. type=Toy, avail mem=30.00 GB, mem usage=8.00 GB.",
        "[2026-01-01 00:00:01 TP0] KV Cache is allocated. #tokens: 1000, K size: 10.00 GB, V size: 10.00 GB",
        "[2026-01-01 00:00:01 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB",
        "Capturing batches (bs=8 avail_mem=8.50 GB):  10%|",
        "Capturing batches (bs=1 avail_mem=7.25 GB): 100%|",
    )
    (card,) = read_log_text("\n".join(lines)).cards
    assert parts(card) == {"weights": 8, "kv_cache": 20, "graphs": 1.75, "other": 1, "free": 7.25}
    later = read_log_text("\n".join(lines[1:2])).cards[0]  # an extract without the weights
    assert parts(later) == {"kv_cache": 20, "unknown": 0}


def test_vllms_note_on_graphs_does_not_change_the_fraction():
    note = "--gpu-memory-utilization=0.8200 is equivalent to --gpu-memory-utilization=0.8048 without CUDA graph memory"
    text = f"INFO [gpu_worker.py:578] Available KV cache memory: 6.87 GiB\nINFO [gpu_worker.py:579] {note}\n"
    assert read_log_text(text).settings["--gpu-memory-utilization"] == 0.82


def test_ollamas_estimate_for_one_card_has_the_memory_that_was_free():
    text = (
        'level=INFO msg=offload library=cuda layers.requested=-1 layers.model=41 layers.offload=37 layers.split="" '
        'memory.available="[23.0 GiB]" memory.required.kv="1.0 GiB" memory.required.allocations="[20.0 GiB]"\n'
        'level=INFO msg="model weights" buffer=CUDA0 size="14.0 GiB"\n'
    )
    (card,) = read_log_text(text).cards
    assert parts(card) == {"weights": 14, "free": 9}


def test_both_runtimes_of_tensorrt_llm():
    cpp, pytorch = read("trtllm_cpp"), read("trtllm_pytorch")
    assert parts(cpp.cards[0]) == {"weights": 10.0, "kv_cache": 25.0, "activations": 1.0, "other": 1.0, "free": 3.0}
    assert (cpp.version, cpp.kv_tokens, cpp.kv_blocks) == ("0.17.0", 64_000, 1000)
    (card,) = pytorch.cards
    assert parts(card) == {"weights": 30.0, "kv_cache": 36.0, "activations": 7.0, "other": 2.0, "free": 4.0}


def test_llama_cpp_adds_its_kv_buffers_and_reads_the_breakdown():
    (card,) = read("llama_cpp").cards
    assert card.who == "CUDA0"
    assert parts(card, MIB) == {"weights": 8000, "kv_cache": 4000, "activations": 500, "free": 2500}
    first, second = read("llama_cpp_breakdown").cards
    assert parts(first, MIB) == {"weights": 8000, "kv_cache": 4000, "activations": 500, "other": 500, "free": 3000}
    assert second.total_bytes == 24000 * MIB


def test_ollama_names_its_settings():
    report = read("ollama")
    assert parts(report.cards[0]) == {"weights": 8.0, "kv_cache": 2.0, "activations": 1.0, "free_or_outside": 5.0}
    assert report.settings == {"num_ctx": 16384}


def test_a_second_start_in_the_same_log_counts():
    text = (LOGS / "vllm_v0.log").read_text(encoding="utf-8")
    later = text.replace("6.00GiB;", "5.00GiB;").replace("KV Cache is 8.25GiB", "KV Cache is 9.25GiB")
    (first, _) = read_log_text(text + later).cards
    assert parts(first)["weights"] == 5.0
    assert first.sum_bytes == first.total_bytes


def test_colours_and_compressed_logs_are_read(tmp_path):
    text = (LOGS / "vllm_now.log").read_text(encoding="utf-8")
    coloured = text.replace("(EngineCore pid=5)", "\x1b[0;36m(EngineCore pid=5)\x1b[0;0m")
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(coloured.encode()))
    assert parts(read_log(str(path)).cards[0]) == parts(read("vllm_now").cards[0])


def test_another_log_is_refused_with_a_hint(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2.0\n", encoding="utf-8")
    with pytest.raises(MemdiagError) as caught:
        read_log(str(path))
    assert "vLLM" in caught.value.hint
    assert not is_server_log("step 1 loss 2.0\n")
    assert is_server_log((LOGS / "sglang.log").read_text(encoding="utf-8"))


def test_every_engine_has_what_the_reader_uses():
    for name, engine in ENGINES.items():
        assert name == engine.NAME
        assert engine.SIGNS
        assert all(rule.types or rule.pattern for rule in engine.RULES)


def test_a_llama_cpp_log_without_weights_leaves_them_unknown():
    text = (
        "llama_kv_cache_init:      CUDA0 KV buffer size =   512.00 MiB\n"
        "llama_new_context_with_model:      CUDA0 compute buffer size =   256.00 MiB\n"
    )
    (card,) = read_log_text(text, 8 * GIB).cards
    assert parts(card) == {"kv_cache": 0.5, "activations": 0.25, "unknown": 7.25}
    assert card.total_bytes == card.sum_bytes == 8 * GIB


def test_a_device_of_llama_cpp_without_weights_is_not_dropped():
    text = (
        "load_tensors:        CUDA0 model buffer size =  1024.00 MiB\n"
        "llama_kv_cache_init:      CUDA0 KV buffer size =   512.00 MiB\n"
        "llama_kv_cache_init:      CUDA1 KV buffer size =   256.00 MiB\n"
    )
    first, second = read_log_text(text).cards
    assert parts(first) == {"weights": 1.0, "kv_cache": 0.5, "unknown": 0}
    assert (second.who, parts(second)) == ("CUDA1", {"kv_cache": 0.25, "unknown": 0})


def test_engines_of_several_ranks_are_not_added_up():
    lines = "[TensorRT-LLM][INFO] MPI size: 2, rank: {}\n[TensorRT-LLM][INFO] Loaded engine size: 1024 MiB\n"
    (card,) = read_log_text(lines.format(0) + lines.format(1)).cards
    assert parts(card) == {"weights": 1.0, "unknown": 0}
    draft = "[TensorRT-LLM][INFO] Loaded engine size: 1024 MiB\n" * 2  # a model and its draft, in one process
    assert parts(read_log_text(draft).cards[0])["weights"] == 2.0


def test_graphs_of_sglang_are_unknown_before_the_first_batch_is_captured():
    text = (
        "[2026-07-01 09:00:03 TP0] KV Cache is allocated. #tokens: 1024, K size: 4.00 GB, V size: 4.00 GB\n"
        "[2026-07-01 09:00:04 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=8.00 GB\n"
        "Capturing batches (bs=10 avail_mem=8.00 GB):   0%|     | 0/5 [00:00<?, ?it/s]\n"
    )
    assert parts(read_log_text(text).cards[0]) == {"kv_cache": 8.0, "free": 8.0, "unknown": 0}
    assert parts(read_log_text(text.replace("0%", "20%").replace("_mem=8", "_mem=7")).cards[0])["graphs"] == 1.0


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("[model_runner_v1.py:2373] Loading model weights took 37.2362 GB", "vllm-ascend"),
        ('msg="kv cache" device=CUDA0 size="936.0 MiB"', "ollama"),
        ("May 24 22:58:23 host ollama[1391]: load_tensors:  CUDA0 model buffer size = 511.43 MiB", "ollama"),
    ],
)
def test_engines_are_recognised_by_extracts(text, engine):
    report = read_log_text(text)
    assert report.engine == engine
    assert report.cards


def test_an_account_of_vllm_without_the_size_of_the_card_sums_up_to_the_free_memory():
    text = (
        "(EngineCore pid=7) INFO [gpu_worker.py:492] Initial free memory 32.00 GiB, reserved 4.00 GiB memory for KV "
        "Cache as specified by kv_cache_memory_bytes config"
    )
    (card,) = read_log_text(text).cards
    assert (card.whole, card.total_bytes) == ("free_at_start", 32 * GIB)
    assert parts(card) == {"kv_cache": 4.0, "unknown": 28.0}
