"""The guide "In a notebook": python docs/notebook.py runs guides/notebook.ipynb, and writes its results and the page.

The notebook is the source of the page: its text and code. Jupyter is not needed to run it.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from exercises import ROOT, find_exercises
from matplotlib import pyplot as plt

NOTEBOOK = ROOT / "docs/guides/notebook.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")
PICTURES = ROOT / "docs/pictures"
_NOTE = "This is [a notebook](notebook.ipynb) with its results. `python docs/notebook.py` runs it and writes this page."
_PNG = "image/png"


def run_cells(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code of a notebook in place of its folder, put the results into it, and return its variables."""
    variables: dict[str, Any] = {}
    before = Path.cwd()
    mpl.use("agg")
    with tempfile.TemporaryDirectory() as folder:
        for reports in (ROOT / "samples", find_exercises()):
            Path(folder, reports.name).symlink_to(reports)
        home = Path(folder, "docs/guides")
        home.mkdir(parents=True)
        os.chdir(home)
        try:
            code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(code, 1):
                cell["execution_count"], cell["outputs"] = number, _run_cell("".join(cell["source"]), number, variables)
        finally:
            os.chdir(before)
    return variables


def _run_cell(source: str, number: int, variables: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return what it printed, the value of its last line, and its picture."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed), pd.option_context("display.width", 130, "display.max_columns", None):
        exec(compile(tree, f"cell {number}", "exec"), variables)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), variables)
        shown = "" if value is None else repr(value)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _split(text)})
    if shown and not plt.get_fignums():
        data = {"text/plain": _split(shown)}
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    for figure in plt.get_fignums():
        png = io.BytesIO()
        plt.figure(figure).savefig(png, dpi=100, metadata={"Software": None})
        title = plt.gcf().axes[0].get_title()
        data = {_PNG: base64.b64encode(png.getvalue()).decode(), "text/plain": [title]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        plt.close(figure)
    return outputs


def _split(text: str) -> list[str]:
    return [line.rstrip() + "\n" * line.endswith("\n") for line in text.splitlines(keepends=True)]


def list_texts(notebook: dict[str, Any]) -> list[str]:
    """Return the texts of all results; of a picture its title."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return ["".join(output["text"] if "text" in output else output["data"]["text/plain"]) for output in outputs]


def list_pictures(notebook: dict[str, Any]) -> dict[str, bytes]:
    """Return the pictures of a notebook by their names."""
    found = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if _PNG in output.get("data", ()):
                found[_name_picture(cell)] = base64.b64decode(output["data"][_PNG])
    return found


def _name_picture(cell: dict[str, Any]) -> str:
    return f"notebook_{cell['id']}"


def write_page(notebook: dict[str, Any]) -> str:
    """Return the page of a notebook with its results."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            text = "".join(output["text"] if "text" in output else output["data"]["text/plain"]).rstrip("\n")
            is_picture = _PNG in output.get("data", ())
            parts.append(f"![{text}](../pictures/{_name_picture(cell)}.png)" if is_picture else f"```\n{text}\n```")
    parts.insert(1, _NOTE)
    return "\n\n".join(parts) + "\n"


def read_notebook() -> dict[str, Any]:
    """Return the notebook as it is written."""
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return notebook


def main() -> int:
    """Run the notebook, and write it, the page and its pictures."""
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    notebook = read_notebook()
    run_cells(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(write_page(notebook), encoding="utf-8")
    for name, png in list_pictures(notebook).items():
        (PICTURES / f"{name}.png").write_bytes(png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
