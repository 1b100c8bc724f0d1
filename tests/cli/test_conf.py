"""``memdiag conf`` reads settings in many forms, reports problems, and prints a corrected line."""

from __future__ import annotations

import io
import json
import sys

import pytest

from memdiag.cli.main import main
from memdiag.settings.environment import ALLOC_VARIABLES
from memdiag.settings.variables import VARIABLES


@pytest.fixture
def asked(capsys):
    """Runs the command with --json and returns its output."""

    def ask(*arguments: str) -> dict:
        status = main(["conf", "--json", *arguments])
        report = json.loads(capsys.readouterr().out)
        assert status == any(finding["severity"] == "critical" for finding in report["findings"])
        return report

    return ask


@pytest.fixture
def clean(monkeypatch):
    """Removes every variable that the command reads from the environment."""
    for name in (*ALLOC_VARIABLES, *(variable.name for variable in VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def codes(report: dict) -> set[str]:
    return {finding["code"] for finding in report["findings"]}


def of(report: dict, code: str) -> dict:
    return next(finding for finding in report["findings"] if finding["code"] == code)


# ----------------------------------------------------------------------------------------------------- one finding each


@pytest.mark.parametrize(
    ("arguments", "code", "corrected"),
    [
        (["expandable_segment:True"], "MD651", "expandable_segments:True"),
        (["max-split-size-mb:128"], "MD651", "max_split_size_mb:128"),
        (["throw_on_cudamalloc_oom:True", "--backend", "npu"], "MD651", "throw_on_npumalloc_oom:True"),
        (["large_segment_size_mb:40", "--torch", "2.6"], "MD651", ""),
        (["roundup_bypass_threshold_mb:64", "--torch", "2.6"], "MD651", ""),
        (["max_split_size_mb:16"], "MD652", "max_split_size_mb:20"),
        (["max_split_size_mb:20", "--torch", "2.6"], "MD652", "max_split_size_mb:21"),
        (["max_split_size_mb:big"], "MD652", ""),
        (["garbage_collection_threshold:80"], "MD652", "garbage_collection_threshold:0.8"),
        (["page_size:1G", "--backend", "npu"], "MD652", "page_size:1g"),
        (["max_split_size_mb:1GB"], "MD653", "max_split_size_mb:1024"),
        (["max_split_size_mb:-1"], "MD653", ""),
        (["max_split_size_mb=64"], "MD653", "max_split_size_mb:64"),
        (["max_split_size_mb:64;expandable_segments:False"], "MD653", "max_split_size_mb:64,expandable_segments:False"),
        (["max_split_size_mb:64,max_split_size_mb:128"], "MD653", "max_split_size_mb:128"),
        (["roundup_power2_divisions:[64:8,256:4,>:1]"], "MD653", "roundup_power2_divisions:[64:8,128:4,256:4,>:1]"),
        (["expandable_segments:True,max_split_size_mb:64", "--backend", "npu"], "MD654", "expandable_segments:True"),
        (
            ["expandable_segments:True,garbage_collection_threshold:0.6", "--torch-npu", "2.6"],
            "MD654",
            "expandable_segments:True",
        ),
        (
            ["expandable_segments:True,large_segment_size_mb:31"],
            "MD654",
            "expandable_segments:True,large_segment_size_mb:32",
        ),
        (
            ["expandable_segments:True,segment_size_mb:64", "--backend", "npu"],
            "MD655",
            "expandable_segments:True,large_segment_size_mb:64",
        ),
        (["expandable_segments:True,max_split_size_mb:64"], "MD654", "expandable_segments:True"),
        (["segment_size_mb:64", "--backend", "npu"], "MD656", ""),
        (["garbage_collection_threshold:0.8"], "MD656", None),
        (["expandable_segments:True", "--platform", "windows"], "MD656", ""),
        (["backend:cudaMallocAsync,max_split_size_mb:64"], "MD656", "backend:cudaMallocAsync"),
        (["expandable_segments:true"], "MD657", "expandable_segments:True"),
        (["expandable_segments:1"], "MD657", "expandable_segments:True"),
        (["expandable_segments:OFF"], "MD657", "expandable_segments:False"),
        (["expandable_segments:True", "--with", "sleep-mode"], "MD658", ""),
        (["expandable_segments:True", "--with", "ipc", "--torch", "2.4"], "MD658", ""),
        (["expandable_segments:True", "--with", "mempool", "--torch", "2.8"], "MD658", ""),
        (["open_memory_optimize:1,page_size:1g", "--backend", "npu", "--with", "mindspeed-pools"], "MD658", ""),
    ],
)
def test_a_finding_and_the_corrected_settings(asked, arguments, code, corrected):
    report = asked(*arguments)
    assert code in codes(report)
    assert report["corrected"] == corrected


@pytest.mark.parametrize(
    "arguments",
    [
        ["expandable_segments:True"],
        ["max_split_size_mb:128"],
        ["roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"],
        ["garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"],
        ["expandable_segments:True,page_size:1g", "--backend", "npu"],
        ["expandable_segments:True", "--with", "mempool", "--torch", "2.6", "--platform", "linux", "--backend", "npu"],
    ],
)
def test_nothing_is_said_of_what_is_right(asked, arguments):
    report = asked(*arguments)
    assert report["findings"] == []
    assert report["corrected"] is None
    assert report["command"] == ""


def test_a_version_decides(asked):
    ipc = ["expandable_segments:True", "--with", "ipc"]
    assert of(asked(*ipc, "--torch", "2.4"), "MD658")["severity"] == "critical"
    assert of(asked(*ipc, "--torch", "2.5.1+cu124"), "MD658")["severity"] == "info"
    older = asked("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "--torch", "2.6")
    assert "before torch 2.10" in of(older, "MD653")["evidence"][0]["what"]
    assert older["corrected"].endswith("1024:4,2048:8,4096:8,8192:8,16384:8,32768:8]")


def test_what_a_feature_forbids_goes_before_what_it_conflicts_with(asked):
    report = asked("--backend", "npu", "expandable_segments:True,max_split_size_mb:64", "--with", "sleep-mode")
    assert codes(report) >= {"MD654", "MD658"}
    assert report["corrected"] == "max_split_size_mb:64"


# -------------------------------------------------------------------------------------------------------- forms of text


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments:True",
        "'expandable_segments:True'",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        'export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"',
        "PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' python train.py --lr 1",
        'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
        'os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")',
        '$env:PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"',
        'PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"',
        '{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}',
    ],
)
def test_forms(asked, text):
    report = asked(text)
    assert report["text"] == "expandable_segments:True"
    assert [setting["key"] for setting in report["settings"]] == ["expandable_segments"]
    assert report["findings"] == []


def test_the_variable_names_the_backend(asked):
    assert asked("PYTORCH_NPU_ALLOC_CONF=expandable_segments:True")["backend"] == "npu"
    assert asked("PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:64")["backend"] == "hip"
    assert asked("page_size:1g")["backend"] == "npu"
    assert asked("max_split_size_mb:64")["backend"] == "cuda"


def test_what_the_shell_takes_away(asked):
    report = asked("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64, expandable_segments:False")
    assert "is lost" in of(report, "MD653")["title"]
    assert report["corrected"] == "max_split_size_mb:64,expandable_segments:False"
    titles = [
        item["title"]
        for item in asked("export PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[64:4,>:2]")["findings"]
    ]
    assert any("redirection" in title for title in titles)


def test_several_variables(asked):
    report = asked(
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64 PYTORCH_ALLOC_CONF=expandable_segments:True NCCL_BUFFSIZE=4M "
        "python t.py"
    )
    assert report["text"] == "max_split_size_mb:64"
    assert of(report, "MD658")["title"].startswith("PYTORCH_ALLOC_CONF has no effect")
    assert of(report, "MD652")["title"].startswith("NCCL_BUFFSIZE=4M")


def test_a_pipe(asked, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("expandable_segments:true\n"))
    assert codes(asked("-")) == {"MD657"}


# ---------------------------------------------------------------------------------------------------------- environment


@pytest.mark.usefixtures("clean")
def test_an_environment_without_settings(asked):
    report = asked("--env")
    assert report["text"] is None
    assert report["findings"] == []


def test_both_variables_are_an_error_on_npu(clean, asked):
    clean.setenv("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")
    clean.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert of(asked("--env"), "MD658")["severity"] == "critical"
    assert of(asked("--env", "--torch-npu", "2.8"), "MD658")["title"].endswith(
        "does not read PYTORCH_ALLOC_CONF on Ascend NPU"
    )


@pytest.mark.parametrize(("version", "read"), [("2.8", "cuda"), ("2.9", "general"), ("2.13", "cuda")])
def test_which_variable_is_read(clean, asked, version, read):
    clean.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    clean.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")
    assert (
        asked("--env", "--torch", version)["text"]
        == {"cuda": "max_split_size_mb:64", "general": "max_split_size_mb:128"}[read]
    )


@pytest.mark.parametrize(
    ("name", "value", "backend", "code"),
    [
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", "cuda", "MD658"),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", "0", "cuda", "MD655"),
        ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "1", "cuda", "MD658"),
        ("CUBLAS_WORKSPACE_CONFIG", "4096:8", "cuda", "MD652"),
        ("CUDA_LAUNCH_BLOCKING", "1", "cuda", "MD658"),
        ("NCCL_BUFFSIZE", "67108864", "cuda", "MD658"),
        ("PYTORCH_NPU_ALLOC_CONF", "page_size:1g", "cuda", "MD658"),
        ("MULTI_STREAM_MEMORY_REUSE", "0", "npu", "MD658"),
        ("MULTI_STREAM_MEMORY_REUSE", "4", "npu", "MD652"),
        ("TASK_QUEUE_ENABLE", "2", "npu", "MD658"),
        ("HCCL_BUFFSIZE", "1GB", "npu", "MD652"),
        ("OOM_SNAPSHOT_PATH", "/nonexistent/folder", "npu", "MD658"),
        ("MEMORY_FRAGMENTATION", "1", "npu", "MD658"),
    ],
)
def test_variables_beside_it(clean, asked, name, value, backend, code):
    clean.setenv(
        "PYTORCH_CUDA_ALLOC_CONF" if backend == "cuda" else "PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"
    )
    clean.setenv(name, value)
    assert code in codes(asked("--env", "--backend", backend))


