"""Notes below the result of memdiag fix."""

from types import SimpleNamespace

import pytest

from memdiag.render.fix.terminal import _notes
from memdiag.results.fix import LossComparison


@pytest.mark.parametrize(("largest", "is_seed_named"), [(0.0, False), (1e-3, False), (0.4, True)])
def test_losses_that_differ_by_more_than_rounding_may_lack_a_seed(largest, is_seed_named):
    report = SimpleNamespace(losses=LossComparison(3, largest), times=None, calibration_error_bytes=0, outside_bytes=0)
    report.steps = report.written = report.chosen = ()
    assert any("manual_seed" in note.in_language("en") for note in _notes(report)) == is_seed_named
