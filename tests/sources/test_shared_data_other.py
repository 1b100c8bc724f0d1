"""Every real file of other tools opens in the expected format or is refused, and its numbers match a second
computation.
"""

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load

MIB = 1 << 20
NO_MEMORY = "without memory events"
PICTURE = "contains only a picture"
NO_FORMAT = "not a memory trace in any format"
NO_LIST = "no list of events"

INSIGHT = "Ascend__msinsight__"
TABLES = f"{INSIGHT}test__data__pytorch__text__{{}}_ascend_pt__ASCEND_PROFILER_OUTPUT__{{}}"
RANKS = ("level0__rank0", "level0__rank1", "level1__rank0", "level2__rank0")
# File: format, events, tensors.
OPENED = {
    **{
        TABLES.format(rank, table): ("ascend-csv", 256, 127)
        for rank in RANKS
        for table in ("memory_record.csv", "operator_memory.csv")
    },
    **{
        TABLES.format(rank, "npu_module_mem.csv"): ("ascend-csv", 14 if rank.startswith("level1") else 13, 0)
        for rank in RANKS
    },
    **{
        f"{INSIGHT}test__data__pytorch__db__{rank}_ascend_pt__ASCEND_PROFILER_OUTPUT__"
        f"ascend_pytorch_profiler_{rank[-1]}.db": (
            "ascend-db",
            256,
            127,
        )
        for rank in RANKS
    },
    f"{INSIGHT}server__src__test__test_data__full_db__msprof_0.db": ("ascend-db", 492, 246),
    f"{INSIGHT}server__src__test__test_data__memscope__host_pinned__memscope_dump_20260527062213.db": (
        "msmemscope-db",
        7,
        6,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__memory_record.csv": (
        "ascend-csv",
        3,
        0,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__operator_memory.csv": (
        "ascend-csv",
        3,
        0,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__npu_module_mem.csv": (
        "ascend-csv",
        10,
        0,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__memory_record.csv": (
        "ascend-csv",
        6206,
        3103,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__operator_memory.csv": (
        "ascend-csv",
        6206,
        3103,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__npu_module_mem.csv": ("ascend-csv", 45, 0),
    "Ascend__msmemscope__example__compare__baseline.csv": ("msmemscope-csv", 32, 18),
    "Ascend__msmemscope__test__smoke__testfile__csvfile__memscope_dump_20250428113810.csv": (
        "msmemscope-csv",
        268,
        251,
    ),
    "cappadokes__idealloc__benchmarks__iopddl__G_1.csv": ("lifespans-csv", 1632, 816),
    "cappadokes__idealloc__benchmarks__iopddl__Y_1.csv": ("lifespans-csv", 124_370, 62_185),
    "cappadokes__idealloc__benchmarks__somas_tensors__resnet50.csv": ("lifespans-csv", 2084, 1042),
    **{
        f"google__minimalloc__benchmarks__challenging__{name}.1048576.csv": ("lifespans-csv", 2 * rows, rows)
        for name, rows in zip("ABCDEFG", (154, 170, 203, 213, 215, 296, 308), strict=True)
    },
    "google__minimalloc__benchmarks__examples__input.12.csv": ("lifespans-csv", 10, 5),
    "facebookresearch__HolisticTraceAnalysis__tests__data__memory_analysis__memory_timeline.raw.gz": (
        "memory-timeline",
        7335,
        3990,
    ),
    **{
        f"tonghuikang__optimizer-memory-profiles__profiling__{run}__profile.raw.json.gz": (
            "memory-timeline",
            events,
            tensors,
        )
        for run, events, tensors in (
            ("local_cpu_sgd", 16_701, 8512),
            ("modal_cpu_sgd", 24_963, 12_643),
            ("modal_gpu_adam_gradacc", 13_061, 6934),
            ("modal_gpu_sgd", 12_256, 6290),
            ("modal_gpu_sgd_momentum", 12_417, 6451),
        )
    },
    "pytorch__kineto__tb_plugin__samples__resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz": (
        "chrome-trace",
        12_838,
        6420,
    ),
    "pytorch__kineto__tb_plugin__samples__resnet50_num_workers_4__worker0.1623212756351.pt.trace.json.gz": (
        "chrome-trace",
        10_980,
        5490,
    ),
}
REFUSED = {
    (
        f"{INSIGHT}test__data__pytorch__text__level2__rank0_ascend_pt__ASCEND_PROFILER_OUTPUT__trace_view.json"
    ): "Ascend trace_view",
    "Ascend__msprof-analyze__test__ut__advisor__advisor_backend__timeline_advice__trace_view.json": "Ascend trace_view",
    "Da1sypetals__tomi__snapshots__allocations.json": NO_LIST,
    "Maphsge4__select_n__traces__linear_stack_2023_11_08.21.26.55.html": PICTURE,
    "tonghuikang__optimizer-memory-profiles__profiling__modal_gpu_sgd__profile.html": PICTURE,
    (
        "facebookresearch__HolisticTraceAnalysis__tests__data__amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    ): NO_MEMORY,
    (
        "facebookresearch__HolisticTraceAnalysis__tests__data__mtia_inference_trace__mtia_inference_rank_0.json.gz"
    ): NO_MEMORY,
    "facebookresearch__HolisticTraceAnalysis__tests__data__ns_resolution_trace__"
    "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": NO_MEMORY,
}
RUN = "vm_13890_20261121014323644_ascend_pt"
PROFILE_OPENED = {
    "mt.json": ("memory-timeline", 92, 0),
    f"{RUN}/ASCEND_PROFILER_OUTPUT/memory_record.csv": ("ascend-csv", 71, 36),
    f"{RUN}/ASCEND_PROFILER_OUTPUT/operator_memory.csv": ("ascend-csv", 71, 36),
    f"{RUN}/FRAMEWORK/torch.memory_usage": ("ascend-memory-usage", 71, 36),
}
PROFILE_REFUSED = {
    f"{RUN}/ASCEND_PROFILER_OUTPUT/analyse.done": "is empty",
    f"{RUN}/ASCEND_PROFILER_OUTPUT/operator_details.csv": "times of operators",
    f"{RUN}/ASCEND_PROFILER_OUTPUT/trace_view.json": "Ascend trace_view",
    **{
        f"{RUN}/FRAMEWORK/torch.{name}": NO_FORMAT
        for name in ("op_mark", "op_range", "param_tensor_info", "python_tracer_func", "python_tracer_hash")
    },
    f"{RUN}/profiler_info.json": NO_LIST,
    f"{RUN}/profiler_metadata.json": NO_LIST,
}


def check_opened(file, expected):
    trace = load(file)
    assert (trace.format, trace.num_events, trace.num_tensors) == expected
    assert trace.notes
    for device in trace.devices:
        for name in ("reserved", "allocated", "active", "requested"):
            assert (device.usage[name] >= -1).all()
        assert "double_free" not in device.anomalies


def check_refused(file, reason):
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert reason in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize("name", OPENED)
def test_opened(other, name):
    check_opened(other / name, OPENED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(other, name):
    check_refused(other / name, REFUSED[name])


@pytest.mark.parametrize("name", PROFILE_OPENED)
def test_profile_opened(profile, name):
    check_opened(profile / name, PROFILE_OPENED[name])


@pytest.mark.parametrize("name", PROFILE_REFUSED)
def test_profile_refused(profile, name):
    check_refused(profile / name, PROFILE_REFUSED[name])


def test_no_file_is_forgotten(other, profile):
    def names(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    assert names(other) == OPENED.keys() | REFUSED.keys()
    assert names(profile) == PROFILE_OPENED.keys() | PROFILE_REFUSED.keys()
