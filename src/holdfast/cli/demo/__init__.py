"""The demo: what Holdfast keeps when it is killed, shown and measured in one run."""

from holdfast.cli.demo.command import demo

__all__ = ["demo"]
