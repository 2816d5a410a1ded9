"""The demo: shows and measures in one run what Holdfast keeps when its processes are killed."""

from holdfast.cli.demo.command import demo

__all__ = ["demo"]
