"""Plans over a range: kernels for all values of one field of a problem, and their launches."""
from __future__ import annotations

import ctypes
import functools
import json
from typing import Any, Dict, List, Optional, Tuple

from . import _abi, _values, _warm
from ._abi import Error
from ._checks import checked
from ._plan import Plan
from ._problem import Operand, Problem


class RangePlan(_abi.Handle):
    """Kernels for every value of a range, made by Dispatcher.plan_range(). Launching it chooses,
    builds and loads nothing."""

    _kind = "range_plan"

    @checked
    def __init__(self, dispatcher: Any, line: str,
                 options: Optional[_abi.ChooseOptions] = None) -> None:
        if not isinstance(dispatcher, _abi.Handle) or dispatcher._kind != "dispatcher":
            raise Error(f"a plan is made by a Dispatcher, got {_values.shown(dispatcher)}")
        given = None if options is None else ctypes.byref(options)
        self._make("tsr_range_plan", dispatcher, _abi.encode(line), given)
        info = self.info()
        self.problem: str = info["problem"]
        self.field: str = info["field"]
        self.first: int = info["first"]
        self.last: int = info["last"]
        self.device: Tuple[str, int] = dispatcher._device_key
        self._timing: Tuple[int, int] = dispatcher._timing
        self._names = [operand.name for operand in self._problem_at(self.first).operands]
        self._table: _warm.Table = {}

    def close(self) -> None:
        """Gives the plan back, when the last launch of another thread has returned."""
        super().close()
        self.__dict__.get("_table", {}).clear()

    def info(self) -> Dict[str, Any]:
        """{"problem", "field", "first", "last", "target", "parts", "workspace_bytes"}"""
        return json.loads(_abi.text("tsr_range_plan_json", self))

    @property
    def parts(self) -> List[Dict[str, Any]]:
        """The table: [{"first", "last", "kernel", "source", "predicted_seconds"}, ...], the seconds
        for the first value of each part."""
        return self.info()["parts"]

    @property
    def workspace_bytes(self) -> int:
        """The most bytes of workspace that a launch at any value may need."""
        return _abi.size("tsr_range_workspace_bytes", self)

    def _problem_at(self, value: int) -> Problem:
        ranged = f"{self.field}={self.first}..{self.last}"
        return Problem(" ".join(f"{self.field}={value}" if word == ranged else word
                                for word in self.problem.split()))

    @checked
    def at(self, value: int) -> Plan:
        """The plan of one value. Chooses, builds and loads nothing."""
        plan = Plan.__new__(Plan)
        plan._make("tsr_range_plan_at", self, _values.whole(self.field, value, -2**63, 2**63))
        plan._settle(self._problem_at(value), self.device, self._timing)
        return plan

    @functools.cached_property
    def _places(self) -> Dict[str, Tuple[int, int]]:
        """For each operand whose shape holds the value: the dimension, and their number."""
        if self.first == self.last:
            return {}
        less, most = (self._problem_at(value).operands for value in (self.last - 1, self.last))
        return {b.name: place for a, b in zip(less, most)
                for place in [self._place(a, b)] if place is not None}

    def _place(self, less: Operand, most: Operand) -> Optional[Tuple[int, int]]:
        if len(less.shape) != len(most.shape) or less.in_array:
            return None
        differ = [i for i, sizes in enumerate(zip(less.shape, most.shape))
                  if sizes == (self.last - 1, self.last)]
        return (differ[0], len(most.shape)) if differ else None

    def _value_of(self, operands: Dict[str, Any]) -> int:
        if self.first == self.last:
            return self.first
        for name, (place, count) in self._places.items():
            shape = getattr(operands.get(name), "shape", ())
            if len(shape) == count:
                return int(shape[place])
        raise Error(f"{self.field} cannot be taken from the shapes of the operands of "
                    f"'{self.problem}'; give it first, as in launch(128, a=a, b=b, out=out)")

    def launch(self, value: Optional[int] = None, *, stream: Any = None, workspace: Any = None,
               verify: bool = False, **operands: Any) -> None:
        """Runs the kernel of a value on arrays by operand's name: plan.launch(a=a, b=b, out=out).

        value: of the range's field; None: as the operands' shapes have it. The rest is as for
        Plan.launch().
        """
        arrays = tuple(map(operands.get, self._names))
        found: Any = None
        if stream is None and workspace is None and verify is False:
            # Arrays that lie as those of an earlier launch did need no check.
            found = _warm.call(self._table, arrays, value) if len(arrays) == len(operands) else None
            if type(found) is tuple:
                return None
            if type(found) is int:
                raise _abi.last_error(found)
        plan = self.at(self._value_of(operands) if value is None else value)
        if stream is not None or workspace is not None or verify is not False:
            return plan.launch(stream=stream, workspace=workspace, verify=verify, **operands)
        plan._launch_views(plan._views(operands, None), None)
        _warm.remember(self, found, plan, range(len(arrays)), arrays)
        return None

    def launch_at(self, value: int, addresses: Any,
                  options: Optional[_abi.LaunchOptions] = None) -> None:
        """Runs the kernel of a value on addresses in the order of the operands; only the library
        checks."""
        _abi.call("tsr_range_launch", self, value, Plan._array_of(addresses), len(addresses),
                  None if options is None else ctypes.byref(options))

    def synchronize(self, stream: Any = None) -> None:
        """Waits until the stream's work is done; returns at once on a CPU."""
        self.at(self.first).synchronize(stream)

    def __repr__(self) -> str:
        return f"<tessera.RangePlan of {len(self.parts)} parts for '{self.problem}'>"
