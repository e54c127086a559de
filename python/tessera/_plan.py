"""Plans: a kernel that was chosen, built and loaded for one problem, and its launches."""
from __future__ import annotations

import ctypes
import functools
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _abi, _arrays, _dtypes, _interrupt, _values, _warm
from ._abi import Error
from ._checks import checked
from ._problem import Operand, Problem


def _places(shape: Sequence[int], strides: Sequence[int]) -> List[Tuple[int, int]]:
    """What decides where elements lie, in one order: dimensions of one element, and those that
    repeat the same elements, do not. Where there are no elements the sizes alone count."""
    if 0 in shape:
        return sorted((n, 0) for n in shape if n != 1)
    return sorted((n, s) for n, s in zip(shape, strides) if n != 1 and s != 0)


def check_operand(operand: Operand, view: _arrays.View) -> None:
    """An array must lie in memory as the problem says; its dimensions may have any order."""
    if view.dtype != operand.dtype and {view.dtype, operand.dtype} != {"fp32", "tf32"}:
        raise Error(f"{operand.name} must have the type {_dtypes.NAMES[operand.dtype]}, got "
                    f"{_dtypes.NAMES[view.dtype]}")
    if _places(*operand[3:5]) != _places(view.shape, view.strides):
        raise Error(f"{operand.name} must have the shape {operand.shape} and the strides "
                    f"{operand.strides} (in elements, dimensions in any order), got "
                    f"{view.shape} and {view.strides}")
    if operand.access != "read":
        _arrays.check_output(view, operand.name)


