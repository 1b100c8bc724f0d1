"""Pictures are reproducible to the byte, contain text as text, never as markup, and have no overlapping texts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
import zlib
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.render import renderer
from memdiag.render.plot import style
from memdiag.render.plot.page import changes, picture, sized
from memdiag.render.plot.style import PlotLook, drawable, parse_size, parse_width, scale_for, settings
from memdiag.runs.simulated_runs import simulate_runs, subject_of
from memdiag.text import speaking
from memdiag.units import GIB, MIB
from memdiag.views.plot_frame import Ask
from memdiag.views.plots import PLOT_DATA
from tests.analyzers.test_residue import turns

ROOT = Path(__file__).parents[3]
SMALL = PlotLook(dpi=40)


@pytest.fixture(scope="module")
def drawn_from():
    known = {}

    def data(kind, name="examples/gpt-train.pickle"):
        if (kind, name) not in known:
            trace = turns([411, 1160, 2500]) if kind == "card" else memdiag.load(ROOT / name)
            (device, *_) = trace.devices
            simulated = None
            if kind == "policies":
                subject = subject_of(trace, device)
                simulated = simulate_runs(subject, [subject.recorded])
            known[kind, name] = PLOT_DATA[kind](trace, device, Ask(200, simulated=simulated))
        return known[kind, name]

    return data


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_the_same_trace_gives_the_same_bytes(drawn_from, form):
    for kind in ("timeline", "map") if form == "png" else ("map",):
        first, second = (picture(renderer("plot", kind), drawn_from(kind), SMALL, form) for _ in range(2))
        assert first == second
        assert first[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


def test_the_machine_has_no_say(drawn_from):
    plain = picture(renderer("plot", "timeline"), drawn_from("timeline"), SMALL, "png")
    with mpl.rc_context({"lines.linewidth": 9, "axes.facecolor": "red", "font.size": 30, "axes.grid": True}):
        assert picture(renderer("plot", "timeline"), drawn_from("timeline"), SMALL, "png") == plain


def test_text_stays_text(drawn_from):
    data = drawn_from("timeline")
    svg = ET.fromstring(picture(renderer("plot", "timeline"), data, SMALL, "svg"))  # noqa: S314 - an own file
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Memory over the run", "step 0", "forward"} <= texts
    pdf = picture(renderer("plot", "timeline"), data, SMALL, "pdf")
    assert b"/CIDFontType2" in pdf  # a TrueType font, embedded
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert not re.search(rb"CreationDate|ModDate", pdf)


def svg_texts(data, kind):
    svg = ET.fromstring(picture(renderer("plot", kind), data, SMALL, "svg"))  # noqa: S314 - an own file
    return {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}


@pytest.mark.filterwarnings("error:Glyph")  # matplotlib draws a box for a character without a font
@pytest.mark.parametrize("kind", PLOT_DATA)
def test_a_picture_is_chinese_if_this_machine_has_a_font_for_it(drawn_from, kind):
    if len(style.fonts_for(style.CHINESE)) == 1:
        pytest.skip("there is no Chinese font on this machine")
    data = drawn_from(kind)
    with speaking("zh"):
        chinese = svg_texts(data, kind)
        assert picture(renderer("plot", kind), data, SMALL, "png")
    english = svg_texts(data, kind)
    kept = {text for text in chinese & english if re.search("[a-z]{3} ", text)}
    assert not {text for text in kept if "gpt-train" not in text}
    assert any(re.search("[\u4e00-\u9fff]", text) for text in chinese)
    assert not any(re.search("[\u4e00-\u9fff]", text) for text in english)


@pytest.mark.filterwarnings("error:Glyph")
def test_a_picture_is_english_without_a_chinese_font(drawn_from, monkeypatch):
    monkeypatch.setattr(style, "_MORE_FONTS", ())
    english = picture(renderer("plot", "timeline"), drawn_from("timeline"), SMALL, "svg")
    with speaking("zh"):
        trace = memdiag.load(ROOT / "examples" / "gpt-train.pickle")
        data = PLOT_DATA["timeline"](trace, trace.devices[0], Ask(200))
        assert picture(renderer("plot", "timeline"), data, SMALL, "svg") == english


def test_nothing_from_a_trace_is_markup(drawn_from):
    data = drawn_from("timeline")
    hostile = "$\\frac{<script>alert(1)</script>\x1b[31m\u202e\n]]>&amp;\ud800"
    data = replace(data, frame=replace(data.frame, facts=(hostile, "device 0"), notes=(hostile,)))
    svg = picture(renderer("plot", "timeline"), data, replace(SMALL, title=hostile), "svg")
    tree = ET.fromstring(svg)  # noqa: S314 - an own file
    assert not [element for element in tree.iter() if element.tag.endswith("script")]
    assert b"\x1b" not in svg
    assert "\u202e" not in svg.decode()
    for form in ("png", "pdf"):
        assert picture(renderer("plot", "timeline"), data, replace(SMALL, title=hostile), form)


def texts_of(page):
    """Returns every text of a picture with its bounding box in pixels."""
    renderer = page.figure.canvas.get_renderer()
    page.figure.draw_without_rendering()
    for text in page.figure.findobj(mpl.text.Text):
        if text.get_text().strip() and text.get_visible():
            # a text with a line to a point counts without the line
            yield text.get_text(), mpl.text.Text.get_window_extent(text, renderer)


SIZES = [(6, 5.2), (7, 5), (16, 9), None]
TRACES = {
    "timeline": [
        "examples/gpt-train.pickle",
        "tests/goldens/cuda-2.13.0-retries/snapshot.pickle",
        "tests/goldens/npu-2.13.0-oom/snapshot.pickle",
    ],
    "fragmentation": ["examples/gpt-train.pickle", "tests/goldens/cuda-2.13.0-oom/snapshot.pickle"],
    "lifetimes": ["examples/gpt-train.pickle"],
    "policies": ["tests/goldens/cuda-2.13.0-oom/snapshot.pickle"],
    "map": ["examples/gpt-train.pickle", "tests/goldens/cuda-2.13.0-pools/snapshot.pickle"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TRACES.items() for name in names])
def test_no_two_texts_in_one_place(drawn_from, kind, name):
    data = drawn_from(kind, name)
    for size in SIZES:
        look = PlotLook(size, 80)
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(settings(look.theme, ["DejaVu Sans"]))
            page = renderer("plot", kind)(data, look)
            boxes = list(texts_of(page))
            wide, high = page.figure.bbox.size
        for number, (text, box) in enumerate(boxes):
            # the number of the last tick may extend beyond the axis by half its width, but not beyond the page
            assert box.x0 >= -1, (size, text)
            assert box.x1 <= wide + 1, (size, text)
            assert box.y0 >= -1, (size, text)
            assert box.y1 <= high + 1, (size, text)
            for other, where in boxes[number + 1 :]:
                overlap = min(box.x1, where.x1) - max(box.x0, where.x0), min(box.y1, where.y1) - max(box.y0, where.y0)
                assert min(overlap) <= 2, (size, text, other, overlap)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TRACES.items() for name in names])
def test_one_column_of_a_paper_is_readable(drawn_from, kind, name):
    data = drawn_from(kind, name)
    for width in (3.3, 3.5):
        look = PlotLook(dpi=80, width=width)
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(settings(look.theme, ["DejaVu Sans"]))
            page = renderer("plot", kind)(data, sized(renderer("plot", kind), data, look))
            boxes = list(texts_of(page))
        assert page.width == width
        assert page.room >= page.wanted - 0.1, "the panels are as high as they should be"
        assert page.width - page.left - page.right > 0.65 * width, "and take most of the width"
        for number, (text, box) in enumerate(boxes):
            assert box.x0 >= -1, text
            assert box.x1 <= page.figure.bbox.size[0] + 1, text
            for other, where in boxes[number + 1 :]:
                overlap = min(box.x1, where.x1) - max(box.x0, where.x0), min(box.y1, where.y1) - max(box.y0, where.y0)
                assert min(overlap) <= 2, (width, text, other, overlap)
        sizes = [text.get_fontsize() for text in page.figure.findobj(mpl.text.Text) if text.get_text().strip()]
        assert 6.4 < min(sizes) <= max(sizes) <= 11, "printed as it is, nothing is too small to read"


def test_widths():
    assert parse_width("3.5") == parse_width("3.5in") == 3.5
    assert parse_width("88.9mm") == pytest.approx(3.5)
    for text in ("", "x", "1", "nan", "1000"):
        with pytest.raises(MemdiagError):
            parse_width(text)


def test_a_page_that_is_too_small_is_refused(drawn_from):
    with pytest.raises(MemdiagError, match="is too small for this picture") as raised:
        picture(renderer("plot", "fragmentation"), drawn_from("fragmentation"), replace(SMALL, size=(4.0, 3.0)), "png")
    fits = parse_size(re.search(r"--size (\S+)", raised.value.hint)[1])
    assert picture(renderer("plot", "fragmentation"), drawn_from("fragmentation"), replace(SMALL, size=fits), "png")


def test_curves_keep_what_changes():
    assert changes([0, 1, 2, 3, 9], [5, 5, 6, 6]) == [[0, 2, 9], [5, 6, 6]]
    assert changes([0, 1, 2, 9], [5, 5, 5], [0, 1, 1]) == [[0, 1, 9], [5, 5, 5], [0, 1, 1]]


@pytest.mark.parametrize("highest", [1, 700, 3 * MIB, 999 * MIB, GIB, 3 * GIB, 61 * GIB, 5000 * GIB])
def test_scales_have_a_few_round_ticks(highest):
    scale = scale_for(highest)
    ticks = highest / (scale.step * scale.unit_bytes)
    assert ticks <= 6
    assert ticks >= 2 or highest < 2
    assert scale.label(scale.step * scale.unit_bytes) == f"{scale.step:.10g}"


def test_sizes():
    assert parse_size("10x5.4") == (10.0, 5.4)
    assert parse_size("25.4 x 12.7 cm") == pytest.approx((10.0, 5.0))
    for text in ("10", "axb", "0x5", "1000x5", "10x-5", "nanxnan", "infx5"):
        with pytest.raises(MemdiagError):
            parse_size(text)


def test_characters_without_a_glyph_are_written_as_escapes():
    assert drawable("a\u4e2db", ["DejaVu Sans"]) == "a\\u4e2db"
    assert drawable("a\tb\u202e", ["DejaVu Sans"]) == "a\\tb\\u202e"


def test_an_embedded_font_is_really_there(drawn_from):
    pdf = picture(renderer("plot", "map"), drawn_from("map"), SMALL, "pdf")
    streams = [part for part in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL) if part[:1] == b"\x78"]
    assert any(zlib.decompressobj().decompress(part)[:4] == b"\x00\x01\x00\x00" for part in streams)
