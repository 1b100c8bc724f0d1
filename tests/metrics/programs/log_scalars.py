"""Writes the memory of this process with a logger, and prints what was written and what the logger's files contain.

python log_scalars.py tensorboard|wandb|mlflow FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

import memdiag.metrics

STEPS = (3, 4)
kind, folder = sys.argv[1], Path(sys.argv[2])


def write(logger):
    return [memdiag.metrics.log(logger, step) for step in STEPS]


def tensorboard():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        written = write(writer)
    found = EventAccumulator(str(folder)).Reload()
    return written, {
        tag: [[event.step, event.value] for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }


def wandb():
    import wandb as package

    with package.init(project="memdiag", mode="offline", dir=str(folder)) as run:
        written = write(run)
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    package.teardown()
    until = time.monotonic() + 60  # another process writes the file
    while any(name.encode() not in path.read_bytes() for name in written[0]) and time.monotonic() < until:
        time.sleep(0.2)
    stored = path.read_bytes()  # records of names and values as JSON; there is no public reader
    return written, {
        name: [
            [step, values[name]]
            for step, values in zip(STEPS, written, strict=True)
            if name.encode() in stored and json.dumps(values[name]).encode() in stored
        ]
        for name in written[0]
    }


def mlflow():
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a folder, without the server or a database
    import mlflow as package

    package.set_tracking_uri((folder / "runs").as_uri())  # created with its first experiment
    with package.start_run() as run:
        written = write(package)
    client = package.MlflowClient()
    names = client.get_run(run.info.run_id).data.metrics
    return written, {
        name: [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, name)] for name in names
    }


kept = torch.zeros(1 << 20, device="cuda" if torch.cuda.is_available() else "cpu")
print(json.dumps(globals()[kind]()))
