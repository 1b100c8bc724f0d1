"""Dumps of msmemscope and msleaks give the same trace from csv files and from databases with the same rows."""

import sqlite3

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.msmemscope_csv import sniff
from memdiag.sources.msmemscope_rows import attributes_of
from memdiag.trace import schema
from memdiag.units import MIB

HEADER = (
    "ID",
    "Event",
    "Event Type",
    "Name",
    "Timestamp(ns)",
    "Process Id",
    "Thread Id",
    "Device Id",
    "Ptr",
    "Attr",
    "Call Stack(Python)",
    "Call Stack(C)",
)
NS = 1_764_753_083_000_000_000
BASE = 0x12C0_4140_0000
A, FREED, OPEN, CLOSE = schema.ALLOC, schema.FREE_COMPLETED, schema.SEGMENT_ALLOC, schema.SEGMENT_FREE


def row(
    number,
    event,
    kind,
    time,
    addr="N/A",
    attr="",
    device="0",
    name="N/A",
    python="",
    native="",
    process="9",
    thread="9",
):
    ptr = hex(addr) if isinstance(addr, int) else addr
    return (str(number), event, kind, name, str(NS + time), process, thread, device, ptr, attr, python, native)


def pta(number, event, time, addr, size, total, used, **more):
    return row(
        number,
        event,
        "PTA",
        time,
        addr,
        f"{{allocation_id:{number},addr:{hex(addr)},size:{size},total:{total},used:{used}}}",
        **more,
    )


def hal(number, event, time, addr, size, **more):
    return row(number, event, "HAL", time, addr, f"{{allocation_id:{number},addr:{hex(addr)},size:{size}}}", **more)


def csv_file(path, *rows, header=HEADER):
    def cell(text):
        return f'"{text}"' if "," in text or "\n" in text or '"' in text else text

    path.write_text("\n".join(",".join(map(cell, r)) for r in (header, *rows)) + "\n")
    return path


def db_file(path, *rows, table="memscope_dump"):
    with sqlite3.connect(path) as connection:
        columns = ", ".join(f'"{name}"' for name in HEADER)
        connection.execute(f"CREATE TABLE {table} ({columns})")
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(HEADER))})", rows)  # noqa: S608
    connection.close()
    return path


# The tracer writes the rows of a block together when it is freed, so the reader must sort by time.
COMPLETE = (
    pta(4, "MALLOC", 40, BASE + MIB, 512, 20 * MIB, MIB + 512),
    pta(6, "FREE", 60, BASE + MIB, 512, 20 * MIB, MIB),
    pta(3, "MALLOC", 30, BASE, MIB, 20 * MIB, MIB),
    pta(7, "FREE", 70, BASE, MIB, 20 * MIB, 0),
    hal(2, "MALLOC", 20, BASE, 20 * MIB),
    hal(8, "FREE", 80, BASE, 20 * MIB, device="N/A"),
    hal(1, "MALLOC", 10, BASE + 64 * MIB, 4096),
    row(5, "OOM_DETAIL", "OOM_TRIGGER", 50, attr="{func:x,req_size:99,flag:0}"),
)


