"""Telling several holders at once what is to be so, and remembering what each has carried out."""

import asyncio
import errno
from collections.abc import Iterable, Mapping
from typing import Any

from harness.docker.holder import Holder


class Standing:
    """One standing order to every holder: a call, with arguments that the next one replaces."""

    def __init__(self, holders: Mapping[str, Holder], call: str, nothing: tuple[Any, ...]) -> None:
        """`nothing` is what holders stand at before they are told anything."""
        self._holders = holders
        self._call = call
        self._in_force: dict[str, tuple[Any, ...]] = dict.fromkeys(holders, nothing)

    async def bring(self, wanted: Mapping[str, tuple[Any, ...]]) -> None:
        """Bring all holders from what stands now to this.  Raises OSError when one cannot."""
        changed = [name for name in wanted if self._in_force.get(name) != wanted[name]]
        await self.tell(changed, wanted)

    async def tell(self, names: Iterable[str], wanted: Mapping[str, tuple[Any, ...]]) -> None:
        """Tell some holders, whatever stands there.  Raises OSError when one cannot."""
        told = list(names)
        said = await asyncio.gather(
            *(self._holders[name].request(self._call, *wanted[name]) for name in told),
            return_exceptions=True,
        )
        failed: BaseException | None = None
        for name, one in zip(told, said, strict=True):
            if isinstance(one, BaseException):
                failed = failed or one
                self._in_force.pop(name, None)  # it may have come through, or not
            else:
                self._in_force[name] = wanted[name]
        if isinstance(failed, OSError):
            raise OSError(failed.errno or errno.EIO, failed.strerror or str(failed))
        if failed is not None:
            raise failed