class Plan(_abi.Handle):
    """A kernel for one problem, made by Dispatcher.plan(). Launching it chooses nothing."""

    _kind = "plan"

    @checked
    def __init__(self, dispatcher: Any, problem: Problem,
                 options: Optional[_abi.ChooseOptions] = None) -> None:
        if not isinstance(dispatcher, _abi.Handle) or dispatcher._kind != "dispatcher":
            raise Error(f"a plan is made by a Dispatcher, got {_values.shown(dispatcher)}")
        given = None if options is None else ctypes.byref(options)
        make = functools.partial(self._make, "tsr_plan", dispatcher, problem, given)
        if dispatcher._measures:
            _interrupt.measured(make)
        else:
            make()
        self._settle(problem, dispatcher._device_key, dispatcher._timing)

    def _settle(self, problem: Problem, device: Tuple[str, int], timing: Tuple[int, int]) -> None:
        self.problem = problem
        self.operands = problem.operands
        self.device = device
        self._names = [operand.name for operand in self.operands]
        self._table: _warm.Table = {}
        self._timing = timing

    def close(self) -> None:
        """Gives the plan back, when the last launch of another thread has returned."""
        super().close()
        self.__dict__.get("_table", {}).clear()

    def info(self) -> Dict[str, Any]:
        """{"problem", "target", "kernel", "source", "predicted_seconds", "stages"}"""
        return json.loads(_abi.text("tsr_plan_json", self))

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.info()["kernel"]

    @property
    def stages(self) -> List[Dict[str, Any]]:
        """What the steps of a launch do, in their order: [{"name", "entry", "parts"}, ...]; parts:
        into how many the last step cuts the longest sums, which it then merges."""
        return self.info()["stages"]

    @property
    def workspace_bytes(self) -> int:
        """The most bytes of workspace that a launch may need."""
        return _abi.size("tsr_workspace_bytes", self)

    def check_names(self, given: Dict[str, Any]) -> None:
        for name in given:
            if name not in self._names:
                raise Error(f"'{self.problem}' has no operand '{name}'; it has " +
                            ", ".join(self._names), "not_found")

    def _views(self, given: Dict[str, Any], stream: Optional[int]) -> List[Any]:
        self.check_names(given)
        views: List[Any] = []
        for operand in self.operands:
            array = given.get(operand.name)
            if array is None:
                raise Error(f"'{self.problem}' needs the operand {operand.name}")
            views.append(self._view(operand, array, stream))
        return views

    def _view(self, operand: Operand, array: Any, stream: Optional[int]) -> Any:
        if operand.in_array:
            return self._pointers(operand, array, stream)
        view = _arrays.view_of(array, operand.name, stream)
        check_device(operand.name, view, self.device)
        check_operand(operand, view)
        return view

    def _pointers(self, operand: Operand, arrays: Any, stream: Optional[int]) -> _arrays.View:
        if self.device[0] != "cpu" or not isinstance(arrays, (list, tuple)):
            raise Error(f"{operand.name} must be a list of arrays, one for each batch, in the "
                        "host's memory, because the problem has pointer_arrays")
        batches = int(self.problem.get("batch"))
        if len(arrays) != batches:
            raise Error(f"{operand.name} must be {batches} arrays, got {len(arrays)}")
        alone = operand._replace(in_array=False)
        views = [self._view(alone, array, stream) for array in arrays]
        pointers = (ctypes.c_void_p * batches)(*[view.address for view in views])
        return _arrays.View(ctypes.addressof(pointers), operand.dtype, (batches,), (1,),
                            self.device, False, (pointers, views))

    def launch(self, *, stream: Any = None, workspace: Any = None, verify: bool = False,
               **operands: Any) -> None:
        """Runs the plan on arrays by operand's name: plan.launch(a=a, b=b, out=out).

        Each array must have the type, shape and strides of the problem's operand, see
        Plan.operands. On a CPU the result is written on return, on a GPU the work is enqueued on
        `stream` (an address, or an object of PyTorch or CuPy). workspace: an array without gaps of
        at least workspace_bytes, at a multiple of 256 bytes (CPU: 64). verify: compares with the
        fp64 reference. Raises Error for a missing or unfit operand, for outputs and a workspace
        that overlap another operand, and for a result outside its tolerance.
        """
        if stream is not None or workspace is not None or verify is not False:
            options = self._options(stream, workspace, verify)
            return self._launch_views(self._views(operands, options.stream), options)
        # Arrays that lie as those of an earlier launch did need no check.
        arrays = tuple(map(operands.get, self._names))
        found = _warm.call(self._table, arrays, ()) if len(arrays) == len(operands) else None
        if type(found) is tuple:
            return None
        if type(found) is int:
            raise _abi.last_error(found)
        self._launch_views(self._views(operands, None), None)
        _warm.remember(self, found, self, range(len(arrays)), arrays)
        return None

    def _options(self, stream: Any, workspace: Any, verify: bool) -> _abi.LaunchOptions:
        options = _abi.LaunchOptions(stream=_arrays.stream_address(stream),
                                     verify=_values.flag("verify", verify))
        if workspace is not None:
            view = _arrays.workspace_of(workspace, options.stream)
            check_device("workspace", view, self.device)
            options.workspace, options.workspace_bytes = view.address, view.nbytes()
            options._keep = view
        return options

    def _launch_views(self, views: List[Any], options: Optional[_abi.LaunchOptions]) -> None:
        """The views keep what they read alive until the launch has returned."""
        self.launch_at([view.address for view in views], options)

    def launch_at(self, addresses: Sequence[int],
                  options: Optional[_abi.LaunchOptions] = None) -> None:
        """Runs the plan on addresses in the order of Plan.operands; only the library checks."""
        _abi.call("tsr_launch", self, self._array_of(addresses), len(addresses),
                  None if options is None else ctypes.byref(options))

    @staticmethod
    def _array_of(addresses: Sequence[int]) -> Any:
        return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)

    def _pack(self, weight: int, packed: int, options: Optional[_abi.LaunchOptions] = None) -> None:
        """Writes the weight at an address to another one, in the kernel's own form."""
        operands = self._array_of([weight if op.name == "b" else 0 for op in self.operands])
        _abi.call("tsr_pack", self, operands, len(self.operands), packed,
                  None if options is None else ctypes.byref(options))

    def synchronize(self, stream: Any = None) -> None:
        """Waits until the stream's work is done; returns at once on a CPU."""
        options = self._options(stream, None, False)
        _abi.call("tsr_synchronize", self, ctypes.byref(options))

    @checked
    def verify(self, seed: int = 1) -> None:
        """Runs the plan once on random operands and compares with the fp64 reference. Raises Error
        with the code "verification_failed" where an element is outside its tolerance."""
        _abi.call("tsr_verify", self, _values.whole("seed", seed, 0))

    @checked
    def bench(self, rounds: int = 0, warmup: int = 0, min_seconds: float = 0,
              flush_caches: bool = False, seed: int = 0, **operands: Any) -> Dict[str, Any]:
        """Times the plan on arrays by name, or on random ones, whose result it checks first.

        Returns {"median_seconds", "min_seconds", "spread" (interquartile range over median),
        "seconds": one for each round, "gflops", "gb_per_second"}. 0 means the default: what
        Dispatcher.set_timing() said, or 11 rounds, 2 calls before the first, 0.002 seconds for a
        round. Ctrl-C ends it between two launches.
        """
        warmup, rounds = warmup or self._timing[0], rounds or self._timing[1]
        options = _abi.BenchOptions(rounds=rounds, warmup=warmup, min_seconds=min_seconds,
                                    flush_caches=flush_caches, seed=seed)
        views = self._views(operands, None) if operands else []
        addresses = self._array_of([view.address for view in views]) if views else None
        return json.loads(_interrupt.measured(lambda: _abi.text(
            "tsr_bench", self, addresses, len(views), ctypes.byref(options), None)))

    def __repr__(self) -> str:
        return f"<tessera.Plan {self.kernel} for '{self.problem}'>"


def check_device(what: str, view: _arrays.View, device: Tuple[str, int]) -> None:
    if view.device == device:
        return
    raise Error(f"{what} lies on {view.device[0]}:{view.device[1]}, but the kernel runs on "
                f"{device[0]}:{device[1]}; move it there, or use a dispatcher for its device")