@pytest.mark.parametrize("form", [csv_file, db_file])
def test_blocks_in_ranges_that_were_all_seen_have_segments(tmp_path, form):
    trace = load(form(tmp_path / "dump", *COMPLETE))
    device = trace.devices[0]
    assert trace.format == ("msmemscope-csv" if form is csv_file else "msmemscope-db")
    assert device.has_addresses
    assert device.events.action.tolist() == [OPEN, A, A, schema.OOM, FREED, FREED, CLOSE]
    assert device.events.time_us.tolist() == [NS // 1000] * 7
    assert device.usage.reserved.tolist() == [20 * MIB] * 6 + [0]
    assert device.usage.allocated.tolist() == [0, MIB, MIB + 512, MIB + 512, MIB, 0, 0]
    assert device.anomalies == {}
    codes = {note.code for note in trace.notes}
    assert "MD914" in codes
    assert not codes & {"MD910", "MD913"}


def test_without_the_first_ranges_there_are_totals_only(tmp_path):
    trace = load(csv_file(tmp_path / "dump.csv", *(r for r in COMPLETE if r[2] == "PTA")))
    device = trace.devices[0]
    assert not device.has_addresses
    assert device.usage.reserved.tolist() == [20 * MIB] * 4
    assert device.usage.allocated.tolist() == [MIB, MIB + 512, MIB, 0]
    trace = load(csv_file(tmp_path / "dump.csv", *COMPLETE, pta(9, "MALLOC", 90, 4096, 512, 20 * MIB, 512)))
    assert "1 block in ranges that were mapped before the trace began" in next(
        n.text for n in trace.notes if n.code == "MD913"
    )


def test_ranges_that_do_not_add_up_are_not_used(tmp_path):
    rows = [hal(1, "MALLOC", 10, BASE, 20 * MIB), pta(2, "MALLOC", 20, BASE, 512, 22 * MIB, 512)]
    trace = load(csv_file(tmp_path / "dump.csv", *rows))
    assert not trace.devices[0].has_addresses
    assert "the sum of the driver's ranges differs from the total of the allocator" in next(
        n.text for n in trace.notes if n.code == "MD913"
    )


def test_msleaks_wrote_microseconds_decimal_addresses_and_negative_frees(tmp_path):
    def old(number, event, kind, time, addr, size, extra, device="0"):
        attr = f"{{addr:{addr},size:{size},owner:,{extra}}}"
        return (str(number), event, kind, "N/A", str(NS // 1000 + time), "9", "9", device, str(addr), attr, "", "")

    rows = [
        old(1, "MALLOC", "HAL", 1, BASE, 2 * MIB, "MID:33"),
        old(2, "MALLOC", "PTA", 2, BASE, 512, f"total:{2 * MIB},used:512"),
        old(3, "FREE", "PTA", 3, BASE, -512, f"total:{2 * MIB},used:0"),
        old(4, "FREE", "HAL", 4, BASE, 2 * MIB, "MID:-1", device="N/A"),
        old(5, "MALLOC", "HAL", 5, 77, 64, "MID:3", device="host"),
    ]
    trace = load(csv_file(tmp_path / "leaks_dump_1.csv", *rows))
    device, host = trace.devices
    assert device.events.action.tolist() == [OPEN, A, FREED, CLOSE]
    assert device.events.time_us.tolist() == [NS // 1000 + t for t in (1, 2, 3, 4)]
    assert (host.device, host.events.size.tolist()) == (1, [64])
    assert "device 1 is the host" in next(n.text for n in trace.notes if n.code == "MD919")


def test_stacks_categories_operators_and_steps(tmp_path):
    python = "/x/msmemscope/python/msmemscope/hook.py(17): __torch_dispatch__\n/home/me/train.py(11): <module>\n"
    native = "/usr/lib/libhal.so(halMemAlloc+0x118) [0xf79b279760c8]\n"
    attr = "{allocation_id:1,addr:0x1000,size:512,total:2048,used:512,owner:PTA@weight}"
    rows = [
        row(1, "MSTX", "Range_start", 1, name='"step start"'),
        row(2, "OP_LAUNCH", "ATEN_START", 2, name="aten.mm"),
        row(3, "OP_LAUNCH", "ATEN_START", 3, name="aten.empty"),
        row(4, "MALLOC", "PTA", 4, 0x1000, attr, python=python, native=native),
        row(5, "MALLOC", "PTA", 5, 0x2000, "{addr:0x2000,size:512,total:2048,used:1024}"),
        row(6, "OP_LAUNCH", "ATEN_END", 6, name="aten.empty"),
        row(7, "MALLOC", "PTA", 7, 0x3000, "{addr:0x3000,size:512,total:2048,used:1536}"),
        row(8, "MALLOC", "PTA", 8, 0x4000, "{addr:0x4000,size:512,total:2048,used:2048}", thread="10"),
        row(9, "MSTX", "Range_end", 9),
        row(10, "MSTX", "Range_start", 2000, name='"step start"'),
    ]
    trace = load(csv_file(tmp_path / "dump.csv", *rows))
    tensors = trace.devices[0].tensors
    stacks = [[str(frame) for frame in trace.stacks[s]] for s in tensors.stack.tolist()]
    assert stacks == [
        ["/usr/lib/libhal.so(halMemAlloc+0x118)", "/home/me/train.py:11 <module>"],
        ["aten.empty", "aten.mm"],
        ["aten.mm"],
        [],
    ]
    assert trace.stacks.label(int(tensors.stack[0])) == "train.py:11 <module>"
    assert [schema.CATEGORIES[c] for c in tensors.category] == ["parameter", "unknown", "unknown", "unknown"]
    assert trace.strings == ("ProfilerStep#0", "ProfilerStep#1")
    assert trace.annotations.start.tolist() == [True, False, True, False]
    assert "MD912" in {note.code for note in trace.notes}


def test_one_process_and_one_pool_a_device(tmp_path):
    rows = [
        pta(1, "MALLOC", 1, 4096, 512, 2048, 512),
        pta(2, "MALLOC", 2, 8192, 512, 2048, 1024),
        pta(1, "MALLOC", 1, 4096, 512, 2048, 512, process="10"),
        row(3, "MALLOC", "ATB", 3, 4096, "{addr:0x1000,size:100}"),
        row(4, "FREE", "ATB", 4, 4096, "{addr:0x1000,size:100}"),
        row(5, "MALLOC", "PTA", 5, 4096, "{size:abc}"),
        row(6, "SNAPSHOT", "x", 6, attr="{total:65536,free:1}"),
        row(7, "MALLOC", "PTA", 7, 4096, "{addr:0x1000,size:1}", device="N/A"),
    ]
    trace = load(csv_file(tmp_path / "dump.csv", *rows))
    device = trace.devices[0]
    assert device.num_events == 2
    assert device.capacity_bytes == 65_536
    notes = {note.code: note.text for note in trace.notes}
    assert "process 9, one of 2" in notes["MD918"]
    assert "100 B of ATB" in notes["MD918"]
    assert "1 row" in notes["MD916"]


def test_attributes_as_text_and_as_json():
    assert attributes_of("{addr:0x1,size:-512,owner:PTA@aten}") == {"addr": "0x1", "size": "-512", "owner": "PTA@aten"}
    assert attributes_of('{"addr":"0x1", "size":"12"}') == {"addr": "0x1", "size": "12"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (",,,Base,Compare\nEvent,Name\n", "comparison of sums"),
        ("FuncInfo,StartTime(ns),EndTime(ns)\n", "Python functions"),
        (",".join(HEADER) + "\n", "no memory events"),
        (",".join(HEADER) + "\n1,MALLOC,PTA,x,later,1,1,0,N/A,,,\n", "no memory events"),
    ],
)
def test_what_is_refused(tmp_path, content, reason):
    file = tmp_path / "dump.csv"
    file.write_text(content)
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert reason in refusal.value.message
    assert "msmemscope" in refusal.value.hint


def test_the_table_may_stand_behind_the_head_of_the_database(tmp_path):
    file = tmp_path / "dump.db"
    with sqlite3.connect(file) as connection:
        for number in range(800):
            connection.execute(
                f"CREATE TABLE a{number} (some_rather_long_name_of_a_column_{number} INTEGER, and_one_more_of_them "
                "INTEGER)"
            )
    connection.close()
    db_file(file, *COMPLETE, table="leaks_dump")
    assert load(file).format == "msmemscope-db"


def test_a_database_without_the_columns_is_refused(tmp_path):
    file = tmp_path / "dump.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE memscope_dump (a)")
    connection.close()
    with pytest.raises(RefusedFile, match="no table of memory events"):
        load(file)


def test_sniff():
    assert sniff(",".join(HEADER).encode())
    assert not sniff(b"Component,Timestamp(us),Total Reserved(MB),Device")
