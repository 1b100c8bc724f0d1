"""CSV tables of the Ascend profiler are read as a pair or alone, in every column layout; other tables are refused."""

import json
import zipfile

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.ascend_csv import read, sniff
from memdiag.trace import schema
from memdiag.units import MIB

OPERATORS = (
    "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
    "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
    "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type"
)
RECORDS = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type"
T = 1_736_405_443_000_000  # us
A, REQUESTED, FREED, SAMPLE = schema.ALLOC, schema.FREE_REQUESTED, schema.FREE_COMPLETED, schema.UNKNOWN


def write(path, *lines, end="\r\n"):
    path.write_bytes((end.join(lines) + end).encode())
    return path


def operator(
    name="aten::mm",
    size="512.5",
    born=None,
    dies=None,
    gone=None,
    at_birth=("", "", ""),
    at_death=("", "", ""),
    device="NPU:0",
):
    times = ["" if time is None else f"{T + time:.3f}\t" for time in (born, dies, gone)]
    return ",".join([name, size, *times, "", "", *at_birth, *at_death, "7", device])


def record(component, time, allocated, reserved, active="", device="NPU:0"):
    return f"{component},{T + time:.3f}\t,{allocated},{reserved},{active},7,{device}"


def codes(trace):
    return {note.code for note in trace.notes}


def said(trace, code):
    return next(note.text for note in trace.notes if note.code == code)


def test_operators_alone(tmp_path):
    file = write(
        tmp_path / "operator_memory.csv",
        OPERATORS,
        operator("aten::mm", "512.5", 10, 30, 29.5, ("10.5", "20", "10.5"), ("10", "20", "10")),
        operator("aten::add", "0.5", 20, None, None, ("11", "20", "11")),
        operator("cann::Conv", "1024", 12, 13, None, ("1", "70", "")),
    )
    trace = load(file)
    device = trace.devices[0]
    assert (trace.format, trace.backend, trace.complete_from_start) == ("ascend-csv", "npu", False)
    assert device.events.action.tolist() == [A, A, FREED]
    assert device.events.size.tolist() == [524_800, 512, 524_800]
    assert device.events.time_us.tolist() == [T + 10, T + 20, T + 29]
    assert device.events.stream.tolist() == [7, 7, 7]
    assert device.usage.allocated.tolist() == [11_010_048, 11 * MIB, 10 * MIB]
    assert device.usage.reserved.tolist() == [20 * MIB] * 3
    assert device.usage.requested.tolist() == [-1] * 3
    assert [trace.stacks.label(s) for s in device.tensors.stack.tolist()] == ["aten::mm", "aten::add"]
    assert {"MD910", "MD911", "MD913", "MD914", "MD917"} <= codes(trace)
    assert "1 tensor of GE" in said(trace, "MD918")


def test_a_free_that_waits_for_a_stream_is_two_events(tmp_path):
    file = write(
        tmp_path / "operator_memory.csv",
        OPERATORS,
        operator("aten::mm", "1", 10, 20, 30, ("1", "2", "1"), ("0", "2", "1")),
    )
    device = read(file).devices[0]
    assert device.events.action.tolist() == [A, REQUESTED, FREED]
    assert device.usage.active.tolist() == [MIB, MIB, -1]
    assert device.tensors.free_requested_at.tolist() == [1]


def test_both_halves_whichever_is_given(tmp_path):
    write(
        tmp_path / "operator_memory.csv",
        OPERATORS,
        operator("aten::mm", "1024", 10, 20, None, ("", "", ""), ("", "", "")),
        operator("aten::bmm", "6144", 11, 12, None, ("6", "6", "6"), ("0", "6", "0")),
    )
    write(
        tmp_path / "memory_record.csv",
        RECORDS,
        record("APP", 1, "", "99"),
        record("PTA", 5, "4", "20", "4"),
        record("PTA+GE", 5, "4", "20", "4"),
        record("PTA", 10, "5", "20", "5"),
        record("WORKSPACE", 11, "6", "6", "6"),
        record("WORKSPACE", 12, "0", "6", "0"),
        record("GE", 13, "50", "74"),
        record("PTA", 15, "5", "20", "5"),
        record("PTA", 20, "4", "20", "4"),
        record("PTA", 21, "2", "20", "2"),
    )
    first, second = load(tmp_path / "operator_memory.csv"), load(tmp_path / "memory_record.csv")
    device = first.devices[0]
    # An unchanged total is omitted; a total at the time of an event belongs to that event.
    assert device.events.action.tolist() == [SAMPLE, A, FREED, SAMPLE]
    assert device.usage.allocated.tolist() == [4 * MIB, 5 * MIB, 4 * MIB, 2 * MIB]
    for name in device.events:
        assert device.events[name].tolist() == second.devices[0].events[name].tolist()
    assert "99.00 MiB held by the whole process" in said(first, "MD918")
    assert "74.00 MiB held by GE" in said(first, "MD918")
    assert "6.00 MiB held by WORKSPACE" in said(first, "MD918")


