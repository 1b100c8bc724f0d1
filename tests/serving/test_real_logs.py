"""Forms of lines in public logs that ``memdiag.serving`` once misread; the numbers are invented."""

from __future__ import annotations

from memdiag.serving.read import read_log_text
from memdiag.units import GIB
from tests.serving.test_read import parts

VLLM = (
    "(EngineCore pid=9) INFO [gpu_worker.py:789] Free memory on device (70.0/80.0 GiB) on startup. Desired GPU memory "
    "utilization is (0.9, 72.0 GiB). Actual usage is {used} Current kv cache memory in use is 30.0 GiB."
)


def test_graphs_of_a_negative_size_reduce_the_memory_outside_pytorch():
    used = (
        "20.0 GiB for weight, 5.0 GiB for peak activation, 3.0 GiB for non-torch memory, and -2.0 GiB for CUDAGraph "
        "memory."
    )
    (card,) = read_log_text(VLLM.format(used=used)).cards
    expected = {"weights": 20, "kv_cache": 30, "activations": 5, "other": 1, "before_start": 10, "free": 14}
    assert parts(card) == expected
    assert card.sum_bytes == card.total_bytes == 80 * GIB


def test_vllms_consumed_memory_is_a_part_if_the_weights_are_not_in_the_log():
    used = (
        "25.0 GiB for consumed memory (weights + non-torch), 5.0 GiB for peak activation, and 1.0 GiB for CUDAGraph "
        "memory."
    )
    (card,) = read_log_text(VLLM.format(used=used)).cards
    expected = {
        "weights_and_other": 25,
        "kv_cache": 30,
        "activations": 5,
        "graphs": 1,
        "before_start": 10,
        "free": 9,
    }
    assert parts(card) == expected


def test_vllms_debug_lines_sum_up_to_the_memory_that_was_free():
    text = (
        "DEBUG [gpu_worker.py:387] Initial free memory: 47.00 GiB; Requested memory: 0.90 (util), 42.00 GiB\n"
        "DEBUG [gpu_worker.py:399] Memory profiling takes 2.71 seconds. Total non KV cache memory: 16.00GiB; torch "
        "peak memory increase: 1.00GiB; non-torch forward increase memory: 0.50GiB; weights memory: 14.50GiB.\n"
        "INFO [gpu_worker.py:400] Available KV cache memory: 26.00 GiB\n"
    )
    report = read_log_text(text)
    expected = {"weights": 14.5, "kv_cache": 26, "activations": 1, "other": 0.5, "free": 5}
    assert parts(report.cards[0]) == expected
    assert report.cards[0].whole == "free_at_start"
    assert report.settings["--gpu-memory-utilization"] == 0.9


def test_a_kv_cache_whose_allocation_fails_is_not_in_use():
    text = (
        "INFO [gpu_model_runner.py:329] Model loading took 15.00 GiB memory and 6.2 seconds\n"
        "INFO [gpu_worker.py:400] Available KV cache memory: 6.00 GiB\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 22.00 "
        "GiB of which 5.90 GiB is free.\n"
    )
    assert parts(read_log_text(text).cards[0]) == {"weights": 15, "free": 5.9, "unknown": 1.1}


def test_vllms_advice_on_graphs_names_the_fraction_and_the_command_its_requests():
    text = (
        "vllm serve toy --max-num-seqs 4 --max-model-len 4096\n"
        "INFO [gpu_worker.py:436] Available KV cache memory: 6.0 GiB\n"
        "INFO [gpu_worker.py:470] In v0.19, CUDA graph memory profiling will be enabled by default: increase "
        "--gpu-memory-utilization from 0.9000 to 0.9690 to maintain the same effective KV cache size.\n"
    )
    assert read_log_text(text).settings == {
        "--gpu-memory-utilization": 0.9,
        "--max-model-len": 4096,
        "--max-num-seqs": 4,
    }


def test_a_draft_model_of_sglang_adds_to_the_account_of_the_target():
    form = (
        "[2026-05-28 02:59:{}0 TP0] Init torch distributed begin.\n"
        "[2026-05-28 02:59:{}1 TP0] Load weight begin. avail mem={:.2f} GB\n"
        "[2026-05-28 02:59:{}2 TP0] Load weight end. type=Toy, avail mem={:.2f} GB, mem usage={:.2f} GB.\n"
        "[2026-05-28 02:59:{}3 TP0] KV Cache is allocated. #tokens: 1000, K size: {:.2f} GB, V size: {:.2f} GB\n"
        "[2026-05-28 02:59:{}4 TP0] Memory pool end. avail mem={:.2f} GB\n"
        "[2026-05-28 02:59:{}5 TP0] Capture draft cuda graph end. Time elapsed: 1.00 s. mem usage=0.50 GB. "
        "avail mem={:.2f} GB.\n"
    )
    start = "[2026-05-28 02:59:00] server_args=ServerArgs(model_path='toy')\n"
    target = form.format(1, 1, 60, 1, 40, 20, 1, 12, 12, 1, 16, 1, 15.5)
    draft = form.format(2, 2, 15.5, 2, 14.5, 1, 2, 2, 2, 2, 10.5, 2, 10)
    report = read_log_text(start + target + draft)
    assert parts(report.cards[0]) == {"weights": 21, "kv_cache": 28, "graphs": 1, "free": 10}
    assert report.cards[0].total_bytes == 60 * GIB
    second = read_log_text(start + target + draft + start + target)  # a restart begins a new account
    assert parts(second.cards[0]) == {"weights": 20, "kv_cache": 24, "graphs": 0.5, "free": 15.5}


