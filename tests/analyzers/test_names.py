"""Findings, call sites and modules show the names of tensors that a recorder stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import fragmentation, leaks, peak
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.names import (
    NO_MODULE,
    TOP_MODULE,
    by_module,
    module_of,
    names_of,
    place_of,
    short,
)
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.names import collapsed

MIB = 1 << 20
PARAMETER = schema.CATEGORIES.index("parameter")


def named(trace, name_of, category=None):
    """Returns a trace whose tensors have names: ``name_of`` maps the short name of a stack to a name, or ""."""
    (device,) = trace.devices
    labels = [trace.stacks.label(int(stack)) for stack in device.tensors.stack]
    strings = sorted({name_of(label) for label in labels} - {""})
    name = np.array([strings.index(name_of(label)) if name_of(label) else -1 for label in labels], np.int32)
    tensors = device.tensors.replace(name=name)
    if category is not None:
        tensors = tensors.replace(category=np.full(len(tensors), category, np.int8))
    return replace(trace, strings=tuple(strings), devices=(replace(device, tensors=tensors),))


def view_of(trace, at=None):
    return next(iter(Context(at=trace.devices[0].num_events - 1 if at is None else at).views(trace)))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("blocks.3.up.weight", "blocks.*.up.weight"),
        ("exp_avg of blocks.12.up.weight", "exp_avg of blocks.*.up.weight"),
        ("0.weight", "*.weight"),
        ("grad of 0.weight", "grad of *.weight"),
        ("h.10 (conv2d)", "h.* (conv2d)"),
        ("layer1.conv2", "layer1.conv2"),
        ("cross_entropy at train.py:35 step", "cross_entropy at train.py:35 step"),
        ("a parameter of (3, 4)", "a parameter of (3, 4)"),
    ],
)
def test_numbers_in_paths_become_stars(name, shown):
    assert collapsed(name) == shown


@pytest.mark.parametrize(
    ("name", "of_parameter", "module"),
    [
        ("layers.0.mlp.up_proj.weight", True, "layers.*.mlp"),
        ("grad of layers.0.mlp.up_proj.weight", True, "layers.*.mlp"),
        ("exp_avg of model.layers.0.self_attn.q.weight", True, "model.layers.*.self_attn"),
        ("layers.0.mlp.act (gelu)", False, "layers.*.mlp"),
        ("layers.0", False, "layers.*"),
        ("gradient of layers.0.mlp (by its size)", False, "layers.*.mlp"),
        ("0.weight", True, "module *"),
        ("12 (gelu)", False, "module *"),
        ("0.up.weight", True, "*.up"),
        ("model.embed_tokens.weight", True, "model.embed_tokens"),
        ("head.weight", True, "head"),
        ("scale", True, TOP_MODULE),
        ("GPT (add)", False, "GPT"),
        ("input of GPT", False, NO_MODULE),
        ("library workspace", False, NO_MODULE),
        ("cross_entropy at train.py:35 step", False, NO_MODULE),
        ("train.py:35 step", False, NO_MODULE),
        ("a parameter of (3, 4)", True, NO_MODULE),
    ],
)
def test_a_name_tells_its_module(name, of_parameter, module):
    assert module_of(name, of_parameter=of_parameter) == module


def test_a_long_name_keeps_both_ends():
    name = "encoder." + "x" * 200 + ".weight"
    assert len(short(name)) <= 60
    assert short(name).startswith("encoder.")
    assert short(name).endswith("x.weight")
    assert short("head.weight") == "head.weight"


def test_modules_are_summed_with_their_share(heap):
    heap.segment(0, 100 * MIB)
    for index in range(6):
        heap.alloc(10 * index, 2 * MIB, where=f"f{index}")
    trace = named(
        heap.trace(),
        lambda label: f"layers.{int(label[-1]) % 3}.up.weight" if label[-1] < "3" else "head.weight",
        PARAMETER,
    )
    modules = by_module(view_of(trace), view_of(trace).live, 10)
    assert [(m.name, m.bytes, m.num_tensors, m.fraction) for m in modules] == [
        ("head", 6 * MIB, 3, 0.5),
        ("layers.*.up", 6 * MIB, 3, 0.5),
    ]
    assert len(by_module(view_of(trace), view_of(trace).live, 1)) == 1


def test_without_names_nothing_is_said(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 2 * MIB, where="f1")
    report = build_report(heap.trace(), at=1)
    assert report.devices[0].by_module is None
    assert report.devices[0].top_sites[0].tensor_names == ()


def test_names_stand_with_the_largest_first(heap):
    heap.segment(0, 100 * MIB)
    for index, size in enumerate((1, 5, 3)):
        heap.alloc(10 * index, size * MIB, where=f"f{index}")
    trace = named(heap.trace(), lambda label: {"f0": "a.0", "f1": "b.0", "f2": "c.0"}[label[-2:]])
    view = view_of(trace)
    assert names_of(view, view.live) == ("b.0", "c.0", "a.0")
    assert place_of(view, view.live, "train.py:1 f") == "b.0, … at train.py:1 f"
    assert place_of(view, view.live[:1], "") == "a.0"


def test_a_shortened_name_that_contains_its_call_site_does_not_repeat_it(heap):
    """Names of tensors that the optimizer allocated contain the line of the program."""
    place = "gradient_accumulation.py:180 training_function"
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 2 * MIB, where="f0")
    view = view_of(named(heap.trace(), lambda _: f"_init_group at {place}"))
    assert place_of(view, view.live, place).count("training_function") == 1


def test_numbers_are_stars_only_where_tensors_differ_in_them(heap):
    heap.segment(0, 100 * MIB)
    for index in range(4):
        heap.alloc(10 * index, 2 * MIB, where=f"f{index}")
    view = view_of(named(heap.trace(), lambda label: f"{label[-1]}"))
    assert names_of(view, view.live) == ("module *",)
    assert names_of(view, view.live[2:3]) == ("module 2",)


def test_what_keeps_a_segment_is_named(heap):
    for index in range(6):
        heap.segment(100 * index, 100 * MIB)
        heap.alloc(100 * index, MIB, where="f7")
    heap.segment(1000, 120 * MIB)
    heap.alloc(1000, 120 * MIB, where="f9")
    trace = named(heap.trace(), lambda label: "layers.3.cache" if "f7" in label else "")
    found = {finding.code: finding for finding in fragmentation.analyze(trace, Context())}
    (pin,) = [item for item in found["MD202"].evidence if "could be released" in item.what]
    assert pin.where == "layers.3.cache at train.py:7 f7"
    assert any("layers.3.cache at train.py:7 f7" in fix.title for fix in found["MD202"].fixes)


def test_a_leak_is_named(heap):
    heap.segment(0, 4000 * MIB)
    at = 0
    for _ in range(8):
        heap.alloc(3000, 400 * MIB, where=["forward", "f1"])
        heap.alloc(at, 20 * MIB, where=["forward", "f5"])
        heap.free(3000, 400 * MIB, where=["backward", "f1"])
        heap.alloc(3500, 100 * MIB, where=["backward", "f1"])
        heap.free(3500, 100 * MIB, where="zero_grad")
        at += 20
    trace = heap.trace()
    (plain,) = leaks.analyze(trace, Context())
    (finding,) = leaks.analyze(named(trace, lambda label: "memory.0.states" if label else ""), Context())
    assert plain.code == finding.code == "MD301"
    assert "memory.0.states at " in finding.title
    assert "memory.0.states at " in finding.evidence[0].where
    assert "memory" not in plain.title


def test_steps_of_a_window_are_counted_from_its_first(heap):
    heap.segment(0, 4000 * MIB)
    for _ in range(3):
        heap.alloc(0, 400 * MIB, where=["forward", "f1"])
        heap.free(0, 400 * MIB, where=["backward", "f1"])
        heap.alloc(500, 100 * MIB, where=["backward", "f1"])
        heap.free(500, 100 * MIB, where="zero_grad")
    (device,) = heap.trace().devices
    later = replace(
        device, events=device.events.replace(step=np.where(device.events.step >= 0, device.events.step + 100_000, -1))
    )
    assert leaks._num_ends(later) == leaks._num_ends(device) <= 3


@pytest.mark.parametrize("name", ["cpu-2.13.0-recorded", "cuda-2.13.0-recorded", "npu-2.13.0-recorded"])
def test_a_recording_tells_modules_names_and_what_they_rest_on(goldens, name):
    trace = load(goldens / name / "snapshot.pickle")
    report = build_report(trace)
    (device,) = report.devices
    modules = {module.name: module for module in device.by_module}
    assert {"blocks.*.up", "blocks.*.down", "embed", "head"} <= set(modules)
    assert modules["embed"].bytes >= 3 * 512 * 64 * 4  # its weight and its two optimizer states
    assert sum(module.bytes for module in device.by_module) <= sum(device.by_category.values())
    assert any("blocks.*.act" in called for site in device.top_sites for called in site.tensor_names)
    assert report.source.bases == {
        **dict.fromkeys(("phase", "step", "category"), "marks"),
        "lifetime": "marks+earlier_steps",
    }
    (of_peak,) = [finding for finding in peak.analyze(trace, Context()) if finding.code in ("MD101", "MD103")]
    assert any(" called " in item.what for item in of_peak.evidence)
