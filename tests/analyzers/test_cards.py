"""Reports distinguish the capacity of the device from the memory that the allocator can use.

The rest, outside the allocator, is recorded, given by the user, or unknown.
"""

from __future__ import annotations

import json
import pickle

import pytest

from memdiag.allocator.subject import Subject
from memdiag.analyzers.support.cards import card_of
from memdiag.cli.main import main
from memdiag.runs.simulation import predict
from memdiag.sources import load
from memdiag.units import GIB, MIB

TOTAL = 8 * GIB  # capacity of the recorded device


def sample(when, outside, reserved=20 * MIB, **more):
    free = TOTAL - outside - reserved
    return {
        "when": when,
        "device": 0,
        "step": 0,
        "total_bytes": TOTAL,
        "free_bytes": free,
        "reserved_bytes": reserved,
        **more,
    }


@pytest.fixture
def recording(goldens, tmp_path):
    """Writes a recording with additional facts from the recorder; returns its path."""

    def made(**facts):
        content = pickle.loads((goldens / "cuda-2.13.0-recorded" / "snapshot.pickle").read_bytes())
        content["memdiag"] = {**content["memdiag"], **facts}
        path = tmp_path / "run.pkl"
        path.write_bytes(pickle.dumps(content, protocol=4))
        return path

    return made


@pytest.fixture
def subject(recording):
    def made(**facts):
        trace = load(recording(**facts))
        return Subject.of(trace, trace.devices[0])

    return made


def test_the_smallest_card_holds_what_lies_outside_too(subject):
    bare = predict(subject(), subject().recorded, with_min_capacity=True)[0]
    assert bare.min_capacity_bytes == bare.min_usable_bytes
    whole = subject(memory=[sample("start", 512 * MIB), sample("end", 700 * MIB)])
    found = predict(whole, whole.recorded, with_min_capacity=True)[0]
    assert found.min_capacity_bytes == bare.min_usable_bytes + 700 * MIB
    assert found.min_usable_bytes == bare.min_usable_bytes
    assert found.usable_bytes == TOTAL - 700 * MIB
    assert predict(whole, whole.on_card(found.min_capacity_bytes))[0].fits
    assert not predict(whole, whole.on_card(found.min_capacity_bytes - 2 * MIB))[0].fits
    assert whole.calibration.is_exact


def test_what_is_known_of_a_card(subject):
    card = card_of(subject(memory=[sample("start", 5), sample("step", 7, 30 * MIB), sample("end", 6)], fraction=1.0))
    assert (card.capacity_bytes, card.outside_bytes, card.outside_basis, card.usable_bytes) == (
        TOTAL,
        7,
        "recorded",
        TOTAL - 7,
    )
    assert (
        card.outside_at_start_bytes,
        card.outside_at_peak_bytes,
        card.outside_at_end_bytes,
        card.memory_fraction,
    ) == (5, 7, 6, 1.0)
    assert "include this memory" in card.notes[0]


def test_what_lies_outside_is_unknown_in_other_files(subject):
    card = card_of(subject())
    assert (card.capacity_bytes, card.outside_bytes, card.outside_basis, card.usable_bytes) == (TOTAL, None, "", TOTAL)
    assert "memdiag assumes 0" in card.notes[0]
    given = card_of(subject().with_outside(GIB))
    assert (given.outside_bytes, given.outside_basis, given.usable_bytes) == (GIB, "given", TOTAL - GIB)


def test_more_outside_than_there_can_have_been_at_the_peak_is_not_believed(subject):
    recorded = subject(memory=[sample("end", TOTAL - 1, 0)])
    peak = int(recorded.device.usage.reserved.max())
    assert recorded.limits.outside_bytes == TOTAL - peak
    assert predict(recorded, recorded.recorded)[0].fits


@pytest.mark.parametrize(
    "memory",
    [
        "text",
        [1],
        [sample("start", 1, device=1)],
        [sample("never", 1)],
        [{**sample("end", 1), "free_bytes": 9 * GIB}],
        [{**sample("end", 1), "reserved_bytes": -1}],
        [{**sample("end", 1), "total_bytes": "8"}],
    ],
)
def test_what_is_no_sample_is_left_out(subject, memory):
    assert subject(memory=memory).device.card.samples == ()


def test_the_share_of_the_process_is_that_of_other_cards_too(subject):
    half = subject(fraction=0.5, memory=[sample("end", 0)])
    assert half.limits.limit_bytes == TOTAL // 2
    assert half.on_card(4 * GIB).fraction == 0.5
    assert predict(half, half.on_card(4 * GIB))[0].usable_bytes == 2 * GIB


def test_garbage_collection_needs_a_share_that_is_known(subject):
    unknown = subject(fraction=None)
    said = card_of(unknown, ["garbage_collection_threshold:0.8"]).notes
    assert any("not contain the memory fraction of the process" in note for note in said)
    assert not any("memory fraction" in note for note in card_of(unknown, [""]).notes)
    assert not any(
        "memory fraction" in note for note in card_of(subject(fraction=1.0), ["garbage_collection_threshold:0.8"]).notes
    )


def test_simulate_prints_card_and_room(recording, capsys):
    path = str(recording(memory=[sample("end", GIB)]))
    assert main(["simulate", path, "--capacity", "6GiB", "--min-capacity", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (result,) = found["results"]
    assert (result["capacity_bytes"], result["usable_bytes"]) == (6 * GIB, 5 * GIB)
    assert result["min_capacity_bytes"] - result["min_usable_bytes"] == found["card"]["outside_bytes"] == GIB
    assert main(["simulate", path, "--capacity", "6GiB", "--min-capacity"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "6.00 GiB card, 5.00 GiB of it for the allocator" in said
    assert "1.00 GiB of the card are used outside the allocator" in said
    assert said.count("for the allocator") >= 2  # in the row and in the legend
    assert main(["simulate", path, "--capacity", "6GiB", "--outside", "2GiB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["usable_bytes"] == 4 * GIB
    assert main(["simulate", path, "--capacity", "1GiB", "--outside", "2GiB"]) == 2


def test_a_card_without_room_for_the_allocator_is_refused(recording, capsys):
    path = str(recording(memory=[sample("end", GIB)]))
    assert main(["simulate", path, "--capacity", "1GiB"]) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
    assert error.endswith("because the recording has 1.00 GiB outside of it")
    assert "--outside" in hint
    assert main(["simulate", path, "--capacity", "1GiB", "--outside", "512MiB"]) == 0


def test_analyze_and_plan_know_both(recording, capsys):
    path = str(recording(memory=[sample("end", GIB)]))
    assert main(["analyze", path, "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["card"]["capacity_bytes"], device["card"]["usable_bytes"], device["card"]["outside_bytes"]) == (
        TOTAL,
        7 * GIB,
        GIB,
    )
    assert main(["plan", path, "--capacity", "6GiB", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["capacity_bytes"], planned["usable_bytes"], planned["outside_bytes"], planned["fits"]) == (
        6 * GIB,
        5 * GIB,
        GIB,
        True,
    )
    assert main(["plan", path, "--capacity", str(GIB + planned["live_peak_bytes"] - 512), "--json"]) == 1
    capsys.readouterr()
