"""A simulated run fits, fits in its recorded part, or is unknown; the report estimates the rest if it has a basis."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.continuation import EARLIER_STEP, OPTIMIZER_STATE
from memdiag.allocator.subject import Subject
from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, WHOLE_RUN
from memdiag.runs.outlook import weakest_basis
from memdiag.runs.simulation import predict
from memdiag.sources import load
from memdiag.sources.recorded import recorded_in
from memdiag.trace import recording as recording_of_run
from memdiag.trace import schema
from memdiag.units import GIB, MIB

ADAMW = {
    "class": "AdamW",
    "parameter_bytes": GIB,
    "num_states": 0,
    "amsgrad": False,
    "momentum": False,
    "centered": False,
}


def subject_of(path):
    trace = load(path)
    return Subject.of(trace, trace.devices[0])


def asks_of_step(subject, step):
    """Returns the allocating calls of a step."""
    work = subject.workload
    steps = np.where(work.row >= 0, subject.device.events.step[np.maximum(work.row, 0)], -1)
    return np.flatnonzero((work.op == w.ALLOC) & (steps == step))


def marks_until(own, num_allocs, time_ns):
    """Returns the recorder's tables at the moment when a given number of blocks had been allocated."""
    recorded = recorded_in(own)
    tables = {}
    for name, table in (("marks", recorded.marks), ("modules", recorded.modules)):
        later = (table["allocs"] > num_allocs) | (table["time_ns"] > time_ns)
        tables[name] = {
            column: values[: int(np.argmax(later)) if later.any() else len(later)] for column, values in table.items()
        }
    count = len(tables["marks"]["kind"])
    seen = np.flatnonzero(recorded.tensors["first"] < count)
    tables["tensors"] = {column: values[seen] for column, values in recorded.tensors.items()}
    tables["tensors"]["last"] = np.minimum(tables["tensors"]["last"], count - 1)
    return {
        name: {column: values.astype("<i8").tobytes() for column, values in table.items()}
        for name, table in tables.items()
    }


@pytest.fixture(params=["cuda", "npu"])
def recording(request, goldens):
    """The complete recording of three steps of a small training."""
    return goldens / f"{request.param}-2.13.0-recorded" / "snapshot.pickle"