def test_records_alone_are_curves(tmp_path):
    trace = load(
        write(
            tmp_path / "memory_record.csv",
            RECORDS,
            record("PTA", 5, "4", "20", "4"),
            record("PTA", 6, "4", "20", "4"),
            end="\n",
        )
    )
    assert trace.num_events == 2
    assert trace.num_tensors == 0
    assert "MD915" in codes(trace)


def test_the_other_half_may_be_damaged(tmp_path):
    write(tmp_path / "memory_record.csv", RECORDS, record("PTA", 5, "4", "20", "4"))
    (tmp_path / "operator_memory.csv").write_bytes(OPERATORS.encode() + b"\n\xff\xfe")
    trace = load(tmp_path / "memory_record.csv")
    assert "operator_memory.csv" in said(trace, "MD916")


def test_old_releases_have_fewer_columns_and_blank_names(tmp_path):
    header = (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Allocation Total Allocated(MB),Allocation "
        "Total Reserved(MB),Release Total Allocated(MB),Release Total Reserved(MB),Device Type"
    )
    file = write(
        tmp_path / "operator_memory.csv",
        header,
        f"aten::mm,4,{T}.5,{T + 9},8.5,1,2,0.5,2,NPU:3",
        f",-64,,{T + 4},,,,0.25,2,NPU:3",
        f"aten::mm,,{T},{T + 9},8.5,1,2,0.5,2,NPU:3",
        "aten::mm,4,,,,,,,,NPU:3",
        f"aten::mm,four,{T}.5,{T + 9},8.5,1,2,0.5,2,NPU:3",
        "aten::mm,4",
        end="\n",
    )
    trace = load(file)
    device = trace.devices[0]
    assert device.device == 3
    # A negative size is the free of a tensor from before the trace, which was live until then.
    assert device.events.action.tolist() == [A, REQUESTED, FREED, FREED]
    assert device.tensors.requested_bytes.tolist() == [65_536, 4096]
    assert device.usage.active.max() == -1
    assert "4 rows" in said(trace, "MD916")


def test_msprof_counts_in_kb_and_gives_no_end(tmp_path):
    header = (
        "Device_id,Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(KB),Allocation Total "
        "Reserved(KB),Release Total Allocated(KB),Release Total Reserved(KB),Device"
    )
    file = write(tmp_path / "operator_memory_20240101.csv", header, f"2,trans_0,4,{T},9,8,64,4,64,NPU:2", end="\n")
    write(
        tmp_path / "memory_record_20240101.csv",
        "Device_id,Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB),Device",
        f"2,GE,{T},8,64,NPU:2",
        f"2,GE,{T + 9},4,64,NPU:2",
        end="\n",
    )
    trace = load(file)
    device = trace.devices[0]
    assert device.device == 2
    assert device.events.action.tolist() == [A, FREED]
    assert device.usage.allocated.tolist() == [8192, 4096]
    assert "the file contains no memory of PyTorch's allocator" in said(trace, "MD918")


def test_modules_of_the_driver_are_a_curve(tmp_path):
    file = write(
        tmp_path / "npu_module_mem.csv",
        "Device_id,Component,Timestamp(us),Total Reserved(MB),Device",
        f"0,APP,{T}.1\t,10.0,NPU:0",
        f"0,HCCL,{T}.1\t,2.0,NPU:0",
        f"0,APP,{T + 20}.1\t,30.0,NPU:0",
        f"0,HCCL,{T + 40}.1\t,-0.0009765625,NPU:0",
    )
    trace = load(file)
    assert trace.devices[0].usage.reserved.tolist() == [12 * MIB, 32 * MIB, 30 * MIB]
    assert trace.devices[0].usage.allocated.tolist() == [-1] * 3
    assert "APP 30.00 MiB, HCCL 2.00 MiB" in said(trace, "MD913")


def test_memory_of_the_process(tmp_path):
    file = write(
        tmp_path / "npu_mem_1.csv",
        "Device_id,event,ddr(KB),hbm(KB),memory(KB),timestamp(us)",
        f"0,app,0,64,64,{T}",
        f"0,Device,0,99,99,{T}",
    )
    assert load(file).devices[0].usage.reserved.tolist() == [65_536]


