"""The Python API checks settings as ``memdiag conf`` does."""

from __future__ import annotations

import json

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.render import renderer
from memdiag.settings.request import ConfRequest, read_features


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments:True,max_split_size_mb:16",
        "PYTORCH_NPU_ALLOC_CONF=base_addr_aligned_kb:0",
        "PYTORCH_CUDA_ALLOC_CONF=backend:native PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    ],
)
def test_the_report_equals_that_of_the_command(text, capsys):
    main(["conf", text, "--torch", "2.6", "--json"])
    assert renderer("conf", "json")(ConfRequest(torch="2.6").check_text(text)) == capsys.readouterr().out


def test_the_environment_is_given_by_the_caller():
    report = ConfRequest().check_environment({"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"})
    assert (report.backend, report.text) == ("npu", "expandable_segments:True")


def test_the_table_has_the_settings_of_one_version():
    keys = {key.key for backend in ConfRequest(torch="2.1").listing().backends for key in backend.keys}
    assert "max_split_size_mb" in keys
    assert "large_segment_size_mb" not in keys
    assert json.loads(renderer("conf", "list_json")(ConfRequest(backend="npu").listing()))["backends"][0]["keys"]


def test_an_invalid_request_is_an_error():
    with pytest.raises(MemdiagError, match="--torch-npu needs --backend npu"):
        ConfRequest(backend="cuda", torch_npu="2.6").check_text("x:1")
    with pytest.raises(MemdiagError, match="--with foo: memdiag does not know this feature"):
        read_features(["foo"])
