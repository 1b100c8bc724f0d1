"""Remedies for programs that serve or generate: their own switches, where a training loop's would mean nothing.

Engines set memory aside at the start (weights, then a cache for keys and values) and need some beside it. So there are three moments to
run out: while weights are loaded (they do not fit: other switches come too late), while graphs are captured, and later (too little was
left beside the cache).
"""

from __future__ import annotations

from memdiag.findings import Fix
from memdiag.oom.advice.case import Case
from memdiag.oom.dialects import tensorrt_llm

_ACCURACY = "it costs a little accuracy"
_SHARED = "the devices talk to each other in every layer"


def _vllm(case: Case) -> tuple[Fix, ...]:
    spread = Fix("Spread the weights over more devices", "flag", "--tensor-parallel-size 2", "vLLM, several devices", _SHARED)
    bits = Fix(
        "Load the weights in fewer bits", "flag", "--quantization fp8", "vLLM; or a model that is published in 4 or 8 bits (AWQ, GPTQ)",
        _ACCURACY,
    )  # fmt: skip
    beside = Fix(
        "Set less aside for weights and cache together, so that more is left beside them", "flag", "--gpu-memory-utilization 0.80",
        "vLLM; 0.9 or so is the default", "fewer tokens fit the cache",
    )  # fmt: skip
    fewer = Fix(
        "Serve fewer requests at a time, and shorter ones", "flag", "--max-num-seqs 64 --max-model-len 8192", "vLLM",
        "less throughput; longer requests are refused",
    )  # fmt: skip
    eager = Fix("Do without graphs", "flag", "--enforce-eager", "vLLM", "decoding gets slower")
    if case.stage == "load":
        host = Fix("Keep a part of the weights on the host", "flag", "--cpu-offload-gb 8", "vLLM", "they are copied at every step: slow")
        return (spread, bits, host)
    if case.stage == "profile":
        tokens = Fix(
            "Try fewer requests and tokens at once: it failed in the trial of the largest batch, before the cache was made", "flag",
            "--max-num-seqs 64 --max-num-batched-tokens 2048", "vLLM; for images and video also --limit-mm-per-prompt", "less throughput",
        )  # fmt: skip
        return (tokens, spread, bits, eager)
    if case.stage == "capture":
        sizes = Fix(
            "Capture graphs of fewer sizes", "flag", "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'", "vLLM >= 0.8",
            "batches of other sizes are padded, or run without graphs",
        )  # fmt: skip
        return (beside, sizes, eager, spread)
    return (beside, fewer, spread, bits, eager)


def _sglang(case: Case) -> tuple[Fix, ...]:
    beside = Fix(
        "Leave more of the device outside weights and cache", "flag", "--mem-fraction-static 0.8", "SGLang; or 0.05 less than it is now",
        "fewer tokens fit the cache",
    )  # fmt: skip
    graphs = Fix("Capture graphs for smaller batches only", "flag", "--cuda-graph-max-bs 16", "SGLang", "larger batches run without graphs")
    without = Fix("Do without graphs", "flag", "--disable-cuda-graph", "SGLang", "decoding gets slower")
    spread = Fix("Spread the weights over more devices", "flag", "--tp-size 2", "SGLang, several devices", _SHARED)
    bits = Fix("Load the weights in fewer bits", "flag", "--quantization fp8", "SGLang", _ACCURACY)
    chunk = Fix("Prefill in smaller pieces", "flag", "--chunked-prefill-size 2048", "SGLang", "slower prefill of long prompts")
    if case.stage == "load":
        return (spread, bits)
    return (beside, graphs, without, spread) if case.stage == "capture" else (beside, chunk, graphs, spread, bits)


def _lmdeploy(case: Case) -> tuple[Fix, ...]:
    beside = Fix(
        "Give the cache of keys and values a smaller part of what is free", "flag", "--cache-max-entry-count 0.5",
        "LMDeploy (default 0.8); TurbomindEngineConfig(cache_max_entry_count=0.5)", "fewer tokens fit the cache",
    )  # fmt: skip
    prefill = Fix("Prefill fewer tokens at once", "flag", "--max-prefill-token-num 4096", "LMDeploy", "slower prefill of long prompts")
    spread = Fix("Spread the weights over more devices", "flag", "--tp 2", "LMDeploy, several devices", _SHARED)
    bits = Fix("Use weights of 4 bits", "flag", "--model-format awq", "LMDeploy, with a model that was quantised by AWQ", _ACCURACY)
    return (spread, bits) if case.stage == "load" else (beside, prefill, spread, bits)


