"""Which errors can Holdfast raise? The public address of the tree that lives in `holdfast.base.errors`."""

from holdfast.base.errors import *  # noqa: F403
from holdfast.base.errors import __all__ as __all__  # noqa: PLC0414 - so that type checkers see it as ours
