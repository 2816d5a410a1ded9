"""What docs/amqp.md says of the broker that a machine can check: its settings and its tests."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from holdfast.amqp.settings import Settings, load

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "amqp.md").read_text()


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
    settings = load(file, {"HOLDFAST_HEARTBEAT": "2"}, {"amqp_port": None}, {"heartbeat": "4", "amqp_port": "none"})
    assert (settings.heartbeat, settings.amqp_port) == (4, None)
    assert load(file, {}, {"amqp_port": "5"}, {"amqp_port": "4"}).amqp_port == 5


def test_every_test_that_the_page_names_is_there() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
