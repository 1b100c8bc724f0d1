"""The palette and the words are complete, and everybody can distinguish the classes, also on a grey print."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag import vocabulary
from memdiag.text import catalogue
from memdiag.trace import schema
from memdiag.views.heap import CAUSES

SEEN = 13.0  # CIELAB distance at which adjacent colours are clearly different
STEP = 5.0  # difference in lightness, for prints without colour
TOGETHER = {
    "category": schema.CATEGORIES,
    "lifetime": schema.LIFETIMES,
    "part": tuple(vocabulary.STYLES["part"]),
    "card": tuple(vocabulary.STYLES["card"]),
}
# Simulation of full protanopia, deuteranopia and tritanopia in linear RGB: Machado, Oliveira and Fernandes, 2009.
VISION = {
    "normal": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(color: str) -> np.ndarray:
    share = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    share = (rgb @ TO_XYZ.T) / (TO_XYZ @ np.ones(3))
    x, y, z = np.moveaxis(np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


@pytest.mark.parametrize("kind", TOGETHER)
@pytest.mark.parametrize("vision", VISION)
def test_classes_drawn_together_look_different_to_everybody(kind, vision):
    rgb = np.array([linear(vocabulary.color(kind, key)) for key in TOGETHER[kind]])
    seen = lab(np.clip(rgb @ VISION[vision].T, 0, 1))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.diag(np.full(len(seen), np.inf))
    assert apart.min() >= SEEN, (kind, vision, TOGETHER[kind][int(apart.min(axis=0).argmin())])


@pytest.mark.parametrize("kind", TOGETHER)
def test_classes_drawn_together_differ_on_a_grey_print(kind):
    lightness = np.sort([lab(linear(vocabulary.color(kind, key)))[0] for key in TOGETHER[kind]])
    assert np.diff(lightness).min() >= STEP
    assert 35 < lightness.min() < lightness.max() < 92  # visible on a dark page and on a white one


def test_every_class_of_the_model_has_a_style_and_words_in_both_languages():
    model = {"category": schema.CATEGORIES, "lifetime": schema.LIFETIMES, "phase": schema.PHASES, "part": CAUSES}
    words = catalogue("vocabulary")
    for kind, keys in model.items():
        assert set(keys) <= set(vocabulary.STYLES[kind])
    for kind, classes in vocabulary.STYLES.items():
        assert all(words[f"{kind}.{key}"].keys() == {"en", "zh"} for key in classes)
    assert all(text for entry in words.values() for text in entry.values())


def test_a_key_without_words_is_shown_as_words():
    assert vocabulary.name("category", "some_thing") == "some thing"
    assert vocabulary.color("category", "some_thing") == vocabulary.color("category", "unknown")
    assert vocabulary.meaning("phase", "forward") == ""
