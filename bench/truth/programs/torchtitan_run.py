"""Runs torchtitan's own train.py for a few steps, with made-up tokens in the place of tokenizer and data set.

    python torchtitan_run.py CHECKOUT OUT [options of torchtitan]

The vocabulary is that of Llama 3 (128,256). OUT gets the counters since the last step that torchtitan logged, as
torchtitan prints them. torch.compile compiles again in each run, because compiling uses device memory as well.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch

VOCABULARY = 128_256


class Tokens:
    """Yields batches as torchtitan's loader does: tokens and labels of shape (batch, sequence), on the host."""

    def __init__(self, batch: int, length: int) -> None:
        self.shape = (batch, length)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield torch.zeros(self.shape, dtype=torch.long), torch.zeros(self.shape, dtype=torch.long)

    def state_dict(self) -> dict:
        """Returns nothing: there is no place to come back to."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Ignores ``state``."""


def main() -> None:
    """Runs train.py, then writes OUT."""
    checkout, out, *options = sys.argv[1:]
    sys.path.insert(0, checkout)
    import train
    from torchtitan.config_manager import JobConfig

    train.build_tokenizer = lambda *_, **__: SimpleNamespace(n_words=VOCABULARY)
    train.build_hf_data_loader = lambda _name, _path, _tokenizer, batch, length, *_, **__: Tokens(batch, length)
    config = JobConfig()
    config.parse_args(options)
    train.main(config)
    Path(out).write_text(
        json.dumps(
            {
                "max_reserved_bytes": torch.cuda.max_memory_reserved(),
                "max_allocated_bytes": torch.cuda.max_memory_allocated(),
            }
        )
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as compiled:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = compiled
        main()
