"""Writes docs/settings.md from the tables in memdiag/settings: ``python docs/settings_page.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memdiag.settings.features import FEATURES, feature_words
from memdiag.settings.lint import CODES
from memdiag.settings.model import Key, type_words, version_text
from memdiag.settings.tables import KEYS, VARIABLE, backend_words
from memdiag.settings.variables import VARIABLES

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Allocator settings

This page lists every allocator setting of every version of PyTorch, torch_npu and MindSpeed, and the environment \
variables that affect
memory. It is generated from the tables of [`memdiag conf`](conf.md) (`python docs/settings_page.py`); `memdiag conf \
--list` prints the same
tables. To check settings:

    memdiag conf 'expandable_segments:True,max_split_size_mb:16'
    memdiag conf --torch 2.6 --with ipc,cuda-graphs 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'
    memdiag conf --torch-npu 2.13 'expandable_segments:True,max_split_size_mb:64'
    memdiag conf --env

The argument may be the settings alone, `NAME=settings`, a whole shell line with several variables, or \
`os.environ["NAME"] = "settings"`. `-`
reads it from a pipe. Without `--torch` or `--torch-npu`, the rules of the newest known version (2.13) apply. Exit \
status: 0 success, 1 a
critical finding or a `--fail-on` condition (`warning`, `critical` or a code) matched, 2 error.

## How PyTorch reads settings

The format is `key:value,key:[a:b,…]`. Since torch 2.10 and torch_npu 2.10, all accelerators share one parser. It \
ignores white space,
hardly checks separators, and reads numbers up to the first character that is not a digit. Unknown keys end the \
program. Older versions check
separators. The tests compare these rules with recorded results of the parsers on two thousand texts (tests/settings).

The allocator reads the first of these variables that is set, and ignores the others:

| variables, in order | versions |
|---|---|
| `PYTORCH_CUDA_ALLOC_CONF` (on ROCm then `PYTORCH_HIP_ALLOC_CONF`) | torch up to 2.8 |
| `PYTORCH_ALLOC_CONF`, `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` | torch 2.9 |
| `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF`, `PYTORCH_ALLOC_CONF` | torch 2.10 and later |
| `PYTORCH_NPU_ALLOC_CONF` | torch_npu up to 2.12 |
| `PYTORCH_NPU_ALLOC_CONF` or `PYTORCH_ALLOC_CONF`; both are an error | torch_npu 2.13 |
"""
JSON = """\
## `memdiag conf --json`

```notation
{"schema_version": 2, "backend", "torch_version", "checked_version", "variable", "text",
 "settings": [{"key", "value", "meaning", "default", "range", "since"}],
 "findings": [{"code", "title", "severity", "device", "evidence", "fixes", "saving"}],
 "corrected", "command", "related": [{"name", "value", "meaning"}]}
```

| key | meaning |
|---|---|
| `backend` | `cuda`, `hip`, `npu` or `mindspeed` |
| `torch_version` | the given version (of torch_npu for `npu`); null: none |
| `checked_version` | the version whose rules were applied |
| `variable`, `text` | the environment variable and its value; `text` is null if `--env` finds no variable |
| `settings` | each known key in order: `key` is its correct name, `value` the given text; `since` may be null |
| `findings` | as in `memdiag analyze --json` (docs/json.md), the worst first |
| `corrected` | the settings to use instead; `""`: the variable should not be set; null: nothing needs to be changed |
| `command` | the same as a line to paste; `""` if there is none |
| `related` | other variables of the environment that affect memory |

`memdiag conf --list --json` has `schema_version`, `torch_version`, `backends` (each with `backend`, `variable` and \
`keys`: `key`, `type`,
`meaning`, `default`, `range`, `since`, `until`, `replaced_by`) and `variables` (`name`, `meaning`, `range`, \
`backends`).
"""


def page() -> str:
    """Returns the page."""
    return "\n".join([HEAD, *_backends(), *_beside(), *_features(), *_codes(), JSON])


def _backends() -> Iterator[str]:
    for backend, unit in (("cuda", "torch"), ("npu", "torch_npu"), ("mindspeed", "MindSpeed")):
        yield f"## {backend_words(backend)}: `{VARIABLE[backend]}`\n"
        yield f"| key | effect | value | default | since {unit} |"
        yield "|---|---|---|---|---|"
        for key in KEYS[backend]:
            yield (
                f"| `{key.name}` | {key.meaning} | {type_words(key.kind)}: {key.range} | {key.default} | "
                f"{_versions(key, backend)} |"
            )
        yield ""
        if backend == "cuda":
            yield (
                "On ROCm the same keys are read, from `PYTORCH_HIP_ALLOC_CONF` as well; `backend` also takes "
                "`hipMallocAsync`.\n"
            )


def _versions(key: Key, backend: str) -> str:
    if backend == "mindspeed":
        return "until 2025"
    return version_text(key.since) + (f", until {version_text(key.until)}" if key.until else "")


def _beside() -> Iterator[str]:
    yield "## Other environment variables (`--env`)\n"
    yield "| variable | effect | values | read with |"
    yield "|---|---|---|---|"
    for variable in VARIABLES:
        yield f"| `{variable.name}` | {variable.meaning} | {variable.range} | {', '.join(variable.backends)} |"
    yield ""


def _features() -> Iterator[str]:
    yield "## Features of a program (`--with`)\n"
    yield "| feature | meaning |"
    yield "|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in ((each, feature_words(each)) for each in FEATURES))
    yield ""


def _codes() -> Iterator[str]:
    yield "## Findings\n"
    yield "| code | meaning |"
    yield "|---|---|"
    yield from (f"| [{code}](findings/{code}.md) | {meaning} |" for code, meaning in CODES.items())
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
