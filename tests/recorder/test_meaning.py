"""Phases, steps, categories and names, against what the recorded program says of itself."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_gpt(record, compare, optimizer):
    found = compare(record.train("--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


def test_gpt_peak(record, compare):
    """Of the bytes live at the peak 99 % have a category, and 95 % a name."""
    with_category, with_name = compare(record.train("--plain")).shares()
    assert with_category >= 0.99
    assert with_name >= 0.95


@pytest.mark.parametrize("model", ["resnet", "rnn"])
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_other_models(record, compare, model, optimizer):
    found = compare(record.train("--model", model, "--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


@pytest.mark.parametrize("optimizer", ["adamw-foreach", "adamw-fused"])
def test_optimizers_in_one_go(record, compare, optimizer):
    found = compare(record.train("--optimizer", optimizer))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


@pytest.mark.parametrize("way", ["--checkpoint=reentrant", "--checkpoint=plain", "--accumulate=3", "--autocast", "--eval"])
def test_ways_to_train(record, compare, way):
    found = compare(record.train(way))
    assert found.wrong_phases() == []
    assert found.wrong_tensors(() if "checkpoint" not in way else ("parameter", "gradient", "optimizer_state", "input")) == []
