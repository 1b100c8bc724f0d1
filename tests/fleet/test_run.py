"""Python code can diagnose a fleet as ``memdiag fleet`` does."""

from __future__ import annotations

from pathlib import Path

from memdiag.fleet.engines import FLEET_ENGINES
from memdiag.fleet.files import find
from memdiag.fleet.run import FleetListener, FleetOptions, conditions_met, diagnose

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


class Heard(FleetListener):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_a_broken_file_is_a_condition_and_notes_are_heard_and_repeated(tmp_path, capsys):
    (tmp_path / "rank0.pkl").write_bytes(EXAMPLE.read_bytes())
    (tmp_path / "rank1.pkl").write_bytes(b"no trace")
    files, _ = find([str(tmp_path)])
    heard = Heard()
    report = diagnose(files, FLEET_ENGINES["local"], FleetOptions(workers=1), notes=["a note"], listener=heard)
    assert [row.rank for row in report.ranks] == [0]
    assert conditions_met(report) == ["unreadable"]
    assert heard.said == ["a note"]
    assert report.notes[0] == "a note"
    assert capsys.readouterr() == ("", "")