def test_settings_and_version_lie_beside_the_tables(tmp_path):
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    (tmp_path / "profiler_info.json").write_text(json.dumps({"torch_npu_version": "2.6.0"}))
    (tmp_path / "profiler_metadata.json").write_text(
        json.dumps({"ENV_VARIABLES": {"PYTORCH_NPU_ALLOC_CONF": "a:b", "PATH": "x"}})
    )
    trace = load(write(folder / "memory_record.csv", RECORDS, record("PTA", 5, "4", "20", "4")))
    assert trace.torch_version == "2.6.0"
    assert trace.settings == {"PYTORCH_NPU_ALLOC_CONF": "a:b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"Name,Input Shapes,Call Stack,Host Self Duration(us)\n", "times of operators"),
        (b"moduleName,curMemSize(MB),memPeakSize(MB)\n", "at one moment"),
        (b"Step,Computing,Free\n", "times of steps"),
        (OPERATORS.encode() + b"\n", "no memory events"),
        (RECORDS.encode() + b"\nPTA,\xff\n", "not UTF-8"),
        (RECORDS.encode() + b"\nPTA," + b'"' + b"x" * 200_000 + b"\n", "field larger"),
        (RECORDS.encode() + b"\nPTA,soon,1,1\n", "no memory events"),
        (b"Component,Timestamp(us),Total Reserved(MB),Device\nAPP,1e999,1,NPU:0\n", "infinity"),
    ],
)
def test_what_is_refused(tmp_path, content, reason):
    file = tmp_path / "table.csv"
    file.write_bytes(content)
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert reason in refusal.value.message
    assert "profile_memory=True" in refusal.value.hint


def test_sniff():
    assert sniff((OPERATORS + "\r\n").encode())
    assert sniff(b"\xef\xbb\xbf" + RECORDS.encode())
    assert not sniff(b"id,lower,upper,size\n")
    assert not sniff(b"\xff\xfea\x00")


def test_the_trace_beside_tells_lines_and_steps(tmp_path):
    file = write(
        tmp_path / "operator_memory.csv",
        OPERATORS,
        operator("aten::mm", "512", 10, 30),
        operator("aten::mm", "512", 50, 60),
    )
    calls = [
        {"ph": "X", "name": "ProfilerStep#3", "ts": str(T), "dur": 40},
        {
            "ph": "X",
            "name": "aten::mm",
            "ts": str(T + 9),
            "dur": "5.5",
            "args": {"Call stack": "m.py(7): forward;\r\nt.py(3): main"},
        },
        {"ph": "X", "name": "aten::mm", "ts": "soon", "dur": 1, "args": {"Call stack": "m.py(8): nowhere"}},
    ]
    (tmp_path / "trace_view.json").write_text(json.dumps(calls))
    trace = load(file)
    device = trace.devices[0]
    lines = [[str(frame) for frame in trace.stacks[stack]] for stack in device.tensors.stack.tolist()]
    assert lines == [["aten::mm", "m.py:7 forward", "t.py:3 main"], ["aten::mm"]]
    assert "MD911" not in codes(trace)
    assert device.tensors.step_alloc.tolist()[0] == 0


def test_a_damaged_trace_beside_costs_the_lines_only(tmp_path):
    file = write(tmp_path / "operator_memory.csv", OPERATORS, operator("aten::mm", "512", 10, 30))
    (tmp_path / "trace_view.json").write_text('[{"ph": "X", "na')
    trace = load(file)
    assert len(trace.devices[0].tensors.stack) == 1
    assert "trace_view.json" in said(trace, "MD911")


def saved_by_a_spreadsheet(path, digits):
    """Writes operators whose times a spreadsheet has rounded to some digits."""

    def cell(time):
        return f"{T + time:.{digits - 1}E}" if digits else f"{T + time}"

    rows = [
        f"aten::mm,1024,{cell(10)},{cell(12)},{cell(12)},,,1,2,1,0,2,0,7,NPU:0",
        f"aten::add,1024,{cell(31)},{cell(58)},{cell(58)},,,1,2,1,0,2,0,7,NPU:0",
    ]
    return write(path, OPERATORS, *rows)


def test_times_that_a_spreadsheet_rounds_a_little_keep_the_order_within_a_tensor(tmp_path):
    trace = load(saved_by_a_spreadsheet(tmp_path / "operator_memory.csv", 15))
    assert trace.devices[0].events.action.tolist() == [A, FREED, A, FREED]
    assert "to 10 us" in said(trace, "MD909")
    assert not {"MD901", "MD902"} & codes(trace)
    assert "MD909" not in codes(load(saved_by_a_spreadsheet(tmp_path / "operator_memory.csv", 0)))


def test_times_without_an_order_are_refused(tmp_path):
    with pytest.raises(RefusedFile, match="rounded to 10000 s"):
        load(saved_by_a_spreadsheet(tmp_path / "operator_memory.csv", 6))


def test_a_workbook_is_refused_by_name(tmp_path):
    path = tmp_path / "operator_memory.xlsx"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", "")
        book.writestr("xl/workbook.xml", "")
    with pytest.raises(RefusedFile, match="workbook"):
        load(path)
