"""`holdfast bench` measures each workload, and removes its files."""

from pathlib import Path

from tests.cli.terminal import Terminal


def test_each_figure_is_measured_and_nothing_stays(holdfast: Terminal, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    result = holdfast(f"bench --folder {place} --seconds 0.02 --size 1KiB --json")
    assert result.code == 0
    assert [line["id"] for line in result.json_lines][:2] == ["disk", "put_sync"]
    assert all(line["a_second"] > 0 for line in result.json_lines)
    assert list(place.iterdir()) == []


def test_who_waits_for_the_disk_is_set_beside_it(holdfast: Terminal, tmp_path: Path) -> None:
    result = holdfast(f"bench --folder {tmp_path} --seconds 0.02")
    rows = {line.split("  ")[0]: line for line in result.lines}
    assert rows["write and fdatasync, without Holdfast"].endswith("1 x")
    assert rows["put, on disk when it returns"].endswith(" x")
    assert rows["append to a log"].endswith(" us")


def test_a_folder_that_is_not_there_is_told_in_one_line(holdfast: Terminal, tmp_path: Path) -> None:
    assert "No such file" in holdfast(f"bench --folder {tmp_path / 'nowhere'}").complaint
