"""``memdiag.metrics.log`` with the real loggers of trainings, which write to local files."""

import json
from pathlib import Path

import pytest

from tests.frameworks import run_program, trainers_python

PROGRAM = Path(__file__).parent / "programs" / "log_scalars.py"


@pytest.mark.parametrize("logger", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_stores_every_value(logger, tmp_path):
    done = run_program(trainers_python("torch", logger), PROGRAM, logger, str(tmp_path))
    written, stored = json.loads(done.stdout.splitlines()[-1])
    assert len(written) == 2
    assert {"memdiag/up", "memdiag/host_bytes"} <= set(written[0])
    for name in written[0]:
        rows = [[step, pytest.approx(values[name], rel=1e-6)] for step, values in zip((3, 4), written, strict=True)]
        assert stored[name] == rows
