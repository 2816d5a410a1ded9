"""What docs/amqp.md says of the broker that a machine can check: its settings, its files, its tests."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

from holdfast.amqp.settings import Settings, describe, load

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "amqp.md").read_text()


def settings_table() -> list[str]:
    """The table of the settings, as the page must have it."""
    rows = [f"| `{name}` | `{variable}` | {default} | {meaning} |" for name, variable, default, meaning in describe()]
    return ["| setting | variable | default | meaning |", "|---|---|---|---|", *rows]


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert "\n".join(settings_table()) in PAGE


def test_the_example_of_a_configuration_can_be_loaded(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "holdfast.toml"
    file.write_text(example)
    settings = load(file, {}, {})
    changed = {one.name for one in fields(Settings) if getattr(settings, one.name) != one.default}
    assert changed == set(tomllib.loads(example))


def test_what_is_given_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("heartbeat = 1\nchannel_max = 1\nframe_max = 5000")
    settings = load(file, {"HOLDFAST_HEARTBEAT": "2", "HOLDFAST_CHANNEL_MAX": "2"}, {"heartbeat": 3})
    assert (settings.heartbeat, settings.channel_max, settings.frame_max) == (3, 2, 5000)


def test_every_test_that_the_page_names_is_there() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_commands_for_users_and_virtual_hosts_run_as_written(tmp_path: Path) -> None:
    [commands] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert "shop" in result.stdout
