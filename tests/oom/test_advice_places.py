"""Remedies take into account the engine, Windows, settings already made, and numbers that are not printed."""

from __future__ import annotations

import pytest

from memdiag.oom.advice import advise
from memdiag.oom.ledger import account
from memdiag.oom.read import read_text
from memdiag.oom.verdict import judge
from memdiag.results.oom import Judgement
from memdiag.units import GIB, MIB
from tests.oom.made import found
from tests.oom.single import commands

PIECES = {"requested": 1, "total": 24, "free": 0.2, "allocated": 14, "unallocated": 9}
FULL = {"requested": 1, "total": 24, "free": 0.2, "allocated": 23, "unallocated": 0.1}
TRAINING = ("gradients", "checkpoint(", "fully_shard", "train.py")


def told(message, judgement=None):
    """Returns the whole advice as one text, and the findings."""
    result = advise(message, judgement or judge(message))
    fixes = [fix for finding in result for fix in finding.fixes]
    return "\n".join(
        [finding.title for finding in result] + [f"{fix.title}\n{fix.change}\n{fix.caveat}" for fix in fixes]
    ), result


def fixes_of(message, judgement=None):
    return advise(message, judgement or judge(message))[0].fixes


@pytest.mark.parametrize(
    ("marks", "switches"),
    [
        (["engine:vllm"], ["--gpu-memory-utilization 0.86", "--max-num-seqs", "--tensor-parallel-size"]),
        (["engine:vllm", "stage:load"], ["--tensor-parallel-size", "--quantization", "--cpu-offload-gb"]),
        (
            ["engine:vllm", "stage:capture"],
            ["--gpu-memory-utilization 0.86", "cudagraph_capture_sizes", "--enforce-eager"],
        ),
        (["engine:sglang"], ["--mem-fraction-static 0.8", "--chunked-prefill-size"]),
        (
            ["engine:sglang", "stage:capture"],
            ["--mem-fraction-static 0.8", "--cuda-graph-max-bs", "--disable-cuda-graph"],
        ),
        (["engine:diffusers"], ["enable_model_cpu_offload"]),
        (["engine:comfyui"], ["--lowvram"]),
        (["engine:webui"], ["--medvram"]),
        (["engine:transformers"], ["max_new_tokens"]),
    ],
)
@pytest.mark.parametrize("verdict", ["capacity", "fragmentation", "limit", "workspace_or_comm"])
def test_engines_get_their_own_switches_and_no_advice_on_training(marks, switches, verdict):
    text, _ = told(found(marks=marks, **FULL), Judgement(verdict, "low"))
    assert not any(word in text for word in TRAINING)
    places = [text.find(switch) for switch in switches]
    assert -1 not in places
    assert places == sorted(places)


def test_the_record_command_contains_the_start_of_the_engine():
    text, _ = told(found(marks=["engine:vllm"], **FULL))
    assert "memdiag record -- vllm serve" in text
    assert "memdiag record -- python train.py" in told(found(**FULL))[0]


def test_frames_above_the_message_decide_the_first_remedy():
    trace = 'File "/x/vllm/v1/worker/gpu_model_runner.py", line 3, in load_model\n'
    numbers = (
        "GPU 0 has a total capacity of 24.00 GiB of which 100.00 MiB is free. Of the allocated memory 23.00 GiB is "
        "allocated by PyTorch."
    )
    (message,) = read_text(
        f"{trace}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. {numbers}"
    ).messages
    assert (message.framework, message.findings[0].fixes[0].change) == ("pytorch", "--tensor-parallel-size 2")


def test_a_request_that_is_not_printed_is_not_zero():
    message = found(process=21.6, allocated=13, unallocated=8, marks=["hint:expandable_segments"])
    text, result = told(message)
    assert result[0].title == "8.00 GiB is reserved but unallocated; the request's size is not printed"
    assert "0 B" not in text
    assert "MD708" not in [finding.code for finding in result]


