"""Call sites are matched across machines, after edits above and inside a function, and after renaming."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.compare.places import Known, match, same_files, shared_end
from memdiag.results.compare import CodePlace, SiteRow


def at(path, line, function):
    return CodePlace(f"{path.rsplit('/', 1)[-1]}:{line} {function}", path, line, function)


def lines_of(*places, more=()):
    lines: dict[str, set] = {}
    for place in places:
        lines.setdefault(place.path, set()).add((place.function, place.line))
    for path, function, line in more:
        lines.setdefault(path, set()).add((function, line))
    return {path: frozenset(found) for path, found in lines.items()}


def known(*places, more=()):
    return Known(places, lines_of(*places, more=more))


def test_a_file_on_another_machine_is_found_by_the_longest_end_that_its_path_shares():
    base = {"/home/ann/job/model/layers.py", "/home/ann/job/other/layers.py", "/home/ann/job/train.py"}
    other = {"C:\\work\\job\\model\\layers.py", "/srv/other/layers.py", "/srv/train.py", "/srv/new.py"}
    assert same_files(base, other) == {
        "C:\\work\\job\\model\\layers.py": "/home/ann/job/model/layers.py",
        "/srv/other/layers.py": "/home/ann/job/other/layers.py",
        "/srv/train.py": "/home/ann/job/train.py",
    }


def test_the_end_that_paths_share_is_told_of_the_first_file_that_lies_elsewhere():
    stays, goes = at("/a/x.py", 1, "f"), at("/home/ann/job/model/layers.py", 3, "f")
    gone = at("C:\\work\\job\\model\\layers.py", 3, "f")
    rows = [SiteRow((stays, stays), ("base", "same"), ()), SiteRow((goes, gone), ("base", "path"), ())]
    assert (shared_end(rows), shared_end(rows[:1])) == ("job/model/layers.py", "")


def test_a_file_that_is_there_under_its_own_path_is_no_other():
    assert same_files({"/a/x/train.py", "/b/train.py"}, {"/b/train.py"}) == {"/b/train.py": "/b/train.py"}


def test_equal_places_are_the_same_and_other_paths_are_said():
    base = known(at("/a/train.py", 38, "mlp"), at("/a/train.py", 50, "main"))
    assert match(base, known(at("/a/train.py", 50, "main"), at("/a/train.py", 38, "mlp"))) == [(1, "same"), (0, "same")]
    assert match(base, known(at("/b/train.py", 38, "mlp"))) == [(0, "path")]


def test_lines_that_moved_together_are_paired_in_their_order_although_one_is_equal_by_chance():
    base = known(at("/t.py", 38, "mlp"), at("/t.py", 40, "mlp"), more=[("/t.py", "main", n) for n in (60, 70)])
    other = known(at("/t.py", 40, "mlp"), at("/t.py", 42, "mlp"), more=[("/t.py", "main", n) for n in (62, 72)])
    assert match(base, other) == [(0, "moved"), (1, "moved")]


def test_in_a_file_that_was_not_edited_equal_lines_are_the_same_and_others_do_not_cross_them():
    more = [("/t.py", "main", n) for n in (60, 70)]
    base = known(at("/t.py", 38, "mlp"), at("/t.py", 50, "mlp"), more=more)
    other = known(at("/t.py", 50, "mlp"), at("/t.py", 61, "mlp"), more=more)
    assert match(base, other) == [(1, "same"), None]


def test_the_nearest_line_of_the_function_is_taken_and_a_new_one_stays_new():
    base = known(at("/t.py", 38, "mlp"), at("/t.py", 90, "mlp"))
    other = known(at("/t.py", 10, "mlp"), at("/t.py", 41, "mlp"), at("/t.py", 93, "mlp"), at("/t.py", 41, "other"))
    assert match(base, other) == [None, (0, "moved"), (1, "moved"), None]


def test_a_function_that_was_renamed_is_found_by_its_line_where_the_file_is_the_same():
    more = [("/t.py", "main", n) for n in (60, 70)]
    assert match(known(at("/t.py", 38, "mlp"), more=more), known(at("/t.py", 38, "feed_forward"), more=more)) == [
        (0, "renamed")
    ]
    assert match(known(at("/t.py", 38, "mlp")), known(at("/t.py", 38, "feed_forward"))) == [None]


def test_places_without_a_file_are_found_by_what_is_said_of_them():
    base = Known([CodePlace("(no call stack)"), CodePlace("(allocated before the recording began)")])
    assert match(base, Known([CodePlace("(allocated before the recording began)"), CodePlace("(else)")])) == [
        (1, "words"),
        None,
    ]


@pytest.mark.parametrize("count", [1, 700, 1500])
def test_every_line_of_the_shorter_list_finds_one(count):
    base = known(*(at("/t.py", 10 * n, "f") for n in range(count)))
    other = known(*(at("/t.py", 10 * n + 3, "f") for n in range(count)))
    assert match(base, other) == [(n, "moved") for n in range(count)]


PLACES = st.lists(
    st.builds(
        at, st.sampled_from(["/a/t.py", "/a/b/t.py", "/c/t.py", "/a/u.py"]), st.integers(1, 40), st.sampled_from("fgh")
    ),
    max_size=12,
    unique=True,
)


@given(PLACES, PLACES)
def test_a_place_is_found_once_at_most_in_its_file_and_order(ours, theirs):
    found = match(known(*ours), known(*theirs))
    pairs = [(ours[hit[0]], place, hit[1]) for hit, place in zip(found, theirs, strict=True) if hit is not None]
    assert len({before for before, _, _ in pairs}) == len(pairs)
    files = {(before.path, after.path) for before, after, _ in pairs}
    assert len({old for old, _ in files}) == len({new for _, new in files}) == len(files), "a file is one file"
    for before, after, how in pairs:
        assert before.path.rsplit("/", 1)[-1] == after.path.rsplit("/", 1)[-1]
        assert (how == "same") == (before == after)
        assert (before.function == after.function) != (how == "renamed")
    kept = [(before, after) for before, after, how in pairs if how != "renamed"]
    for path, function in {(after.path, after.function) for _, after in kept}:
        mine = sorted(
            (before.line, after.line) for before, after in kept if (after.path, after.function) == (path, function)
        )
        assert [line for _, line in mine] == sorted(line for _, line in mine), "lines do not cross"


@given(PLACES)
def test_a_trace_finds_all_its_places_in_itself(places):
    assert match(known(*places), known(*places)) == [(number, "same") for number in range(len(places))]
