"""Results far larger than the inputs of a function are reported if the function then makes something small of them."""

from __future__ import annotations

import pytest

from memdiag.analyzers import large_results
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from tests.training import MAIN, MIB, SILENT, Frame, Training

TORCH = "/env/lib/python3.11/site-packages/torch/"
SEARCH = (Frame("/app/search.py", 5, "search"), MAIN)
POINTS, LARGE, SMALL = 4 * MIB, 512 * MIB, 8 * MIB


def searches(
    *,
    points=POINTS,
    results=(LARGE, LARGE),
    small=SMALL,
    where=SEARCH,
    beside=0,
    parameters=0,
    keeps=False,
    fails=False,
):
    """Returns three searches: differences of all pairs, their squares, and the sums.

    Args:
        points, small: Bytes of the input and of the sums; 0: no sums.
        results: Bytes of the large results.
        where: Their call stack.
        beside: Bytes of a tensor of another function that is live at the same time.
        parameters: Bytes of a parameter.
        keeps: Whether the large results stay.
        fails: Whether memory runs out in the last search.
    """
    program = Training(layers=1, size=parameters)
    if parameters:
        program.initialise()
    if points:
        program.alloc(points, (MAIN,), "unknown")
    for number in range(3):
        other = program.alloc(beside, (Frame("/app/train.py", 50, "other"), MAIN), "unknown") if beside else None
        made = [program.alloc(size, where, "unknown") for size in results]
        if fails and number == 2:
            program.fail(1 << 41, where)
            break
        sums = program.alloc(small, where, "unknown") if small else None
        for each in () if keeps else made:
            program.free(each)
        for each in (sums, other):
            if each is not None:
                program.free(each)
        for _ in range(large_results.SOON):
            program.passing(MIB, (MAIN,))
    return program.trace()


def found(**options):
    return list(large_results.analyze(searches(**options), Context()))


def test_the_saving_is_the_peak_without_the_large_results():
    (finding,) = found()
    assert finding.severity == "warning"
    assert finding.title.startswith(
        "search.py:5 search makes tensors of up to 512.00 MiB, 128 times as large as any data before: 1.00 GiB"
    )
    assert finding.saving.expected_bytes == 2 * LARGE
    values = {fact.what.key: fact.value for fact in finding.evidence}
    assert (values["large_results.before"], values["large_results.held"]) == (POINTS, 2 * LARGE)


@pytest.mark.parametrize(
    "options",
    [
        {"points": LARGE // large_results.RATIO + MIB},  # the input is large, too
        {"points": 0},  # no input: it makes data
        {"small": 0},  # nothing small comes out of it
        {"beside": LARGE // 4},  # others are as large: a network with large images
        {"results": (64 * MIB, 64 * MIB)},  # so little that it does not matter
        {"keeps": True},  # a cache
        {"parameters": LARGE // 4},  # a converted weight
        {"where": (Frame(TORCH + "nn/modules/conv.py", 500, "forward"), *SEARCH)},  # a layer
        {"where": SILENT},
    ],
)
def test_other_large_tensors_are_not_reported(options):
    assert not found(**options)


def test_operators_that_pytorch_writes_in_python_belong_to_their_caller():
    for file in ("functional.py", "_tensor.py"):
        (finding,) = found(where=(Frame(TORCH + file, 30, "operator"), *SEARCH))
        assert "search.py:5 search" in finding.title


def test_a_result_of_half_the_size_may_remain():
    (finding,) = found(small=LARGE // 3)  # differences in three dimensions, and distances
    assert finding.saving.expected_bytes == 2 * LARGE


def test_it_is_critical_after_a_failure_and_the_first_remedy():
    (finding,) = found(fails=True)
    assert finding.severity == "critical"
    assert build_report(searches()).verdict.code == "MD138"


PAGE_EXAMPLES = {"MD138": found}