@pytest.mark.parametrize("missing", ["requested", "total", "free"])
def test_a_hint_is_contradicted_by_printed_numbers_only(missing):
    sizes = {name: size for name, size in FULL.items() if name != missing}
    assert "MD708" not in [
        finding.code
        for finding in advise(found(marks=["hint:max_split_size_mb"], **sizes), Judgement("capacity", "low"))
    ]


def test_of_two_unnamed_processes_the_one_of_another_size_is_the_evidence():
    sizes = {"requested": 0.5, "total": 22, "free": 0.03, "allocated": 15.5, "unallocated": 0.02}
    message = found(processes=[[33, 6 * GIB], [39, round(15.9 * GIB)]], **sizes)
    judgement = judge(message)
    assert (
        "Process 39 (15.90 GiB) is probably this one, because its size matches the reserved memory."
        in judgement.reasons
    )
    assert advise(message, judgement)[0].title == "Other processes use 6.00 GiB of the device"
    assert "process 33" in [entry.what for entry in account(message)]


@pytest.mark.parametrize(
    ("sizes", "first"), [((410, 410, 412), "Give each rank"), ((410, 3000), "Use a smaller"), ((410,), "Use a smaller")]
)
def test_the_first_remedy_removes_contexts_of_other_ranks(sizes, first):
    others = [[100 + place, size * MIB] for place, size in enumerate(sizes)]
    message = found(process=23.2, other_processes=others, **(FULL | {"total": 25}))
    fix = fixes_of(message, Judgement("capacity", "medium"))[0]
    assert fix.title.startswith(first)
    assert not fix.title.startswith("Give") or "3 other processes use 410.00 MiB each" in fix.title
    assert not fix.title.startswith("Give") or "would have fitted" in fix.caveat


def test_the_first_remedy_for_an_unprinted_limit_changes_the_program():
    sizes = {"requested": 0.1, "total": 40, "free": 19, "allocated": 19.8, "unallocated": 0.15, "process": 20.5}
    message = found(**sizes)
    judgement = judge(message)
    assert judgement.verdict == "limit"
    assert "set_per_process_memory_fraction(1.0)" in fixes_of(message)[0].change
    assert "--gpu-memory-utilization" in fixes_of(found(marks=["engine:vllm"], **sizes))[0].change


def test_memory_held_outside_is_a_lower_bound_without_the_process_size():
    message = found("npu", requested=0.6, total=61, free=0.1, allocated=27, active=27, reserved=27.5)
    assert advise(message, Judgement("other_process", "medium"))[0].title.startswith(
        "At least 30.40 GiB of the device is in use outside"
    )


def test_the_upgrade_fix_includes_expandable_segments():
    by_kind = {fix.kind: fix for fix in fixes_of(found(marks=["generation:1.10"], **PIECES))}
    assert by_kind["version"].change.splitlines()[1] == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert fixes_of(found(marks=["generation:1.10"], **PIECES))[0].title == "Do not split blocks larger than 1,022 MiB"
    on_hip = next(fix for fix in fixes_of(found("hip", marks=["generation:1.10"], **PIECES)) if fix.kind == "version")
    assert "ROCm 7.0" in on_hip.title
    assert "PyTorch 2.1" not in on_hip.title


def test_windows_advice_has_neither_export_nor_expandable_segments():
    text, result = told(found(marks=["os:windows", "generation:2.2"], **PIECES))
    assert result[0].fixes[0].change == "set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:1022"
    assert "export " not in text
    assert "expandable_segments:True" not in text
    assert "_record_memory_history" in text
    others, _ = told(found(marks=["os:windows"], **FULL), Judgement("other_process", "low"))
    assert "set CUDA_VISIBLE_DEVICES=1" in others
    assert "$(" not in others


