"""Blocking calls into a target's own code, with an end.

They run in a daemon thread: a call that never returns is given up, and neither keeps the event loop
waiting at its end, as a thread of the default executor would, nor the process alive.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from harness.errors import TargetError

T = TypeVar("T")


async def call(function: Callable[..., T], *arguments: object, bound_s: float) -> T:
    """Return what `function(*arguments)` returns, or raise what it raises.

    Raises TargetError when it has not returned within `bound_s` seconds.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type] # T may be None itself

    def work() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name=f"bounded {function}", daemon=True).start()
    try:
        async with asyncio.timeout(bound_s):
            return await done
    except TimeoutError:
        name = getattr(function, "__qualname__", repr(function))
        raise TargetError(f"{name} has not returned after {bound_s:g} s") from None
