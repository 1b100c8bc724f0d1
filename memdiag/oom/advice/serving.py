"""Remedies for serving and generating programs: their own options, since those of a training loop do not apply.

Engines reserve memory at the start (weights, then a key-value cache) and need additional memory for computation. So
there are three moments of failure: while weights are loaded (they do not fit, and other options come too late), while
graphs are captured, and later (too little memory outside the cache).
"""

from __future__ import annotations

from memdiag.oom.advice.case import Case
from memdiag.oom.dialects import tensorrt_llm
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix


def _vllm(case: Case) -> tuple[Fix, ...]:
    spread = LazyFix("oom_shared.spread", "flag", "--tensor-parallel-size 2", {"program": "vLLM"}).fix()
    bits = LazyFix("oom_shared.bits", "flag", "--quantization fp8", when="oom_serving.vllm.quantized").fix()
    fraction = f"--gpu-memory-utilization {case.lower_utilization}"
    beside = LazyFix("oom_serving.vllm.beside", "flag", fraction, caveat="oom_shared.fewer-tokens").fix()
    fewer = LazyFix("oom_serving.vllm.fewer", "flag", "--max-num-seqs 64 --max-model-len 8192").fix()
    eager = LazyFix("oom_shared.eager", "flag", "--enforce-eager", {"program": "vLLM"}).fix()
    if case.stage == "load":
        host = LazyFix("oom_serving.vllm.offload", "flag", "--cpu-offload-gb 8").fix()
        return (spread, bits, host)
    if case.stage == "profile":
        tokens = LazyFix(
            "oom_serving.vllm.profile",
            "flag",
            "--max-num-seqs 64 --max-num-batched-tokens 2048",
            caveat="oom_shared.requests.caveat",
        ).fix()
        return (tokens, spread, bits, eager)
    if case.stage == "capture":
        sizes = LazyFix(
            "oom_graphs.sizes",
            "flag",
            "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
            {"program": "vLLM 0.8 or newer"},
        ).fix()
        return (beside, sizes, eager, spread)
    return (beside, fewer, spread, bits, eager)


def _sglang(case: Case) -> tuple[Fix, ...]:
    beside = LazyFix(
        "oom_sglang.down",
        "flag",
        "--mem-fraction-static 0.8",
        when="oom_serving.sglang.beside.when",
        caveat="oom_shared.fewer-tokens",
    ).fix()
    graphs = LazyFix("oom_shared.graphs", "flag", "--cuda-graph-max-bs 16", {"program": "SGLang"}).fix()
    without = LazyFix("oom_shared.eager", "flag", "--disable-cuda-graph", {"program": "SGLang"}).fix()
    spread = LazyFix("oom_shared.spread", "flag", "--tp-size 2", {"program": "SGLang"}).fix()
    bits = LazyFix("oom_shared.bits", "flag", "--quantization fp8", {"program": "SGLang"}).fix()
    chunk = LazyFix("oom_shared.prefill", "flag", "--chunked-prefill-size 2048", {"program": "SGLang"}).fix()
    if case.stage == "load":
        return (spread, bits)
    return (beside, graphs, without, spread) if case.stage == "capture" else (beside, chunk, graphs, spread, bits)


def _lmdeploy(case: Case) -> tuple[Fix, ...]:
    beside = LazyFix(
        "oom_serving.lmdeploy.cache", "flag", "--cache-max-entry-count 0.5", caveat="oom_shared.fewer-tokens"
    ).fix()
    prefill = LazyFix("oom_shared.prefill", "flag", "--max-prefill-token-num 4096", {"program": "LMDeploy"}).fix()
    spread = LazyFix("oom_shared.spread", "flag", "--tp 2", {"program": "LMDeploy"}).fix()
    bits = LazyFix("oom_serving.lmdeploy.bits", "flag", "--model-format awq", caveat="oom_shared.accuracy").fix()
    return (spread, bits) if case.stage == "load" else (beside, prefill, spread, bits)


