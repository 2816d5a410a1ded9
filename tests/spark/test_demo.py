"""The demo's last chapter: the life of every order, read by a Spark that starts from nothing."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_demo_ends_in_spark(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words = ["demo", "--records", "1000", "--orders", "1000", "--json", "--keep", str(kept)]
    done = subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "torn tail cut off" not in line]
    assert (done.returncode, told) == (0, [])  # whoever is killed while it writes may leave a torn tail, and only that
    figures = json.loads(done.stdout)
    assert figures["ok"] is True
    assert figures["promises"][-1] == {
        "text": "Spark counts one ack per order, and one dead letter",
        "kept": True,
    }
    report = Path(figures["report"])
    assert report.is_relative_to(kept) and "<svg" in report.read_text()
