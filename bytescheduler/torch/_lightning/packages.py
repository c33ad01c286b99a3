"""The packages of Lightning: the same classes under two names, found when this is imported."""

import importlib
import sys
from typing import Any, Callable, List

__all__ = ["found"]

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def found(
    imported: "Callable[[str], bool]" = sys.modules.__contains__,
    load: Callable[[str], Any] = importlib.import_module,
) -> List[Any]:
    """Return the packages that the script has imported; else the first that is installed.

    Parameters
    ----------
    imported : callable
        Returns whether a module is loaded.
    load : callable
        Returns a module by its name.

    Raises
    ------
    ModuleNotFoundError
        None is installed.
    """
    loaded = [load(name) for name in PACKAGES if imported(name)]
    if loaded:
        return loaded
    for name in PACKAGES:
        try:
            return [load(name)]
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ModuleNotFoundError(
        "Lightning is not installed: python -m pip install lightning", name="lightning"
    )
