"""Writing down what the process asks, so that a pack can be made of it."""
from __future__ import annotations

import os
from typing import Any, Union

from . import _abi
from ._checks import checked


class record:
    """with tessera.record("model.record"): all dispatchers of the process write the problems that
    they are asked to the file, with the numbers of calls, until the block ends.

    Those that were made with a `record` of their own write to that. Several processes may write one
    file at once, and a file that is there is added to. Blocks may lie in one another: the innermost
    one's file gets the calls. `tessera record show FILE` prints it, and `tessera pack --record FILE
    -o model.pack` makes a pack of its kernels. Raises Error where the file cannot be written.
    """

    @checked
    def __init__(self, file: Union[str, "os.PathLike[str]"]) -> None:
        self.file = os.path.abspath(os.fspath(file))

    def __enter__(self) -> "record":
        _abi.call("tsr_record_begin", _abi.encode(self.file))
        return self

    def __exit__(self, *_: Any) -> None:
        _abi.call("tsr_record_end", _abi.encode(self.file))
