"""Recorded phases, steps, categories and names equal those in the program's own account."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_phases_and_tensors_of_a_gpt(record, compare, optimizer):
    found = compare(record.train("--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


def test_most_bytes_at_the_peak_have_a_category_and_a_name(record, compare, plain_run):
    """At least 99 % of the bytes live at the peak have a category, and at least 95 % have a name."""
    with_category, with_name = compare(plain_run(record)).shares()
    assert with_category >= 0.99
    assert with_name >= 0.95


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("resnet", "adamw-fused"), ("resnet", "adafactor"), ("rnn", "adamw-foreach"), ("rnn", "adafactor")],
)
def test_phases_and_tensors_of_other_models(record, compare, model, optimizer):
    found = compare(record.train("--model", model, "--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


@pytest.mark.parametrize("way", ["--checkpoint=reentrant", "--checkpoint=plain", "--accumulate=3 --eval", "--autocast"])
def test_phases_and_tensors_of_other_ways_to_train(record, compare, way):
    found = compare(record.train(*way.split()))
    assert found.wrong_phases() == []
    assert (
        found.wrong_tensors(() if "checkpoint" not in way else ("parameter", "gradient", "optimizer_state", "input"))
        == []
    )
