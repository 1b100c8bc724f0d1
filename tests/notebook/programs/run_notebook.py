"""Runs a notebook without a browser; arguments: folder for executed.ipynb and page.html."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

RECORDED = """%%memdiag --backend cpu -o kept
for _ in range(3):
    losses.append(torch.ones(300, 1000, requires_grad=True).sum() * 2)
len(losses)"""
CELLS = [
    "%load_ext memdiag\nimport memdiag, torch\nlosses = []",
    RECORDED,
    "torch.ones(500, 1000) + 1",
    "print(memdiag.live())",
    "memdiag.load('kept/cell.pkl')",
    "memdiag.analyze(memdiag.load('kept/cell.pkl'))",
    "%%memdiag --backend cpu\ntorch.empty(1 << 44, dtype=torch.uint8)",
    "%%memdiag --wrong\n1",
]

folder = Path(sys.argv[1])
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
NotebookClient(notebook, timeout=400, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
nbformat.write(notebook, folder / "executed.ipynb")
html = [
    output["data"]["text/html"]
    for cell in notebook.cells
    for output in cell.outputs
    if "text/html" in output.get("data", {})
]
body = "<hr>".join(html)
(folder / "page.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}</body>")
