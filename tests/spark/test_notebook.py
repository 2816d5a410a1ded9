"""Does the notebook of `examples/` run as it stands, from top to bottom?"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def code_of(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output(notebook: Path) -> None:
    for cell in code_of(notebook):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(
    spark: SparkSession,
    notebook: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its `session()` is the one of this run. All its cells share their names, as in Jupyter."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    with mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(code_of(notebook)):
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "records behind after each batch: [160, 120, 80, 40, 0]" in said
    assert "behind now: {'orders': 0}" in said
    assert dict(zip(names["counted"]["state"], names["counted"]["messages"], strict=True)) == {
        "acked": 150,
        "dead": 20,
        "ready": 30,
    }
    assert not spark.streams.active