def _tgi(case: Case) -> tuple[Fix, ...]:
    spread = LazyFix("oom_shared.spread", "flag", "--num-shard 2", {"program": "Text Generation Inference"}).fix()
    bits = LazyFix(
        "oom_shared.bits", "flag", "--quantize bitsandbytes-nf4", {"program": "Text Generation Inference"}
    ).fix()
    prefill = LazyFix(
        "oom_shared.prefill",
        "flag",
        "--max-batch-prefill-tokens 2048",
        {"program": "Text Generation Inference"},
        caveat="oom_shared.prefill.refused",
    ).fix()
    beside = LazyFix(
        "oom_serving.tgi.beside", "flag", "--cuda-memory-fraction 0.85", caveat="oom_shared.fewer-tokens"
    ).fix()
    return (spread, bits) if case.stage == "load" else (prefill, beside, spread, bits)


def _tensorrt_llm(case: Case) -> tuple[Fix, ...]:
    first = (
        (tensorrt_llm.SPREAD, tensorrt_llm.BITS) if case.stage == "load" else (tensorrt_llm.TOKENS, tensorrt_llm.CACHE)
    )
    chosen = (*first, *(fix for fix in (tensorrt_llm.SPREAD, tensorrt_llm.BITS) if fix not in first))
    return tuple(fix.fix() for fix in chosen)


def _diffusers(case: Case) -> tuple[Fix, ...]:
    fixes = (
        LazyFix("oom_serving.diffusers.offload", "code", "pipe.enable_model_cpu_offload()").fix(),
        LazyFix("oom_serving.diffusers.tiles", "code", "pipe.vae.enable_tiling()").fix(),
        LazyFix("oom_shared.bits", "code", "torch_dtype=torch.bfloat16", when="oom_serving.diffusers.bits.when").fix(),
        LazyFix("oom_serving.images", "code").fix(),
    )
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "vae" else fixes


def _comfyui(case: Case) -> tuple[Fix, ...]:
    fixes = (
        LazyFix("oom_serving.comfyui.lowvram", "flag", "--lowvram").fix(),
        LazyFix("oom_serving.comfyui.tiles", "code").fix(),
        LazyFix("oom_serving.comfyui.fp8", "flag", "--fp8_e4m3fn-unet", caveat="oom_shared.accuracy").fix(),
        LazyFix("oom_serving.images", "code").fix(),
    )
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "vae" else fixes


def _webui(case: Case) -> tuple[Fix, ...]:
    fixes = (
        LazyFix(
            "oom_serving.comfyui.lowvram",
            "flag",
            "--medvram",
            when="oom_serving.webui.medvram.when",
            caveat="oom_serving.webui.medvram.caveat",
        ).fix(),
        LazyFix("oom_serving.webui.attention", "flag", "--opt-sdp-attention").fix(),
        LazyFix("oom_serving.images", "code").fix(),
    )
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "attention" else fixes


def _transformers(_case: Case) -> tuple[Fix, ...]:
    return (
        LazyFix("oom_serving.transformers.generate", "code", "model.generate(**inputs, max_new_tokens=256)").fix(),
        LazyFix("oom_serving.transformers.half", "code", 'torch_dtype=torch.bfloat16, device_map="auto"').fix(),
        LazyFix(
            "oom_shared.bits",
            "code",
            "quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
            when="oom_serving.transformers.four.when",
        ).fix(),
        LazyFix(
            "remedies.no-graph", "code", "with torch.inference_mode():", when="oom_serving.transformers.no-grad.when"
        ).fix(),
    )


_OF = {
    "vllm": _vllm,
    "sglang": _sglang,
    "diffusers": _diffusers,
    "comfyui": _comfyui,
    "webui": _webui,
    "transformers": _transformers,
    "lmdeploy": _lmdeploy,
    "tgi": _tgi,
    "tensorrt-llm": _tensorrt_llm,
}


def serving(case: Case) -> tuple[Fix, ...]:
    """Returns how the serving program can need less, the best remedy first; empty for any other program."""
    make = _OF.get(case.engine)
    return make(case) if make else ()
