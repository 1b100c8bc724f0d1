"""Messages and a trace of the same run are explained from Python as the command does it."""

from __future__ import annotations

from memdiag.oom.inputs import OomInput
from memdiag.runs.explaining import explain

MESSAGE = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 8.00 GiB"


def test_texts_and_files_are_one_report(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("step 1\n" + MESSAGE.replace("1.50", "2.50") + "\n")
    found = explain([OomInput("text", None, MESSAGE), OomInput(str(log), log)])
    assert [message.fields["requested_bytes"] for message in found.messages] == [5 << 29, 3 << 29]
    assert found.sources == (str(log), "text")


def test_a_trace_alone_is_explained_by_its_failures(goldens):
    path = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    found = explain([], path)
    assert found.trace == str(path)
    assert [message.dialect for message in found.messages] == ["trace"]
    assert [message.program for message in found.messages] == ["PyTorch"]


def test_without_inputs_there_is_nothing_to_explain():
    assert explain([]).messages == ()