def _tgi(case: Case) -> tuple[Fix, ...]:
    spread = Fix("Spread the weights over more devices", "flag", "--num-shard 2", "Text Generation Inference, several devices", _SHARED)
    bits = Fix("Load the weights in 4 bits", "flag", "--quantize bitsandbytes-nf4", "Text Generation Inference", _ACCURACY)
    prefill = Fix(
        "Prefill fewer tokens at once", "flag", "--max-batch-prefill-tokens 2048", "Text Generation Inference", "long prompts are refused"
    )
    beside = Fix("Leave more of the device free", "flag", "--cuda-memory-fraction 0.85", "Text Generation Inference", "fewer tokens fit")
    return (spread, bits) if case.stage == "load" else (prefill, beside, spread, bits)


def _tensorrt_llm(case: Case) -> tuple[Fix, ...]:
    first = (tensorrt_llm.SPREAD, tensorrt_llm.BITS) if case.stage == "load" else (tensorrt_llm.TOKENS, tensorrt_llm.CACHE)
    return (*first, *(fix for fix in (tensorrt_llm.SPREAD, tensorrt_llm.BITS) if fix not in first))


def _diffusers(case: Case) -> tuple[Fix, ...]:
    fixes = (
        Fix("Keep only the model that works on the device", "code", "pipe.enable_model_cpu_offload()", "Diffusers, instead of pipe.to(…)",
            "slower; enable_sequential_cpu_offload() takes least, and longest"),
        Fix("Decode the image in tiles", "code", "pipe.vae.enable_tiling()", "Diffusers, where it fails in the VAE", "seams, rarely"),
        Fix("Load the weights in 16 bits", "code", "torch_dtype=torch.bfloat16", "Diffusers: an argument of from_pretrained", ""),
        Fix("Make smaller images, or fewer at a time", "code", "", "every pipeline", "attention grows with the square of the pixels"),
    )  # fmt: skip
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "vae" else fixes


def _comfyui(case: Case) -> tuple[Fix, ...]:
    fixes = (
        Fix("Keep less on the device between steps", "flag", "--lowvram", "ComfyUI: python main.py --lowvram", "slower; then --novram"),
        Fix("Decode in tiles: the node VAE Decode (Tiled)", "code", "", "ComfyUI, where it fails in the VAE", "seams, rarely"),
        Fix("Use weights of 8 bits, or a GGUF model", "flag", "--fp8_e4m3fn-unet", "ComfyUI", _ACCURACY),
        Fix("Make smaller images, or fewer at a time", "code", "", "every workflow", "attention grows with the square of the pixels"),
    )  # fmt: skip
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "vae" else fixes


def _webui(case: Case) -> tuple[Fix, ...]:
    fixes = (
        Fix("Keep less on the device between steps", "flag", "--medvram", "Stable Diffusion web UI: COMMANDLINE_ARGS in webui-user",
            "slower; then --lowvram"),
        Fix("Use attention that needs less memory", "flag", "--opt-sdp-attention", "Stable Diffusion web UI with PyTorch 2", ""),
        Fix("Make smaller images, or fewer at a time", "code", "", "every model", "attention grows with the square of the pixels"),
    )  # fmt: skip
    return (fixes[1], fixes[0], *fixes[2:]) if case.operation == "attention" else fixes


def _transformers(_case: Case) -> tuple[Fix, ...]:
    return (
        Fix("Generate for fewer and shorter prompts at a time", "code", "model.generate(**inputs, max_new_tokens=256)",
            "Transformers", "keys and values are kept for every token of every prompt"),
        Fix("Load the weights in 16 bits, spread over all devices", "code", 'torch_dtype=torch.bfloat16, device_map="auto"',
            "Transformers: arguments of from_pretrained", ""),
        Fix("Load them in 4 bits", "code", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)", "Transformers with bitsandbytes",
            _ACCURACY),
        Fix("Keep nothing for a backward pass", "code", "with torch.inference_mode():", "calls of the model outside of generate()", ""),
    )  # fmt: skip


_OF = {
    "vllm": _vllm, "sglang": _sglang, "diffusers": _diffusers, "comfyui": _comfyui, "webui": _webui, "transformers": _transformers,
    "lmdeploy": _lmdeploy, "tgi": _tgi, "tensorrt-llm": _tensorrt_llm,
}  # fmt: skip


def serving(case: Case) -> tuple[Fix, ...]:
    """Returns how the program that serves or generates here needs less, the first to try first; empty for any other program."""
    make = _OF.get(case.engine)
    return make(case) if make else ()