def test_good_values_beside_it(clean, asked):
    for name, value in (
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("NCCL_CUMEM_ENABLE", "0"),
        ("NCCL_BUFFSIZE", "4194304"),
    ):
        clean.setenv(name, value)
    report = asked("--env")
    assert report["findings"] == []
    assert {item["name"] for item in report["related"]} == {
        "CUBLAS_WORKSPACE_CONFIG",
        "NCCL_CUMEM_ENABLE",
        "NCCL_BUFFSIZE",
    }


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_keys_of_the_output(asked):
    report = asked("max_split_size_mb:64MB", "--torch", "2.6")
    assert list(report) == [
        "schema_version",
        "backend",
        "torch_version",
        "checked_version",
        "variable",
        "text",
        "settings",
        "findings",
        "corrected",
        "command",
        "related",
    ]
    assert report["schema_version"] == 2
    assert report["torch_version"] == "2.6"
    assert list(report["settings"][0]) == ["key", "value", "meaning", "default", "range", "since"]
    assert report["command"] == "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"
    assert report["findings"][0]["fixes"][0]["change"] == report["command"]


def test_a_line_with_signs_of_the_shell_is_quoted(asked):
    assert asked("roundup_power2_divisions:[64:8,256:4,>:1]")["command"].endswith(
        "='roundup_power2_divisions:[64:8,128:4,256:4,>:1]'"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "title"),
    [
        (
            ["expandable_segments:True,max_split_size_mb:128"],
            "MD654",
            "max_split_size_mb:128 makes expandable segments reserve more memory",
        ),
        (
            ["PYTORCH_ALLOC_CONF=expandable_segments:True", "--torch", "2.6"],
            "MD658",
            "does not read PYTORCH_ALLOC_CONF on CUDA",
        ),
        (
            ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "--backend", "npu"],
            "MD658",
            "does not read PYTORCH_CUDA_ALLOC_CONF",
        ),
        (["PYTORCH_CUDA_ALOC_CONF=expandable_segments:True"], "MD651", "did you mean PYTORCH_CUDA_ALLOC_CONF?"),
        (["HCCL_BUFSIZE=64"], "MD651", "did you mean HCCL_BUFFSIZE?"),
        (["expandable_segments:True", "--torch", "9.9"], "MD658", "torch 9.9 is not known"),
        (["MEMORY_FRAGMENTATION=1", "--backend", "cuda"], "MD658", "MEMORY_FRAGMENTATION has no effect on CUDA"),
        (
            ["MEMORY_FRAGMENTATION=1 expandable_segments:True"],
            "MD658",
            "MEMORY_FRAGMENTATION=1 conflicts with expandable_segments:True",
        ),
    ],
)
def test_what_a_reader_of_the_settings_would_not_see(asked, arguments, code, title):
    assert any(finding["code"] == code and title in finding["title"] for finding in asked(*arguments)["findings"])


@pytest.mark.parametrize("value", ["1.5", "2", "100", "-1"])
def test_a_share_that_cannot_be_guessed_is_left_out(asked, value):
    report = asked(f"garbage_collection_threshold:{value}")
    assert of(report, "MD652")["severity"] == "critical"
    assert report["corrected"] == ""


@pytest.mark.parametrize("backend", ["cuda", "hip", "npu"])
def test_memory_fragmentation_is_explained_on_every_backend(asked, backend):
    related = asked("MEMORY_FRAGMENTATION=1 python train.py", "--backend", backend)["related"]
    assert [item["name"] for item in related] == ["MEMORY_FRAGMENTATION"]
    assert "MindSpeed" in related[0]["meaning"]
