"""Databases of the Ascend profilers are read, and malicious databases are refused."""

import sqlite3

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.sqlite_file import open_database
from memdiag.trace import schema

NS = 1_736_410_576_000_000_000
A, FREED, SAMPLE = schema.ALLOC, schema.FREE_COMPLETED, schema.UNKNOWN
OP_MEMORY = (
    "CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, "
    "activeReleaseTime INTEGER, duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER, "
    "allocationTotalReserved INTEGER, allocationTotalActive INTEGER, releaseTotalAllocated INTEGER, "
    "releaseTotalReserved INTEGER, releaseTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER)"
)
RECORD = (
    "CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER, "
    "totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER)"
)
STRINGS = "CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)"
MODULES = "CREATE TABLE NPU_MODULE_MEM (moduleId INTEGER, timestampNs INTEGER, totalReserved NUMERIC, deviceId INTEGER)"
CALLS = (
    "CREATE TABLE NPU_OP_MEM (operatorName INTEGER, addr INTEGER, type INTEGER, size INTEGER, timestampNs INTEGER, "
    "globalTid INTEGER, totalAllocate NUMERIC, totalReserve NUMERIC, component INTEGER, deviceId INTEGER)"
)


def database(path, *statements, **tables):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
        for table, rows in tables.items():
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)  # noqa: S608
    connection.close()
    return path


def test_operators_records_steps_and_settings(tmp_path):
    file = database(
        tmp_path / "ascend_pytorch_profiler_0.db",
        OP_MEMORY,
        RECORD,
        STRINGS,
        "CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER)",
        "CREATE TABLE META_DATA (name TEXT, value TEXT)",
        STRING_IDS=[(1, "PTA"), (2, "aten::mm"), (3, "PTA+GE"), (4, "GE")],
        OP_MEMORY=[(2, 512, NS + 1000, NS + 3000, NS + 2900, 2000, 1900, 1024, 4096, 1024, 512, 4096, 512, 7, 1)],
        MEMORY_RECORD=[
            (1, NS, 512, 4096, 512, 7, 1),
            (3, NS, 9, 9, 9, 7, 1),
            (4, NS, 9, 1 << 20, None, None, 1),
            (1, "soon", 1, 1, 1, 1, 1),
        ],
        STEP_TIME=[(5, NS, NS + 9000), (6, None, NS)],
        META_DATA=[("ENV_VARIABLES", '{"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}')],
    )
    trace = load(file)
    device = trace.devices[0]
    assert (trace.format, device.device) == ("ascend-db", 1)
    assert device.events.action.tolist() == [SAMPLE, A, FREED]
    assert device.usage.allocated.tolist() == [512, 1024, 512]
    assert trace.stacks.label(0) == "aten::mm"
    assert trace.settings == {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
    assert trace.strings == ("ProfilerStep#5",)
    assert trace.annotations.time_us.tolist() == [NS // 1000, NS // 1000 + 9]
    notes = {note.code: note.text for note in trace.notes}
    assert "1 row" in notes["MD916"]
    assert "1.00 MiB held by GE" in notes["MD918"]


def test_calls_of_the_graph_engine(tmp_path):
    file = database(
        tmp_path / "msprof_0.db",
        CALLS,
        STRINGS,
        "CREATE TABLE ENUM_MEMORY (id INTEGER PRIMARY KEY, name TEXT)",
        STRING_IDS=[(1, "GE"), (2, "Conv2D"), (3, "APP")],
        ENUM_MEMORY=[(5, "allocate"), (6, "release")],
        NPU_OP_MEM=[
            (2, 4096, 5, 512, NS, 0, 512, 2048, 1, 0),
            (2, 4096, 6, 512, NS + 5000, 0, 0, 2048, 1, 0),
            (2, 8192, 5, 64, NS, 0, 1, 1, 3, 0),
            (2, 4096, 9, 512, NS, 0, 512, 2048, 1, 0),
        ],
    )
    trace = load(file)
    assert trace.devices[0].events.action.tolist() == [A, FREED]
    assert trace.devices[0].usage.allocated.tolist() == [512, 0]
    notes = {note.code: note.text for note in trace.notes}
    assert "shown: GE; ignored: APP" in notes["MD918"]
    assert "1 row" in notes["MD916"]


def test_modules_alone(tmp_path):
    file = database(
        tmp_path / "x.db",
        MODULES,
        "CREATE TABLE ENUM_MODULE (id INTEGER PRIMARY KEY, name TEXT)",
        ENUM_MODULE=[(1, "APP")],
        NPU_MODULE_MEM=[(1, NS, 4096, 0), (2, NS, 1, 0)],
    )
    assert load(file).devices[0].usage.reserved.tolist() == [4097]


def test_reading_leaves_nothing_behind(tmp_path):
    file = database(
        tmp_path / "x.db",
        "PRAGMA journal_mode=WAL",
        RECORD,
        STRINGS,
        STRING_IDS=[(1, "PTA")],
        MEMORY_RECORD=[(1, NS, 1, 1, 1, 1, 0)],
    )
    before = file.read_bytes()
    load(file)
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE TABLE TASK (startNs INTEGER)"], "no table with memory events"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)"], "export of Nsight Systems"),
        # A view with the name of the table would execute the query in its definition.
        (
            ["CREATE VIEW MEMORY_RECORD AS SELECT 1 AS component, randomblob(1000000000) AS timestamp"],
            "no table with memory events",
        ),
        (["CREATE VIRTUAL TABLE MEMORY_RECORD USING fts5(component, timestamp)"], "no table with memory events"),
        # A generated column does not count as a column of the table.
        (
            [
                "CREATE TABLE MEMORY_RECORD (component, timestamp AS (zeroblob(99999999)))",
                "INSERT INTO MEMORY_RECORD VALUES (1)",
            ],
            "no",
        ),
        ([MODULES, "INSERT INTO NPU_MODULE_MEM VALUES (1, 'x', 2, 3)"], "convert"),
        ([MODULES, "INSERT INTO NPU_MODULE_MEM VALUES (1, 1, 2, 99999)"], "device"),
    ],
)
def test_what_is_refused(tmp_path, statements, reason):
    with pytest.raises(RefusedFile, match=reason):
        load(database(tmp_path / "x.db", *statements))


def test_damaged_and_cut_databases_are_refused(tmp_path):
    rows = [(1, NS + i, i, i, i, 1, 0) for i in range(2000)]
    good = database(tmp_path / "x.db", RECORD, STRINGS, STRING_IDS=[(1, "PTA")], MEMORY_RECORD=rows).read_bytes()
    for name, content in (("cut", good[:5000]), ("magic", good[:16]), ("zero", good[:4096] + bytes(len(good) - 4096))):
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(RefusedFile):
            load(file)


def test_work_is_bounded(tmp_path):
    file = database(tmp_path / "x.db", "CREATE TABLE t (a INTEGER)", t=[(1,)])
    with open_database(file) as opened:
        with pytest.raises(sqlite3.DatabaseError):  # the connection allows plain reads only
            opened._connection.execute("SELECT count(*) FROM t").fetchall()
        opened._connection.set_authorizer(None)
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            opened._connection.execute(endless).fetchall()


def test_compressed_databases_are_refused(tmp_path):
    import gzip

    file = tmp_path / "x.db.gz"
    file.write_bytes(gzip.compress(database(tmp_path / "x.db", RECORD).read_bytes()))
    with pytest.raises(RefusedFile, match="decompressed first"):
        load(file)
