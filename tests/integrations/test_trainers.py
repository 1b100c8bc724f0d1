"""Each integration, with the real framework: recorded steps, files, log, and out-of-memory errors."""

import re

import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.integrations.loop import TrainingRecorder

TRAINED = "trained 8"
SHORTAGE = "memdiag: the training ran out of memory:"


def assert_recorded(folder, text, steps, rank=0):
    """Asserts that the files and the headline are there, and that only the chosen steps were recorded."""
    trace = memdiag.load(folder / f"rank{rank}.pkl")
    device = trace.devices[0]
    recorded = {int(step) for step in set(device.events.step.tolist()) if step >= 0}
    assert recorded - {0} == set(steps) - {0}  # tensors that were live before have step 0
    page = folder / f"rank{rank}.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    headline = memdiag.analyze(trace, replay=False).headline
    assert f"memdiag: {headline} (report: {page})" in text


def assert_explained(text):
    """Asserts that the log has the diagnosis, and that the exception ended the program after it."""
    assert SHORTAGE in text
    assert re.search(r"confidence (high|medium|low)", text)
    assert re.search(r"DefaultCPUAllocator: can't allocate|OutOfMemoryError: CUDA out of memory", text)


def test_transformers(trainers, tmp_path):
    done = trainers("transformers", "train_huggingface.py", str(tmp_path), "2:5", "-1", "attach")
    assert TRAINED in done.stdout
    assert_recorded(tmp_path / "memdiag", done.stderr, (2, 3, 4))


def test_transformers_out_of_memory(trainers, tmp_path):
    done = trainers("transformers", "train_huggingface.py", str(tmp_path), "2:5", "3", "attach", status=1)
    assert_explained(done.stderr)
    assert done.stderr.index(SHORTAGE) < done.stderr.index("Traceback (most recent call last)")
    assert_recorded(tmp_path / "memdiag", done.stderr, (2, 3))


def test_the_callback_of_transformers_alone_explains_when_the_program_ends(trainers, tmp_path):
    done = trainers("transformers", "train_huggingface.py", str(tmp_path), ":", "3", "callback", status=1)
    assert_explained(done.stderr)
    assert done.stderr.index(SHORTAGE) > done.stderr.index("Traceback (most recent call last)")
    assert_recorded(tmp_path / "memdiag", done.stderr, range(4))


def test_lightning_counts_optimizer_steps_and_logs_the_peak(trainers, tmp_path):
    done = trainers("lightning", "train_lightning.py", str(tmp_path), "1:3", "-1")
    assert TRAINED in done.stdout
    assert_recorded(tmp_path / "memdiag", done.stderr, (1, 2))
    assert (tmp_path / "checkpoints").is_dir()
    assert "memdiag/peak_reserved_bytes" in (tmp_path / "metrics.csv").read_text()


def test_lightning_out_of_memory(trainers, tmp_path):
    done = trainers("lightning", "train_lightning.py", str(tmp_path), ":", "4", status=1)
    assert_explained(done.stderr)
    assert_recorded(tmp_path / "memdiag", done.stderr, (0, 1, 2))


def test_accelerate_sends_the_peak_to_its_trackers(trainers, tmp_path):
    done = trainers("accelerate", "train_accelerate.py", str(tmp_path), "2:5", "-1")
    assert 'logged {"memdiag/peak_reserved_bytes"' in done.stdout
    assert_recorded(tmp_path / "memdiag", done.stderr, (2, 3, 4))


def test_accelerate_out_of_memory(trainers, tmp_path):
    done = trainers("accelerate", "train_accelerate.py", str(tmp_path), ":", "3", status=1)
    assert_explained(done.stderr)


def test_ray_train_records_its_workers_in_the_storage(trainers, tmp_path):
    done = trainers("ray", "train_ray.py", str(tmp_path), "2:5", "-1")
    assert "trained" in done.stdout
    for rank in range(2):
        text = (tmp_path / f"rank{rank}.log").read_text()
        assert_recorded(tmp_path / "run" / "memdiag", text, (2, 3, 4), rank)


def test_ray_train_copies_the_files_to_remote_storage(trainers, tmp_path):
    done = trainers("ray", "copy_to_storage.py", str(tmp_path))
    assert "memdiag: copied the report to bucket/run/memdiag" in done.stdout
    assert (tmp_path / "bucket" / "run" / "memdiag" / "rank0.pkl").read_bytes() == b"trace"


def test_a_loop_with_an_optimizer_of_its_own(loop, tmp_path):
    done = loop("train_loop.py", str(tmp_path), "2:5", "-1")
    assert "trained Peak" in done.stdout
    assert_recorded(tmp_path, done.stderr, (2, 3, 4))


@pytest.mark.parametrize("style", ["torchtitan", "verl"])
def test_a_class_with_hooks_counts_its_own_steps(loop, tmp_path, style):
    """Batches of one accumulated gradient are one step, and so are the steps of a critic and of its actor."""
    done = loop("train_class.py", style, str(tmp_path), "2:5", "-1")
    assert "trained Peak" in done.stdout
    assert_recorded(tmp_path, done.stderr, (2, 3, 4))


def test_a_class_with_hooks_explains_its_error(loop, tmp_path):
    done = loop("train_class.py", "torchtitan", str(tmp_path), "2:5", "3", status=1)
    assert_explained(done.stderr)
    assert_recorded(tmp_path, done.stderr, (2,))  # step 3 fails before it allocates anything


def test_a_loop_out_of_memory(loop, tmp_path):
    done = loop("train_loop.py", str(tmp_path), "2:5", "3", status=1)
    assert_explained(done.stderr)
    assert_recorded(tmp_path, done.stderr, (2, 3))


def test_a_loop_out_of_device_memory(cuda_loop, tmp_path):
    """The trace of the failed allocation explains the message."""
    done = cuda_loop("train_loop.py", str(tmp_path), ":", "3", status=1)
    assert_explained(done.stderr)
    assert memdiag.load(tmp_path / "rank0.pkl").devices[0].num_events > 0
    assert "100.00 GiB" in done.stderr


def test_a_loop_without_a_recording_explains_its_error(loop, tmp_path):
    """A rank that does not record explains its own error from the message."""
    done = loop("train_loop.py", str(tmp_path), "2:5", "3", "1", status=1)
    assert_explained(done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_failure_of_memdiag_does_not_end_the_training(loop, tmp_path):
    (tmp_path / "file").write_text("")
    done = loop("train_loop.py", str(tmp_path / "file"), "2:5", "-1")
    assert "trained nothing" in done.stdout
    assert done.stderr.count("memdiag: ") == 1
    assert "the program continues" in done.stderr


def test_wrong_steps_are_an_error_before_the_training():
    with pytest.raises(MemdiagError, match="5:2"):
        TrainingRecorder(steps="5:2")


@pytest.mark.parametrize(
    ("critic_steps", "declares", "steps"),
    [("1", "no", 6), ("1", "callback", 6), ("5", "callback", 6), ("5", "no", 10), ("5", "loop", 10)],
)
def test_an_iteration_with_two_optimizers_is_one_step(loop, tmp_path, critic_steps, declares, steps):
    done = loop("train_gan.py", str(tmp_path), critic_steps, declares)
    assert f"steps {steps}\n" in done.stdout
    seen = set(memdiag.load(tmp_path / "rank0.pkl").devices[0].events.step.tolist())
    assert set(range(steps)) <= seen <= set(range(-1, steps + 1))
