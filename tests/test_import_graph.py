"""The import graph has no cycles, only listed modules import torch by name, and a class name is used once."""

import ast
from collections import defaultdict
from pathlib import Path

import grimp

PACKAGE = Path(__file__).parents[1] / "memdiag"

# Modules that run inside the training process and import a submodule of torch by its name. import-linter does not see
# such imports.
BY_NAME = {
    "memdiag/phantom/boot/flash_attention.py",
    "memdiag/phantom/boot/world.py",
    "memdiag/recorder/optimizers.py",
    "memdiag/recorder/training.py",
    "memdiag/recorder/watching/steps.py",
}


def cycles(graph):
    """Returns groups of modules that import each other in a cycle (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def test_a_cycle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_module_imports_itself_through_others():
    """No module imports itself through others, including imports for type checkers and imports inside functions."""
    graph = grimp.build_graph("memdiag", exclude_type_checking_imports=False, cache_dir=None)
    assert cycles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}) == []


def torch_by_name(text):
    """Returns whether code passes the name of torch, or of a torch module, to ``import_module`` or ``__import__``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and str(node.args[0].value).partition(".")[0] in {
                "torch",
                "torch_npu",
            }:
                return True
    return False


def test_an_import_by_name_is_found():
    assert torch_by_name('import importlib\nx = importlib.import_module("torch.distributed")')
    assert torch_by_name('__import__("torch_npu")')
    assert not torch_by_name('import_module("torchinfo")')


def test_torch_is_imported_by_name_in_listed_modules_only():
    root = PACKAGE.parent
    found = {
        str(path.relative_to(root)) for path in PACKAGE.rglob("*.py") if torch_by_name(path.read_text(encoding="utf-8"))
    }
    assert found == BY_NAME


def test_a_class_name_is_used_once():
    modules = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
