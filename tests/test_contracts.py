"""Every registered entry keeps its contract, and every finding code has a page. The tests find new entries."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from memdiag import registry
from memdiag.allocator.policies import POLICIES
from memdiag.diagnosis.remedies import ALLOCATOR_SETTINGS, REMEDIES
from memdiag.fix.remedies import PROGRAM_REMEDIES
from memdiag.fleet.engines import FLEET_ENGINES
from memdiag.oom.dialects import DIALECTS
from memdiag.oom.read import read_text
from memdiag.phantom.profiles import DEVICES
from memdiag.registry import ANALYZERS, SOURCES, Registry, members
from memdiag.render import FORMS, PICTURES, renderer
from memdiag.render.support.look import Look
from memdiag.serving.engines import ENGINES
from memdiag.text import catalogue
from memdiag.views.plots import PLOT_DATA

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "memdiag"
FINDINGS = ROOT / "docs" / "findings"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400
CODE = re.compile(r"MD[1-9][0-9]{2}\b")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def raised_codes() -> set[str]:
    """Returns the codes that are string literals in the package: Finding("MD201", …), Note("MD951", …), CODES = {…}."""
    strings = (
        node.value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {text for text in strings if CODE.fullmatch(text)}


REGISTRIES = {name: value for name, value in vars(registry).items() if isinstance(value, Registry)} | {
    "DIALECTS": DIALECTS,
    "ENGINES": ENGINES,
    "DEVICES": DEVICES,
    "POLICIES": POLICIES,
    "PLOT_DATA": PLOT_DATA,
    "FLEET_ENGINES": FLEET_ENGINES,
    "REMEDIES": REMEDIES,
    "ALLOCATOR_SETTINGS": ALLOCATOR_SETTINGS,
    "PROGRAM_REMEDIES": PROGRAM_REMEDIES,
}
ENTRIES = [(name, entry) for name, found in REGISTRIES.items() for entry in found.targets]
# Modules in a folder of entries that are not entries: code shared by several. FOLDERS_OF_MORE contain other modules
# too.
SHARED = {
    "ANALYZERS": {"report"},
    "LINT_RULES": set(),
    "DIALECTS": {"bfc", "host_memory", "parts"},
    "ENGINES": set(),
    "REMEDIES": {"model", "systems"},
    "PROGRAM_REMEDIES": set(),
}
FOLDERS_OF_MORE = {"ALLOCATOR_SETTINGS", "SOURCES", "EXPORTS", "PLOT_DATA", "FLEET_ENGINES", "DEVICES", "POLICIES"}


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_entry_can_be_imported_and_has_what_its_registry_asks_for(name, entry):
    found = REGISTRIES[name]
    assert [attribute for attribute in members(found.protocol) if not hasattr(found[entry], attribute)] == []


@pytest.mark.parametrize("name", SHARED)
def test_every_module_of_a_folder_of_entries_is_registered(name):
    registered = {target.partition(":")[0].rpartition(".")[2] for target in REGISTRIES[name].targets.values()}
    folder = ROOT / next(iter(REGISTRIES[name].targets.values())).replace(".", "/")
    modules = {path.stem for path in folder.parent.glob("*.py")} - {"__init__"}
    assert sorted(modules - registered - SHARED[name]) == []


def test_every_folder_of_policies_is_registered():
    policies = "memdiag.allocator.policies."
    registered = {target.removeprefix(policies).partition(".")[0] for target in REGISTRIES["POLICIES"].targets.values()}
    assert {path.parent.name for path in (PACKAGE / "allocator" / "policies").glob("*/__init__.py")} == registered


def test_every_registry_is_in_one_of_these_lists():
    assert {*SHARED, *FOLDERS_OF_MORE} == set(REGISTRIES)
    made = re.compile(r"^([A-Z_]+): Registry\[(.+)\] = Registry\(", re.MULTILINE)
    types = dict(pair for path in MODULES for pair in made.findall(path.read_text(encoding="utf-8")))
    assert set(types) == set(REGISTRIES)
    assert "Any" not in types.values()


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("name", "room", "asked"), [("SOURCES", "sources", {"sniff", "read"}), ("EXPORTS", "exports", {"write"})]
)
def test_every_reader_and_writer_is_registered(name, room, asked):
    """Readers and writers are recognised by their functions, because their folders also contain other modules."""
    registered = {target.rpartition(".")[2] for target in REGISTRIES[name].targets.values()}
    assert {path.stem for path in (PACKAGE / room).glob("*.py") if asked <= functions_of(path)} == registered


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_names_its_format_sniffs_and_reads(name):
    source = SOURCES[name]
    assert name == source.FORMAT
    assert list(inspect.signature(source.sniff).parameters) == ["head"]
    assert list(inspect.signature(source.read).parameters)[:1] == ["path"]


def test_every_source_is_documented():
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert [name for name in SOURCES if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_sniffs_any_bytes_without_failing(name):
    heads = [
        b"\x00",
        b"{",
        b"[",
        b"<",
        b"PK\x03\x04",
        b"SQLite format 3\x00",
        b"\x80\x04",
        b"a,b\n",
        b"\n\n",
        b"\xff" * 65536,
    ]
    assert {SOURCES[name].sniff(head) for head in heads} <= {True, False}


@pytest.mark.parametrize("name", ANALYZERS)
def test_an_analyzer_lists_its_codes_and_analyzes(name):
    analyzer = ANALYZERS[name]
    assert list(inspect.signature(analyzer.analyze).parameters) == ["trace", "context"]
    assert analyzer.CODES
    for code, meaning in analyzer.CODES.items():
        assert CODE.fullmatch(code), code
        assert meaning.strip(), code


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_gives_its_frameworks_names(name):
    for _, example in DIALECTS[name].EXAMPLES:
        for message in read_text(example).messages:
            assert message.program or message.framework == "shell", message.framework


def test_a_remedy_of_several_findings_is_in_the_catalogue():
    """A ``Fix`` with a fixed instruction belongs to one module; those that several offer are remedies."""
    users: dict[str, set[str]] = {}
    for path in sorted((PACKAGE / "analyzers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fix":
                title = node.args[0]
                if isinstance(title, ast.Call) and title.args and isinstance(title.args[0], ast.Constant):
                    users.setdefault(title.args[0].value, set()).add(path.stem)
    assert len(users) > 20
    assert {key: modules for key, modules in users.items() if len(modules) > 1} == {}
    texts = {key: catalogue(key.partition(".")[0])[key.partition(".")[2]]["en"] for key in users}
    known = {each["en"] for each in catalogue("remedies").values()}
    assert len(set(texts.values())) == len(texts)
    assert {key: text for key, text in texts.items() if text in known} == {}


def test_a_code_belongs_to_one_analyzer():
    owners = Counter(code for analyzer in ANALYZERS.values() for code in analyzer.CODES)
    assert [code for code, count in owners.items() if count > 1] == []


RENDERERS = [(command, form) for command, forms in FORMS.items() for form in forms]


@pytest.mark.parametrize(("command", "form"), RENDERERS)
def test_every_form_of_every_command_has_its_renderer(command, form):
    render = renderer(command, form)
    assert render.__module__ == f"memdiag.render.{command}.{form}"
    if (command, form) not in PICTURES:
        assert inspect.signature(render).parameters["look"].default == Look()


def test_a_form_that_no_command_has_is_refused():
    with pytest.raises(KeyError, match="memdiag tune has no form sarif"):
        renderer("tune", "sarif")


def test_every_folder_of_renderers_belongs_to_a_command():
    folders = {path.name for path in (PACKAGE / "render").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*FORMS, "support"}


def test_every_file_of_the_renderers_is_reached():
    """Every file of render is either an output form of its command, or imported by another module."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    imported = {
        target
        for name, path in names.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for target in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        if target != name
    }
    forms = {f"memdiag.render.{command}.{form}" for command, form in RENDERERS}
    files = {name for name in names if name.startswith("memdiag.render.") and not name.endswith("__init__")}
    assert sorted(files - imported - forms) == []


def test_every_code_has_a_page_and_every_page_a_code():
    pages = {path.stem for path in FINDINGS.glob("MD*.md")}
    codes = raised_codes()
    assert {code for analyzer in ANALYZERS.values() for code in analyzer.CODES} <= codes
    assert codes - pages == set(), "codes without docs/findings/<code>.md"
    assert pages - codes == set(), "pages of codes that nothing raises"


@pytest.mark.parametrize("page", sorted(FINDINGS.glob("MD*.md")), ids=lambda page: page.stem)
def test_a_page_opens_with_its_code(page):
    assert page.read_text(encoding="utf-8").lstrip("# ").startswith(page.stem)


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_says_what_it_is_for_and_stays_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert ast.get_docstring(ast.parse(text)), "a module opens with one sentence of purpose"


def test_no_module_is_called_utils():
    assert [module_id(path) for path in MODULES if re.search(r"util|helper|common|misc", path.stem)] == []
