"""Tables of memory in use: they are recognised, and are no failure."""

from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from memdiag.oom.tables import memory_tables
from memdiag.render import renderer

MIB, GIB = 1 << 20, 1 << 30
SUMMARY = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 2            |        cudaMalloc retries: 6         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  30720 MiB |  31744 MiB |    900 GiB |    870 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  45056 MiB |  46080 MiB |  61440 MiB |  16384 MiB |
"""
NVIDIA = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   32C    P0             65W /  400W |   78813MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                    0 |
| N/A   31C    P0             62W /  400W |       4MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      3911      C   python                                      40000MiB |
|    0   N/A  N/A      4022      C   /opt/conda/bin/python                       38790MiB |
+-----------------------------------------------------------------------------------------+
"""
NPU = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.2        46                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3400 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 93.2        46                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          10400/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 12345         | python                   | 57344                   |
+===========================+===============+====================================================+
"""
QUERY = """\
name, memory.total [MiB], memory.used [MiB], memory.free [MiB]
NVIDIA A100-SXM4-80GB, 81920 MiB, 78813 MiB, 2406 MiB
"""
DETAILS = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 16:00:00 2026
Attached GPUs                             : 1
GPU 00000000:07:00.0
    FB Memory Usage
        Total                             : 81920 MiB
        Reserved                          : 700 MiB
        Used                              : 78813 MiB
        Free                              : 2406 MiB
"""
ROCM = """\
============================ ROCm System Management Interface ============================
================================== Memory Usage (Bytes) ==================================
GPU[0]\t\t: VRAM Total Memory (B): 206141652992
GPU[0]\t\t: VRAM Total Used Memory (B): 204141652992
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""
AMD = """\
GPU: 0
    MEM_USAGE:
        TOTAL_VRAM: 196592 MB
        USED_VRAM: 190000 MB
        FREE_VRAM: 6592 MB
        TOTAL_VISIBLE_VRAM: 196592 MB
"""
XPU = """\
+-----------------------------+--------------------------------------------------------------------+
| Device ID                   | 0                                                                  |
+-----------------------------+--------------------------------------------------------------------+
| GPU Utilization (%)         | 0                                                                  |
| GPU Memory Used (MiB)       | 63000                                                              |
| GPU Memory Util (%)         | 96                                                                 |
"""
GPUSTAT = """\
node1  Mon Nov 30 16:00:00 2026  550.54.15
[0] NVIDIA A100-SXM4-80GB | 32°C,   0 % | 78813 / 81920 MB | me:python/3911(40000M) you:python/4022(38790M)
[1] NVIDIA A100-SXM4-80GB | 31°C,   0 % |     4 / 81920 MB |
"""
MESSAGE = "RuntimeError: CUDA error: out of memory"


@pytest.mark.parametrize(
    ("text", "program", "devices"),
    [
        (SUMMARY, "memory_summary", [("0", 30 * GIB, None)]),
        (SUMMARY + SUMMARY.replace("ID 0", "ID 1"), "memory_summary", [("0", 30 * GIB, None), ("1", 30 * GIB, None)]),
        (SUMMARY.replace("CUDA", "XPU"), "memory_summary", [("0", 30 * GIB, None)]),
        (NVIDIA, "nvidia-smi", [("0", 78813 * MIB, 80 * GIB), ("1", 4 * MIB, 80 * GIB)]),
        (QUERY, "nvidia-smi", [("0", 78813 * MIB, 80 * GIB)]),
        (DETAILS, "nvidia-smi -q", [("00000000:07:00.0", 78813 * MIB, 80 * GIB)]),
        (NPU, "npu-smi", [("0", 3400 * MIB, 64 * GIB), ("1", 10400 * MIB, 64 * GIB)]),
        (ROCM, "rocm-smi", [("0", 204141652992, 206141652992)]),
        ("==== ROCm System Management Interface ====\n0  46.0C  97%\n", "rocm-smi", [("", None, None)]),
        (AMD, "amd-smi", [("0", 190000 * MIB, 196592 * MIB)]),
        (XPU, "xpu-smi", [("0", 63000 * MIB, None)]),
        (GPUSTAT, "gpustat", [("0", 78813 * MIB, 80 * GIB), ("1", 4 * MIB, 80 * GIB)]),
    ],
)
def test_a_table_is_recognised_with_its_figures(text, program, devices):
    report = read_text(f"step 1\n{text}")
    assert report.messages == ()
    assert {table.program for table in report.tables} == {program}
    assert [(table.device, table.used_bytes, table.total_bytes) for table in report.tables] == devices
    for form in ("terminal", "md"):
        assert "which allocation" in renderer("oom", form)(report)


def test_the_summary_of_pytorch_tells_of_earlier_failures():
    (table,) = memory_tables(SUMMARY)
    assert (table.reserved_bytes, table.num_ooms) == (44 * GIB, 2)
    assert "2 failed allocations so far" in renderer("oom", "terminal")(read_text(SUMMARY))


@pytest.mark.parametrize("table", [SUMMARY, NVIDIA, NPU])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_message_without_sizes_is_shown_with_the_figures_of_a_table(table, is_before):
    report = read_text(f"{table}{MESSAGE}\n" if is_before else f"{MESSAGE}\n{table}")
    assert [message.judgement.verdict for message in report.messages] == ["unknown"]
    for form in ("terminal", "md"):
        said = " ".join(renderer("oom", form)(report).split())
        assert "may be from another moment" in said
        assert "device 0" in said


def test_a_message_with_sizes_needs_no_table():
    text = (
        "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is "
        "free."
    )
    assert len(read_text(f"{NVIDIA}{text}\n").messages) == 1
    assert read_text(f"{NVIDIA}{text}\n").tables == ()


def test_other_text_has_no_tables():
    assert memory_tables("nvidia-smi shows 3 MiB / 4 MiB | and 5 MB |\n") == []
