"""Long calls that Ctrl-C and exceptions of call-backs can end."""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Optional

from . import _abi

# progress(label, done, total, what)
Progress = Callable[[str, int, int, str], Any]


class _Watch:
    """The call-backs that the library gets, and why they asked for the end."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self.user = progress
        self.failure: Optional[BaseException] = None
        self.interrupted = False
        self.callbacks = _abi.Callbacks(progress=_abi.PROGRESS(self._progress),
                                        stop=_abi.STOP(self._stop))

    def _progress(self, _: Any, label: bytes, done: int, total: int, what: bytes) -> int:
        if self.user is not None and not self._stop(None):
            try:
                self.user(label.decode(), done, total, what.decode())
            except BaseException as failure:  # is raised again when the library has ended its work
                self.failure = failure
        return self._stop(None)

    def _stop(self, _: Any) -> int:
        return int(self.interrupted or self.failure is not None)


def run(progress: Optional[Progress], work: Callable[[Any], Any]) -> Any:
    """Returns work(callbacks), and raises what it or the call-back `progress` raised.

    Python delivers Ctrl-C to the main thread between two of its instructions, but the library asks
    the call-backs in threads of its own. So the work runs in another thread while this one waits.
    """
    if progress is not None and not callable(progress):
        raise _abi.Error(f"progress must be a function of (label, done, total, what), got "
                         f"{type(progress).__name__}")
    watch = _Watch(progress)
    ended = threading.Event()
    result: list = [None, None]

    def body() -> None:
        try:
            result[0] = work(ctypes.byref(watch.callbacks))
        except BaseException as failure:
            result[1] = failure
        finally:
            ended.set()

    thread = threading.Thread(target=body, name="tessera")
    thread.start()
    while not ended.is_set():
        try:
            ended.wait()
        except KeyboardInterrupt:
            watch.interrupted = True
    thread.join()
    if watch.failure is not None:
        raise watch.failure
    if watch.interrupted:
        raise KeyboardInterrupt
    if result[1] is not None:
        raise result[1]
    return result[0]
