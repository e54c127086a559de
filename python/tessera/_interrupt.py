"""Long calls that Ctrl-C and exceptions of call-backs can end."""
from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import _abi

# progress(label, done, total, what)
Progress = Callable[[str, int, int, str], Any]


@contextlib.contextmanager
def _kept_signals() -> Iterator[List[BaseException]]:
    """What the handlers of signals raise meanwhile, KeyboardInterrupt above all.

    Python calls them in the main thread between any two of its instructions, also in a call-back of
    the library, where what they raise would be lost.
    """
    raised: List[BaseException] = []
    handlers: Dict[int, Any] = {}

    def keep(number: int, frame: Any) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as failure:
            raised.append(failure)

    if threading.current_thread() is not threading.main_thread():
        yield raised
        return
    try:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, keep)
        yield raised
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is keep:
                signal.signal(number, handler)


def measured(work: Callable[[], Any]) -> Any:
    """Returns work(), a call of the library that measures, which asks this thread several times a
    second whether it shall end. It does so after Ctrl-C, which is raised here."""
    with _kept_signals() as raised:
        stop = _abi.STOP(lambda _: int(bool(raised)))
        _abi.call("tsr_set_stop", stop, None)
        try:
            result = work()
        except _abi.Error:
            if not raised:
                raise
        finally:
            _abi.call("tsr_set_stop", None, None)
    if raised:
        raise raised[0]
    return result


class _Watch:
    """The call-backs that the library gets, and why they asked for the end."""

    def __init__(self, progress: Optional[Progress], signals: List[BaseException]) -> None:
        self.user = progress
        self.failure: Optional[BaseException] = None
        self.signals = signals
        self.stop = _abi.STOP(self._stop)
        self.callbacks = _abi.Callbacks(progress=_abi.PROGRESS(self._progress), stop=self.stop)

    def _progress(self, _: Any, label: bytes, done: int, total: int, what: bytes) -> int:
        if self.user is not None and not self._stop(None):
            try:
                self.user(label.decode(), done, total, what.decode())
            except BaseException as failure:  # is raised again when the library has ended its work
                self.failure = failure
        return self._stop(None)

    def _stop(self, _: Any) -> int:
        return int(bool(self.signals) or self.failure is not None)


def run(progress: Optional[Progress], work: Callable[[Any], Any]) -> Any:
    """Returns work(callbacks), and raises what it or the call-back `progress` raised.

    Python delivers Ctrl-C to the main thread, but the library asks the call-backs in threads of its
    own. So the work runs in another thread while this one waits.
    """
    if progress is not None and not callable(progress):
        raise _abi.Error(f"progress must be a function of (label, done, total, what), got "
                         f"{type(progress).__name__}")
    result: list = [None, None]
    with _kept_signals() as signals:
        watch = _Watch(progress, signals)

        def body() -> None:
            try:
                _abi.call("tsr_set_stop", watch.stop, None)  # what measures asks the thread's own
                result[0] = work(ctypes.byref(watch.callbacks))
            except BaseException as failure:
                result[1] = failure

        thread = threading.Thread(target=body, name="tessera")
        thread.start()
        thread.join()
    for failure in (watch.failure, *signals, result[1]):
        if failure is not None:
            raise failure
    return result[0]
