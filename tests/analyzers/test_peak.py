from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import peak
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.recording import Optimizer, ProcessMarks, RecordingEnd
from memdiag.trace.stacks import Stacks
from tests.analyzers.page_examples import golden
from tests.training import MAIN, MIB, SEGMENT, STEP, Training, forward


def trained(steps=3, size=16 * MIB, **options):
    program = Training(size=size)
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program


def findings(trace, **options):
    return {finding.code: finding for finding in peak.analyze(trace, Context(**options))}


def numbers(finding, words):
    return [(evidence.value, evidence.where) for evidence in finding.evidence if words in evidence.what]


def test_the_largest_kind_is_named_with_its_places_layers_and_phases():
    program = trained(scale=4.0)
    found = findings(program.trace())
    assert set(found) == {"MD101"}
    finding = found["MD101"]
    activations = (3 * 2 + 1) * 4 * program.size + 512  # three layers, the loss function, the loss
    assert numbers(finding, "live activations")[0][0] in (activations, activations - 4 * program.size)
    assert numbers(finding, "allocated at")[0] == (2 * 4 * program.size, "model.py:10 forward")
    assert numbers(finding, "allocated in layers of type") == [(3 * 2 * 4 * program.size, "linear.py forward")]
    assert numbers(finding, "allocated during phase")[0][1] == "forward"
    assert [fix.kind for fix in finding.fixes] == ["code", "code"]
    assert finding.severity == "info"
    assert finding.saving is None


def test_parameters_and_state_are_most_with_a_small_batch():
    finding = findings(trained(scale=0.25).trace())["MD102"]
    assert "parameters, gradients and optimizer state" in finding.title
    assert "Shard" in finding.fixes[0].title


def test_a_server_that_fills_the_device_is_no_problem_and_gets_its_own_flag():
    trace = trained(scale=0.25).trace(capacity_bytes=SEGMENT)
    device, number = trace.devices[0], schema.CATEGORIES.index
    category = device.tensors.category.copy()
    category[category == number("gradient")] = number("parameter")
    category[category == number("optimizer_state")] = number("kv_cache")
    tensors = device.tensors.replace(category=category)
    served = replace(device, tensors=tensors)
    finding = findings(replace(trace, devices=(served,)))["MD102"]
    assert (finding.severity, [fix.change for fix in finding.fixes]) == ("info", ["--tensor-parallel-size 2"])


def in_file(trace, frame_name, filename):
    """Returns the trace with another file of the frames with such a name."""
    old = trace.stacks
    frames = [frame._replace(filename=filename) if frame.name == frame_name else frame for frame in old.frames]
    return replace(trace, stacks=Stacks(frames, old.offsets, old.frame_ids, old.own))


def test_activations_of_compiled_code_get_the_setting_of_the_compiler():
    trace = trained(scale=4.0).trace()
    ways = {fix.change: fix.title for fix in findings(trace)["MD101"].fixes}
    compiled = findings(in_file(trace, "forward", "/cache/torchinductor_user/ab/kernels.py"))["MD101"].fixes
    assert "torch._functorch.config.activation_memory_budget" in compiled[0].change
    assert {fix.change: fix.title for fix in compiled[1:]} == ways


def test_gradients_of_samples_are_added_up_in_parts_and_not_sharded():
    trace = trained(scale=0.25).trace()
    device, number = trace.devices[0], schema.CATEGORIES.index
    category = device.tensors.category.copy()
    category[np.isin(category, [number("optimizer_state"), number("activation")])] = number("gradient")
    parameters = np.flatnonzero(category == number("parameter"))
    category[parameters[1:]] = number("gradient")
    trace = replace(trace, devices=(replace(device, tensors=device.tensors.replace(category=category)),))
    assert "Shard" in findings(trace)["MD102"].fixes[0].title
    finding = findings(in_file(trace, "forward", "/lib/torch/_functorch/vmap.py"))["MD102"]
    assert [fix.change[:15] for fix in finding.fixes] == ["for part in bat"]
    finding = findings(in_file(trace, "forward", "/lib/opacus/grad_sample/linear.py"))["MD102"]
    assert [fix.change[:23] for fix in finding.fixes] == ["with BatchMemoryManager"]


def test_what_is_left_out_where_nothing_is_known():
    assert findings(trained().trace(stacks=False)) == {}
    empty = Training().trace()
    assert findings(empty) == {}


def test_a_peak_is_a_warning_where_memory_ran_out():
    program = trained()
    assert findings(program.trace())["MD102"].severity == "info"
    full = program.trace(capacity_bytes=SEGMENT)  # the segment fills the device
    assert findings(full)["MD102"].severity == "warning"
    program.fail(1 << 41)
    assert findings(program.trace())["MD102"].severity == "warning"


def test_temporaries_of_the_optimizer_step():
    program = trained(steps=2, scale=0.25)
    optimize = program._optimize

    def foreach():
        optimize()
        several = [program.alloc(program.size * 3, STEP, "temporary") for _ in range(4)]
        for one in several:
            program.free(one)

    program._optimize = foreach
    program.step(scale=0.25)
    finding = findings(program.trace())["MD104"]
    assert finding.severity == "warning"
    assert numbers(finding, "temporary tensors of the optimizer step")[0][0] == 12 * program.size
    outside = numbers(finding, "outside of optimizer steps")[0][0]
    assert outside < numbers(finding, "all live tensors at that moment")[0][0] - 12 * program.size + program.size * 6


