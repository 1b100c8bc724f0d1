"""Trains two workers with Ray Train; arguments: folder, steps to record, step that fails or -1.

Each worker also writes memdiag's log to FOLDER/rankN.log, because Ray may lose lines of workers when the driver ends.
"""

import logging
import os
import sys

os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "400"  # on a busy machine; Ray gives up and retries after 60

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

folder, steps, fail_at = sys.argv[1], sys.argv[2], int(sys.argv[3])


def work(config):
    from model import Net, rows

    from memdiag.integrations.ray_train import recorded

    rank = ray.train.get_context().get_world_rank()
    logging.getLogger("ray.train.memdiag").addHandler(logging.FileHandler(f"{config['folder']}/rank{rank}.log"))
    torch.set_num_threads(1)
    with recorded(steps=config["steps"], ranks="all"):
        net = Net(config["fail_at"])
        optimizer = torch.optim.AdamW(net.parameters())
        for batch in torch.utils.data.DataLoader(rows(32), batch_size=4):
            net(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()


def start_ray():
    """Starts Ray; on a busy machine, this takes longer than the 30 s for which Ray waits."""
    for is_last in (False, False, True):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
            return
        except Exception as error:
            if is_last or "timed out" not in str(error):
                raise
            ray.shutdown()


start_ray()
trainer = TorchTrainer(
    work,
    train_loop_config={"folder": folder, "steps": steps, "fail_at": fail_at},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=RunConfig(storage_path=folder, name="run"),
)
trainer.fit()
print("trained")
