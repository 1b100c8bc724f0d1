"""Compares ``memdiag serve-fit`` with the models that transformers and vLLM build, for reports/serve-fit.md.

    python bench/serving_shapes.py count OUT.json [NAME ...]
    memdiag record -q --phantom cuda:h100-80g -o /dev/null -- python bench/serving_shapes.py build OUT.json [NAME ...]
    python bench/serving_shapes.py report OUT.json
    python bench/serving_shapes.py defaults memdiag/serving/defaults.json

``count`` needs transformers and torch: it builds each model on the device "meta" and counts its parameters. ``build``
needs vLLM: it builds vLLM's own model on the device "meta" for tensor-parallel sizes 1, 2 and 8, as rank 0 of them,
and asks vLLM for the weights, the KV cache of each layer, and the requests that fit into 40 GiB of KV cache. Both
skip models that OUT.json already has, so they continue after an interruption. ``report`` needs only memdiag and prints
the tables. ``defaults`` needs transformers; it writes the keys that the file already has. The configurations are in
tests/serving/models/public.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[1] / "tests" / "serving" / "models" / "public.json"
SIZES = (1, 2, 8)
CACHE_BYTES = 40 << 30
BATCH_TOKENS, REQUESTS = 8192, 256
LONGEST = 32_768  # tokens of a request, unless the model supports fewer


def measure(out: Path, key: str, names: list[str], one: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Adds what ``one`` returns for each model to a file, under ``key``; skips models that have it."""
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for name, config in json.loads(MODELS.read_text(encoding="utf-8")).items():
        if (names and name not in names) or (not names and key in found.get(name, {})):
            continue
        try:
            result = one(config)
        except Exception as error:  # noqa: BLE001 - other people's programs; the report shows their errors
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        found.setdefault(name, {})[key] = result
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(name, result, file=sys.stderr, flush=True)


def count(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of the model that transformers builds."""
    import torch
    import transformers

    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    built = transformers.AutoConfig.for_model(**plain)
    names = (
        *(["AutoModelForImageTextToText"] if "vision_config" in config else []),
        "AutoModelForCausalLM",
        "AutoModelForSeq2SeqLM",
        "AutoModelForSpeechSeq2Seq",
    )
    for name in names:
        auto = getattr(transformers, name)
        if type(built) in auto._model_mapping:  # noqa: SLF001 - there is no public test
            with torch.device("meta"):
                model = auto.from_config(built)
            kinds = Counter()
            for path, parameter in model.named_parameters():
                kinds["vision" if any(word in path for word in ("vis", "image", "projector")) else "text"] += (
                    parameter.numel()
                )
            return {"class": type(model).__name__, "parameters": sum(kinds.values()), "vision": kinds["vision"]}
    raise ValueError(f"no model class for {config['model_type']}")


class Vllm:
    """Builds models of vLLM on the device "meta", as one rank of several."""

    def __init__(self) -> None:
        os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
        from vllm.distributed import parallel_state
        from vllm.engine.arg_utils import EngineArgs

        self._parallel, self._arguments = parallel_state, EngineArgs
        self._is_started = False

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """Returns weights and KV cache by tensor-parallel size."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
            results = {}
            for tp in SIZES:
                try:
                    results[str(tp)] = self._build(folder, tp)
                except Exception as error:
                    if tp == 1:
                        raise
                    results[str(tp)] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            return results

    def _build(self, folder: str, tp: int) -> dict[str, Any]:
        import torch
        from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.platforms import current_platform
        from vllm.utils.torch_utils import set_default_torch_dtype

        arguments: dict[str, Any] = {
            "model": folder,
            "skip_tokenizer_init": True,
            "load_format": "dummy",
            "enforce_eager": True,
            "max_num_batched_tokens": BATCH_TOKENS,
            "max_num_seqs": REQUESTS,
        }
        chosen = self._arguments(**arguments).create_engine_config()
        if chosen.model_config.max_model_len > LONGEST:
            chosen = self._arguments(**arguments, max_model_len=LONGEST).create_engine_config()
        with set_current_vllm_config(chosen):
            if not self._is_started:
                self._parallel.init_distributed_environment(1, 0, "tcp://127.0.0.1:29651", 0, "gloo")
                self._is_started = True
            self._parallel.destroy_model_parallel()
            self._parallel.initialize_model_parallel(1, 1)  # its groups depend on the model
            chosen.parallel_config.tensor_parallel_size = tp
            self._parallel.get_tp_group().world_size = tp
            with set_default_torch_dtype(chosen.model_config.dtype), torch.device("meta"):
                model = initialize_model(vllm_config=chosen)
            tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
            current_platform.update_block_size_for_backend(chosen)
            layers = get_layers_from_vllm_config(chosen, AttentionLayerBase)
            specs = {
                name: spec
                for name, layer in layers.items()
                if not getattr(layer, "kv_sharing_target_layer_name", None)
                and (spec := layer.get_kv_cache_spec(chosen))
            }
            kinds = Counter(
                f"{type(spec).__name__.removesuffix('Spec')}, {spec.page_size_bytes} bytes for {spec.block_size} tokens"
                for spec in specs.values()
            )
            return {
                "weight_bytes": sum(one.numel() * one.element_size() for one in tensors.values()),
                "layers": dict(kinds),
                "longest": chosen.model_config.max_model_len,
                **self._capacity(chosen, specs),
            }

    def _capacity(self, chosen: Any, specs: dict[str, Any]) -> dict[str, Any]:
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
        from vllm.v1.core import kv_cache_planning
        from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity
        from vllm.v1.worker.worker_base import get_current_attn_backends

        layouts = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(chosen))]
        resolve_kv_cache_layout(chosen, [layouts], specs.values())
        groups = kv_cache_planning.get_kv_cache_groups(chosen, specs)
        found = kv_cache_planning.get_kv_cache_configs(chosen, [specs], [CACHE_BYTES], groups)[0]
        tokens, concurrency = get_kv_cache_capacity(chosen, found)
        return {
            "tokens": tokens,
            "requests": round(concurrency, 3),
            "blocks": found.num_blocks,
            "groups": [len(group.layer_names) for group in found.kv_cache_groups],
        }