@pytest.fixture
def cut(recording, tmp_path):
    """Returns the recording as if allocation ``number`` had failed; ``more`` are further facts of the recorder."""

    def made(number, **more):
        content = pickle.loads(recording.read_bytes())
        (entries,) = content["device_traces"]
        allocs = [at for at, entry in enumerate(entries) if entry["action"] == "alloc"]
        at = allocs[number]
        failed = {**entries[at], "action": "oom", "device_free": 0}
        pad = 32 if content["memdiag"]["backend"] == "npu" else 0
        failed["size"] = -(-(failed["size"] + pad) // 512) * 512  # entries of failed requests have the rounded size
        content["device_traces"] = [[*entries[:at], failed]]
        content.pop("segments", None)
        freed = sum(entry["action"] == "free_completed" for entry in entries[:at])
        counts = {**content["memdiag"]["counts"][0], "allocs": number, "frees": freed, "ooms": 1}
        own = {**content["memdiag"], "reason": "oom", "counts": {0: counts}, **more}
        content["memdiag"] = {**own, **marks_until(own, number, entries[at].get("time_us", 1 << 62) * 1000)}
        path = tmp_path / "cut.pkl"
        path.write_bytes(pickle.dumps(content, protocol=4))
        return subject_of(path)

    return made


def number_in_step(whole, step, share):
    """Returns the number of the allocation at a given fraction of a step."""
    asks = asks_of_step(whole, step)
    before = int((whole.workload.op[: asks[0]] == w.ALLOC).sum())
    return before + int(share * len(asks))


def test_a_whole_run_fits_or_does_not(recording):
    subject = subject_of(recording)
    fitting, _, _ = predict(subject, subject.recorded)
    assert (fitting.fits, fitting.outlook.basis) == (True, WHOLE_RUN)
    failing, _, _ = predict(subject, replace(subject.recorded, capacity_bytes=2 * MIB))
    assert (failing.fits, failing.outlook.basis) == (False, REPLAY)


@pytest.mark.parametrize(
    "more", [{"reason": "window", "window": [0, 3]}, {"reason": "demand"}, {"error": "ValueError"}, {"reason": None}]
)
def test_a_part_of_a_run_fits_as_far_as_it_was_recorded(recording, tmp_path, more):
    content = pickle.loads(recording.read_bytes())
    content["memdiag"] = {**content["memdiag"], **more}
    (tmp_path / "part.pkl").write_bytes(pickle.dumps(content, protocol=4))
    subject = subject_of(tmp_path / "part.pkl")
    assert (subject.reach.basis, subject.reach.fits(fails=False)[0]) == (RECORDED_PART, True)


def test_past_a_failure_nothing_is_known(goldens):
    subject = subject_of(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")
    recorded, _, _ = predict(subject, subject.recorded)
    assert (recorded.fits, recorded.outlook.basis) == (False, REPLAY)
    larger, _, _ = predict(subject, replace(subject.recorded, capacity_bytes=1024 * GIB))
    assert (larger.fits, larger.outlook.basis, larger.num_ooms) == (None, PAST_FAILURE, 0)
    assert subject.device.events.action[larger.outlook.failed_at_event] == schema.OOM
    assert larger.outlook.rerun_command.startswith("memdiag record --phantom cuda:")


def test_an_earlier_step_tells_what_follows(recording, cut):
    whole = subject_of(recording)
    number = number_in_step(whole, 2, 0.4)
    subject = cut(number)
    follows = subject.continuation
    assert (follows.basis, follows.step) == (EARLIER_STEP, 1)
    asks = asks_of_step(whole, 2)
    first = int((whole.workload.op[: asks[0]] == w.ALLOC).sum())
    rest = whole.workload.size[asks][number - first + 1 :]
    added = follows.workload.op[follows.failed_call + 1 :] == w.ALLOC
    assert np.array_equal(follows.workload.size[follows.failed_call + 1 :][added][: len(rest)], rest)
    scenario = replace(subject.recorded, capacity_bytes=1024 * GIB)
    rest_of_run = predict(subject, scenario)[0].outlook.estimate
    assert rest_of_run.fits
    actual = predict(whole, scenario)[0]
    assert rest_of_run.peak_allocated_bytes == actual.peak_allocated_bytes
    assert abs(rest_of_run.peak_reserved_bytes - actual.peak_reserved_bytes) <= 2 * MIB


def test_getting_past_a_failure_does_not_suffice_if_the_rest_of_the_step_does_not_fit(recording, cut):
    whole = subject_of(recording)
    subject = cut(number_in_step(whole, 2, 0.2))
    roomy = replace(subject.recorded, capacity_bytes=1024 * GIB)
    needed = predict(whole, roomy)[0].peak_allocated_bytes
    assert not subject.rest_fails(roomy)
    assert subject.rest_fails(replace(roomy, capacity_bytes=needed - 2 * MIB))


def test_what_follows_frees_what_the_program_freed(recording, cut):
    """The estimated rest frees no tensor twice, and its step retains as much as the step before."""
    work = cut(number_in_step(subject_of(recording), 2, 0.4)).continuation.workload
    freed = work.tensor[np.isin(work.op, (w.FREE, w.FREE_COMPLETED))]
    assert len(freed) == len(set(freed.tolist()))
    made = work.tensor[work.op == w.ALLOC]
    assert len(made) == len(set(made.tolist()))
    assert set(freed.tolist()) <= set(made.tolist())


def test_the_state_of_the_optimizer_is_still_to_come(recording, cut):
    number = number_in_step(subject_of(recording), 0, 0.3)
    follows = cut(number, optimizers=[ADAMW]).continuation
    assert (follows.basis, follows.optimizer, follows.is_optimizer_assumed) == (OPTIMIZER_STATE, "AdamW", False)
    device = cut(number).device
    live = device.live(device.num_events - 1)
    parameters = live[device.tensors.category[live] == schema.CATEGORIES.index("parameter")]
    assert len(parameters)
    assert follows.state_bytes == 2 * int(device.tensors.requested_bytes[parameters].sum())
    more = cut(number, optimizers=[{**ADAMW, "amsgrad": True}]).continuation
    assert more.state_bytes == 3 * follows.state_bytes // 2


@pytest.mark.parametrize("optimizer", [{"class": "SGD"}, {"class": "Shampoo"}])
def test_no_state_is_expected_of_optimizers_that_make_none_or_are_unknown(recording, cut, optimizer):
    number = number_in_step(subject_of(recording), 0, 0.3)
    assert cut(number, optimizers=[{**ADAMW, **optimizer}]).continuation is None


def test_a_lower_bound_beyond_the_card_says_that_the_next_step_fails(recording, cut, monkeypatch):
    monkeypatch.setitem(recording_of_run._STATES, "AdamW", 400)  # the model is much smaller than a segment
    subject = cut(number_in_step(subject_of(recording), 0, 0.3), optimizers=[ADAMW])
    room = predict(subject, replace(subject.recorded, capacity_bytes=1024 * GIB))[0]
    assert (room.fits, room.outlook.estimate.fits) == (None, None)
    cards = (subject.limits.capacity_bytes + pages * 2 * MIB for pages in range(20))
    tight = next(
        found
        for card in cards
        if (found := predict(subject, replace(subject.recorded, capacity_bytes=card))[0]).fits is None
    )
    assert tight.outlook.estimate.fits is False


def test_several_recordings_are_known_as_well_as_the_least_known():
    assert weakest_basis([WHOLE_RUN, PAST_FAILURE, RECORDED_PART]) == PAST_FAILURE
    assert weakest_basis([WHOLE_RUN, RECORDED_PART]) == RECORDED_PART
