"""Optional packages that payloads in some formats need, with an error that says how to install them."""

import importlib
from typing import Any

from holdfast.base.errors import InvalidArgument

__all__ = ["load"]


def load(module: str, format: str) -> Any:
    """Import a module of an optional package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.removeprefix("google.").partition(".")[0]
        extra = "spark" if package == "pyarrow" else "schemas"
        raise InvalidArgument(
            f"payloads in the format {format} need {package}, which is not installed: "
            f'run pip install "holdfast[{extra}]"'
        ) from None
