"""The exceptions that Holdfast raises, under their public name; defined in `holdfast.base.errors`."""

from holdfast.base.errors import *  # noqa: F403
from holdfast.base.errors import __all__ as __all__  # noqa: PLC0414 - so that type checkers see it as ours