def test_an_optimizer_without_a_fused_kernel_is_updated_one_by_one():
    trace = full_optimizer_step().trace()
    stacks = trace.stacks
    frames = [frame._replace(filename=frame.filename.replace("adamw.py", "rmsprop.py")) for frame in stacks.frames]
    other = replace(trace, stacks=Stacks(frames, stacks.offsets, stacks.frame_ids))
    assert "torch.optim.AdamW(model.parameters(), fused=True)" in findings(trace)["MD104"].fixes[0].change
    (fix,) = findings(other)["MD104"].fixes
    assert fix.change == "optimizer = torch.optim.RMSprop(model.parameters(), foreach=False)"


@pytest.mark.parametrize("file", ["/pytorch_optimizer/optimizer/shampoo.py", "/torch/optim/_muon.py", "/mine.py"])
def test_advice_for_an_optimizer_without_fused_and_foreach_names_neither(file):
    trace = full_optimizer_step().trace()
    stacks = trace.stacks
    frames = [
        frame._replace(filename=file if "adamw.py" in frame.filename else frame.filename) for frame in stacks.frames
    ]
    for wrapper, is_other in (("/torch/optim/optimizer.py", True), ("/torch/_dynamo/eval_frame.py", False)):
        frames[stacks.frame_ids[-1]] = frames[0]._replace(filename=wrapper)
        other = replace(trace, stacks=Stacks(frames, stacks.offsets, stacks.frame_ids))
        changes = [fix.change for fix in findings(other)["MD104"].fixes]
        assert (changes == [""]) == is_other


def full_optimizer_step():
    program = trained(steps=2, scale=0.25)
    program.now += 1
    program.phase = "optimizer"
    for _ in range(4):
        program.alloc(program.size * 3, STEP, "temporary")
    program.fail(1 << 41, STEP)
    return program


def test_an_optimizer_step_that_ran_out_of_memory_is_told_by_its_temporaries():
    program = full_optimizer_step()
    finding = findings(program.trace())["MD104"]
    assert finding.severity == "critical"
    assert finding.title.endswith("when memory ran out")
    assert numbers(finding, "temporary tensors of the optimizer step")[0][0] == 12 * program.size
    [(left, _)] = numbers(finding, "allocated peak without")
    assert left == max(
        numbers(finding, "outside of optimizer steps")[0][0],
        numbers(finding, "all live tensors at that moment")[0][0] - 12 * program.size,
    )


@pytest.mark.parametrize(("settings", "is_told"), [(set(), True), ({"momentum"}, False)])
def test_states_that_an_unfinished_step_clones_are_no_temporaries(settings, is_told):
    trace = full_optimizer_step().trace()
    momentum = Optimizer("SGD", 1 << 40, 0, frozenset(settings))
    marks = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", optimizers=(momentum,)))
    found = findings(replace(trace, recorded=marks))
    assert ("MD104" in found) == is_told
    if is_told:
        assert "torch.optim.SGD(model.parameters(), fused=True)" in found["MD104"].fixes[0].change


def test_temporaries_that_hardly_raise_the_peak_are_not_reported():
    assert "MD104" not in findings(trained(scale=0.25).trace())
    assert "MD104" not in findings(trained(scale=4.0).trace())


def test_the_moment_can_be_chosen():
    program = trained(scale=4.0)
    first = findings(program.trace(), at=2)["MD102"]
    assert "live at event 2" in first.title
    assert first.fixes
    assert len(first.fixes) == 1  # there is no optimizer state yet


def test_of_every_golden_the_parts_are_no_more_than_the_whole(golden):
    for finding in peak.analyze(load(golden / "snapshot.pickle"), Context()):
        if finding.code in ("MD101", "MD102", "MD103"):
            live = numbers(finding, "live")[0][0]
            assert sum(value for value, _ in numbers(finding, "of it") if value) >= 0
            kinds = [e.value for e in finding.evidence[1:] if e.what.startswith("of it") and "before" not in e.what][:4]
            assert sum(kinds) <= live
            assert 0 < finding.weight_bytes <= live


def test_inference_speaks_of_parameters_only(shared):
    trace = load(shared / "data/snapshots/CognitoBlocks__BlockZero__cuda_snapshot.pickle")
    finding = findings(trace)["MD102"]
    assert finding.title.endswith("live in the snapshot is parameters")
    assert numbers(finding, "allocated at")[0][1] == "evaluator.py:37 load_model_from_path"


@pytest.mark.parametrize(("per_forward", "is_output"), [(1, True), (3, False)])
def test_outputs_that_an_evaluation_collects_are_moved_to_the_host(per_forward, is_output):
    program = trained()
    for _ in range(6):
        program.phase = "forward"
        for _ in range(per_forward):
            program.alloc(program.size * 8, forward(2), "activation")
        program.phase = "outside"
        program.passing(512, (MAIN,))
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([schema.PHASES.index(name) for name in program.phases], np.int8)
    trace = replace(trace, devices=(replace(device, events=device.events.replace(phase=phase)),))
    changes = [fix.change for fix in findings(trace)["MD101"].fixes]
    assert (changes == ["outputs.append(output.detach().cpu())"]) == is_output


@pytest.mark.parametrize("name", ["MD101", "MD102", "MD103", "MD104"])
def test_codes(name):
    assert name in peak.CODES


def _training(**options):
    """Runs three steps of a small model that fill the device."""
    return peak.analyze(trained(**options).trace(capacity_bytes=SEGMENT), Context())


PAGE_EXAMPLES = {
    "MD101": lambda: _training(scale=4.0),
    "MD102": lambda: _training(scale=0.25),
    "MD103": lambda: golden("cuda-2.13.0-leak"),
    "MD104": lambda: peak.analyze(full_optimizer_step().trace(), Context()),
}
