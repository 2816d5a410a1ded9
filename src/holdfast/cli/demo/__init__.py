"""The demo: kills processes of Holdfast, and shows and measures that no confirmed message is lost."""

from holdfast.cli.demo.command import demo

__all__ = ["demo"]
