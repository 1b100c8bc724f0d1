"""Phases, steps, categories and names, against what the recorded program says of itself."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_gpt(record, compare, optimizer):
    found = compare(record.train("--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


def test_gpt_peak(record, compare, plain_run):
    """Of the bytes live at the peak 99 % have a category, and 95 % a name."""
    with_category, with_name = compare(plain_run(record)).shares()
    assert with_category >= 0.99
    assert with_name >= 0.95


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("resnet", "adamw-fused"), ("resnet", "adafactor"), ("rnn", "adamw-foreach"), ("rnn", "adafactor")],
)
def test_other_models(record, compare, model, optimizer):
    found = compare(record.train("--model", model, "--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


@pytest.mark.parametrize("way", ["--checkpoint=reentrant", "--checkpoint=plain", "--accumulate=3 --eval", "--autocast"])
def test_ways_to_train(record, compare, way):
    found = compare(record.train(*way.split()))
    assert found.wrong_phases() == []
    assert (
        found.wrong_tensors(() if "checkpoint" not in way else ("parameter", "gradient", "optimizer_state", "input"))
        == []
    )