def test_host_memory_on_windows_advises_a_larger_page_file():
    (message,) = read_text(
        r"RuntimeError: [enforce fail at C:\cb\c10\core\impl\alloc_cpu.cpp:3] data. DefaultCPUAllocator: not enough "
        r"memory: "
        "you tried to allocate 9663676416 bytes."
    ).messages
    lines = [fix.change for fix in message.findings[0].fixes]
    assert "SystemPropertiesPerformance.exe" in lines
    assert any("num_workers=0" in line for line in lines)
    assert not any("while sleep" in line or "dmesg" in line for line in lines)


def test_private_pools_are_explained_and_graphs_are_the_remedy():
    sizes = {
        "requested": 0.5,
        "total": 80,
        "free": 0.1,
        "allocated": 70,
        "private_pool": 6.5,
        "unallocated": 1.3,
        "process": 79,
    }
    text, _ = told(found(**sizes))
    assert "private pools hold another 6.50 GiB of free memory" in text
    assert "CUDA graphs" in text
    assert "cudagraph_capture_sizes" in told(found(marks=["engine:vllm"], **sizes))[0]


def test_settings_that_could_serve_this_request_are_not_called_useless():
    message = found(requested=224 / 1024, total=24, free=0.11, allocated=23, unallocated=0.23)
    text, _ = told(message, Judgement("capacity", "medium"))
    assert "is missing" not in text
    assert "perhaps enough for this request, but hardly for the whole run" in text


def test_settings_already_made_are_not_advised():
    message = found(marks=["set:expandable_segments", "generation:2.2"], **PIECES)
    text, result = told(message)
    assert "expandable_segments:True" not in text
    assert "max_split_size_mb" not in text
    assert "is_expandable" in result[0].fixes[0].change


def test_pools_of_mindspeed_are_turned_off_for_expandable_segments():
    _, result = told(found("npu", marks=["set:lifetime_pools"], **PIECES))
    lines = [fix.change for fix in result[0].fixes]
    assert lines[0].endswith("expandable_segments:True  # and start without --memory-fragmentation")
    assert not any("--memory-fragmentation" in line or "expandable" in line for line in lines[1:])


def test_an_impossible_size_is_not_reported_as_a_lack_of_memory():
    (message,) = read_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."
    ).messages
    (finding,) = message.findings
    assert "enough memory is free" in finding.title
    assert not any("nvidia-smi" in fix.change or fix.kind == "record" for fix in finding.fixes)


def test_a_mac_gpu_that_refuses_every_allocation_is_reported():
    message = found("mps", requested=256 / GIB, allocated=0, other_alloc=0, limit=8)
    judgement = judge(message)
    assert "Metal refused 256 B, although no memory is in use and 8.00 GiB is allowed" in judgement.reasons[0]
    text, _ = told(message, judgement)
    assert 'torch.device("cpu")' in text
    assert "container" not in text


@pytest.mark.parametrize(("allocated", "verdict"), [(17.5, "limit"), (9, "unknown"), (18.2, "limit")])
def test_on_a_mac_the_limit_is_reached_by_whole_heaps(allocated, verdict):
    assert judge(found("mps", requested=70 / 1024, allocated=allocated, other_alloc=0, limit=18)).verdict == verdict


def test_a_breakdown_without_known_parts_is_empty():
    assert account(found("tpu", framework="xla", requested=19, total=15.5)) == ()


def test_a_block_above_the_limit_of_one_block_is_reported():
    message = found("vulkan", framework="llama.cpp", requested=5, limit=4)
    (finding, *_) = advise(message, Judgement("limit", "high"))
    assert finding.title == "One block of 5.00 GiB exceeds the largest size of a block (4.00 GiB)"