def test_sglang_without_a_figure_for_the_weights_and_with_a_cache_sized_after_capture():
    text = (
        "[2026-05-28 02:59:01] Load weight begin. avail mem=60.00 GB\n"
        "[2026-05-28 02:59:02] Load weight end. type=Toy, dtype=torch.float16, avail mem=40.00 GB\n"
    )
    assert parts(read_log_text(text).cards[0]) == {"weights": 20, "free": 40}
    text += (
        "[2026-05-28 02:59:03] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900, K size: 90.00 GB, "
        "V size: 90.00 GB\n"
        "[2026-05-28 02:59:04] Capture target decode CUDA graph end. elapsed=1.00 s, mem usage=2.00 GB, "
        "avail mem=38.00 GB.\n"
        "[2026-05-28 02:59:05] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 300, "
        "KV size: 30.00 GB, avail mem=8.00 GB\n"
    )
    report = read_log_text(text)
    assert parts(report.cards[0]) == {"weights": 20, "kv_cache": 30, "graphs": 2, "free": 8}
    assert report.kv_tokens == 300


def test_sglangs_settings_in_the_form_of_a_dictionary_begin_a_new_start():
    start = (
        "[2026-11-28 22:51:01] server_args={'model_path': 'toy', 'mem_fraction_static': 0.84, 'context_length': 4096, "
        "'cuda_graph_max_bs_decode': 64}\n"
    )
    load = "[2026-11-28 22:51:02] Load weight end. type=Toy, avail mem=40.00 GB, mem usage=20.00 GB.\n"
    report = read_log_text(start + load + start + load)
    assert parts(report.cards[0]) == {"weights": 20, "free": 40}
    assert report.settings == {"--mem-fraction-static": 0.84, "--context-length": 4096, "--cuda-graph-max-bs": 64}


def test_the_rest_of_an_sglang_card_is_unknown_without_the_weights():
    text = (
        "[2026-05-28 02:59:01 TP0] Load weight begin. avail mem=60.00 GB\n"
        "[2026-05-28 02:59:04 TP0] Memory pool end. avail mem=10.00 GB\n"
    )
    assert parts(read_log_text(text).cards[0]) == {"free": 10, "unknown": 50}


def test_sglang_names_the_fraction_that_its_weights_need():
    text = (
        "[2026-07-09 10:00:00 TP0] Load weight end. type=Toy, avail mem=20.00 GB, mem usage=80.00 GB.\n"
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise "
        "--mem-fraction-static above 0.800 (minimum viable = 1 - available/pre = 0.8000).\n"
    )
    report = read_log_text(text)
    assert [fix.change for fix in report.failure.fixes] == ["--mem-fraction-static 0.82"]


def test_tensorrt_llms_cache_of_the_profile_run_is_not_the_cache_of_the_server():
    text = (
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.50 GiB for max tokens in paged KV cache (8224).\n"
        "[01/20/2026-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage "
        "profiling: 60.00 GiB\n"
        "[01/20/2026-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage "
        "profiling: 9.00 GiB\n"
        "[01/20/2026-04:21:51] [TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory "
        "usage profiling: 1.00 GiB\n"
        "[01/20/2026-04:21:51] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 69.50 GiB, "
        "available KV cache memory when calculating max tokens: 9.90 GiB, fraction is set 0.9, kv size is 7. device "
        "total memory 80.00 GiB, , tmp kv_mem 0.50 GiB\n"
    )
    report = read_log_text(text)
    assert parts(report.cards[0]) == {"weights": 60, "kv_cache": 9.9, "activations": 1, "other": 8, "free": 1.1}
    assert report.kv_tokens is None
    later = text + "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 9.00 GiB for max tokens in paged KV cache (900).\n"
    assert (parts(read_log_text(later).cards[0])["kv_cache"], read_log_text(later).kv_tokens) == (9.0, 900)


def test_tensorrt_llms_managed_memory_stands_for_the_engine():
    text = (
        "[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in IExecutionContext creation: CPU +0, "
        "GPU +0, now: CPU 0, GPU 6144 (MiB)\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GB GPU memory for runtime buffers.\n"
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 80.00 GiB, "
        "available: 70.00 GiB\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 63.00 GiB for max tokens in paged KV cache (294848).\n"
    )
    (card,) = read_log_text(text).cards
    assert [(part.kind, round((part.bytes or 0) / GIB, 2)) for part in card.parts] == [
        ("weights", 6.0),
        ("kv_cache", 63.0),
        ("other", 4.0),
        ("free", 7.0),
    ]


def test_ollamas_free_memory_of_the_only_card_is_the_whole():
    line = 'level=INFO msg="gpu memory" id=GPU-{} library=CUDA available="10.0 GiB" free="10.5 GiB" minimum="9 MiB"\n'
    buffers = (
        'level=INFO msg="model weights" device=CUDA0 size="4.0 GiB"\n'
        'level=INFO msg="kv cache" device=CUDA0 size="2.0 GiB"\n'
    )
    (card,) = read_log_text(line.format("a1") + buffers).cards
    assert (card.who, card.whole, parts(card)) == (
        "CUDA0",
        "free_at_start",
        {"weights": 4, "kv_cache": 2, "free": 4.5},
    )
    (card,) = read_log_text(line.format("a1") + line.format("b2") + buffers).cards  # which of the two is not known
    assert card.whole == "unknown"