def defaults(out: Path) -> None:
    """Writes the defaults of transformers' configuration classes of language models and vision encoders."""
    from dataclasses import fields, is_dataclass

    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    text = (Path(__file__).parents[1] / "memdiag" / "serving" / "defaults.json").read_text(encoding="utf-8")
    keys = {key for values in json.loads(text).values() for key in values}
    names = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    found: dict[str, dict[str, Any]] = {}
    waiting = sorted(names | {name for name in CONFIG_MAPPING if "vision" in name})
    while waiting:
        name = waiting.pop()
        if name in found or name not in CONFIG_MAPPING:
            continue
        kind = CONFIG_MAPPING[name]
        values = {
            one.name: one.default
            for one in (fields(kind) if is_dataclass(kind) else ())
            if one.name in keys and isinstance(one.default, int | float)
        }
        found[name] = values
        waiting += [one.model_type for one in (kind.sub_configs or {}).values() if hasattr(one, "model_type")]
    lines = [f" {json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(found.items()) if values]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def report(out: Path) -> None:
    """Prints the tables of the report."""
    from memdiag.errors import MemdiagError
    from memdiag.serving.shapes import shapes_of

    found = json.loads(out.read_text(encoding="utf-8"))
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    rows, refused = [], []
    for name, config in models.items():
        try:
            shapes = shapes_of(config)
        except MemdiagError as error:
            refused.append(f"| {name} | {error} |")
            continue
        measured = found.get(name, {})
        counted = measured.get("count", {}).get("parameters")
        cells = [name, f"{shapes.num_parameters / 1e9:.3f}", _error(shapes.num_parameters, counted)]
        built = measured.get("build", {})
        for tp in SIZES:
            real = built.get(str(tp), {})
            cells.append(_error(shapes.weight_bytes(tp) + shapes.table_bytes, real.get("weight_bytes")))
        for tp in SIZES:
            real = built.get(str(tp), {})
            if "requests" in real:
                each = shapes.request_bytes(real["longest"], tp, shapes.cache_bytes, BATCH_TOKENS)
                cells.append(_error(CACHE_BYTES / each, real["requests"]))
            else:
                cells.append("" if shapes.can_divide(tp) else "no")
        rows.append("| " + " | ".join(cells) + " |")
    names = [
        "model",
        "parameters (10⁹)",
        "error",
        *(f"{what}, {tp}" for what in ("weights", "requests") for tp in SIZES),
    ]
    print("| " + " | ".join(names) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print("\n| refused | message |\n|---|---|")
    print("\n".join(refused))
    print("\n| not built by vLLM 0.33 | message |\n|---|---|")
    for name in models:
        if error := found.get(name, {}).get("build", {}).get("error"):
            print(f"| {name} | {error[:110]} |")


def _error(computed: float, real: float | None) -> str:
    return "" if not real else f"{(computed / real - 1) * 100:+.2f} %".replace("-", "\N{MINUS SIGN}")


if __name__ == "__main__":
    command, out, *names = sys.argv[1:]
    if command == "report":
        report(Path(out))
    elif command == "defaults":
        defaults(Path(out))
    elif command in {"count", "build"}:
        measure(Path(out), command, names, count if command == "count" else Vllm())