def test_a_library_that_holds_most_of_the_device_is_limited_instead_of_pytorch():
    text = (
        "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 1.50 MiB is "
        "free. Including non-PyTorch memory, this process has 23.90 GiB memory in use. Of the allocated memory {own} "
        "is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )
    little, much = commands(text.format(own="1.00 GiB")), commands(text.format(own="20.00 GiB"))
    assert little.startswith("export XLA_PYTHON_CLIENT_PREALLOCATE=false")
    assert "set_per_process_memory_fraction" not in little
    assert "XLA_PYTHON" not in much


def test_an_option_of_megatron_is_not_for_other_programs():
    full = (
        "RuntimeError: NPU out of memory. Tried to allocate 400.00 MiB (NPU 2; 60.00 GiB total capacity; 59.00 GiB "
        "already allocated; 59.00 GiB current active; 20.00 MiB free; 59.40 GiB reserved in total by PyTorch)"
    )
    assert "--recompute-granularity" in commands(full)
    other = commands(f'  File "/srv/LLaMA-Factory/src/llamafactory/train/tuner.py", line 7, in run\n{full}')
    assert "cutoff_len" in other
    assert "--recompute-granularity" not in other


def test_much_unallocated_memory_is_fragmentation_even_without_the_request():
    assert judge(found(process=21, allocated=13, unallocated=8)).verdict == "fragmentation"
    assert judge(found(process=21, allocated=20, unallocated=1)).verdict == "unknown"
    assert judge(found(allocated=0.1, unallocated=200 * MIB / GIB)).verdict == "unknown"


def test_a_limit_reached_within_rounding_is_reported():
    message = found(requested=1.86, total=24, free=9, allocated=9, unallocated=1.135, limit=12)
    judgement = judge(message)
    assert (judgement.verdict, "within the rounding" in judgement.reasons[1]) == ("limit", True)
    title = advise(message, judgement)[0].title
    assert title == "A memory limit of 12.00 GiB was reached (the printed numbers are rounded)"


def test_unallocated_memory_is_no_second_finding_without_the_request():
    message = found(process=139, allocated=135, unallocated=0.3)
    assert [finding.code for finding in advise(message, judge(message))] == ["MD707"]


def test_memory_that_may_be_unallocated_is_not_attributed_to_others_alone():
    message = found(requested=3, total=16, free=0, allocated=11)
    (finding, *_) = advise(message, Judgement("other_process", "low"))
    assert finding.title.startswith(
        "5.00 GiB of the device is used by other processes, or unallocated in this process's pool"
    )


@pytest.mark.parametrize("marks", [[], ["engine:vllm"], ["engine:sglang", "stage:capture"], ["engine:webui"]])
def test_no_remedy_is_repeated(marks):
    message = found(
        marks=marks, requested=1, total=94.5, free=0.9, allocated=90, private_pool=5, unallocated=2, process=93
    )
    result = advise(message, Judgement("capacity", "medium", ("fragmentation",)))
    changes = [fix.change for finding in result for fix in finding.fixes if fix.change]
    assert len(result) > 1
    assert len(changes) == len(set(changes))


def test_zero_unallocated_bytes_are_called_nothing():
    text, _ = told(found(requested=1, total=24, free=0.2, allocated=23, unallocated=0))
    assert "no reserved memory is unallocated" in text
    assert "only 0 B" not in text


@pytest.mark.parametrize(
    ("stage", "first"), [("load", "from_pretrained"), ("checkpoint", 'map_location="cpu"'), ("optimizer", "AdamW8bit")]
)
def test_a_smaller_batch_is_not_the_first_remedy_for_permanent_tensors(stage, first):
    fixes = fixes_of(found(marks=[f"stage:{stage}"], **FULL))
    assert first in fixes[0].change
    batch = next(fix for fix in fixes if "smaller batch" in fix.title)
    assert "first thing to try" not in batch.applicability
    assert first in fixes_of(found(marks=[f"stage:{stage}"], requested=1), Judgement("unknown", "low"))[0].change


def test_an_error_without_numbers_while_loading_advises_map_location():
    text = (
        'Traceback (most recent call last):\n  File "run.py", line 3, in main\n    torch.load(path)\n'
        '  File "/x/torch/serialization.py", line 9, in _cuda_deserialize\n    return storage_type(size)\n'
        "RuntimeError: CUDA error: out of memory"
    )
    (message,) = read_text(text).messages
    assert any('map_location="cpu"' in fix.change for finding in message.findings for fix in finding.fixes)
