"""The engine of all functions on arrays: from the arrays of a call to the launch of its plan.

A function is a Row, which says what the function has of its own: the names of its arrays, the
results that it makes, the problem that it asks for. The engine does what all functions have in
common. A later call on arrays of the same types, shapes and strides finds its plan in a table.
"""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, _arrays, _warm
from ._arrays import View
from ._dispatcher import Dispatcher, check_views, default_dispatcher, dispatcher_for
from ._problem import Problem

Views = Dict[str, View]
Arrays = Tuple[Any, ...]  # in the order of a row's slots; None: not given


class New(NamedTuple):
    """An array that was made for a result."""

    name: str
    array: Any
    rest: Optional[float] = None  # what it holds where no kernel writes; None: anything


class Asked(NamedTuple):
    """The problem that a call asks for."""

    fields: Dict[str, Any]
    sources: Mapping[str, str] = {}  # an operand's name -> the array's, where the two differ
    force: Optional[str] = None      # a kernel's name


class Call:
    """A call whose plan is in no table."""

    def __init__(self, row: "Row", arrays: Arrays, options: Any, stream: Any, extra: Any) -> None:
        self.row, self.options, self.extra = row, row.words(options), extra
        self.stream = _arrays.stream_address(stream)
        self.given = {name: array for name, array in zip(row.slots, arrays)
                      if array is not None or name in row.needed}
        self.views: Views = {name: row.view(self, name, array)
                             for name, array in self.given.items()}


def view_of(call: Call, name: str, array: Any) -> View:
    return _arrays.view_of(array, call.row.labels.get(name, name), call.stream)


def _one_launch(views: Views) -> Tuple[Views, List[Dict[str, int]]]:
    return views, [{}]


class Row(NamedTuple):
    """What a function has of its own."""

    op: str                   # the operation of its problems
    slots: Tuple[str, ...]    # the names of its arrays
    needed: Tuple[str, ...]   # the arrays without which a call is refused
    written: Tuple[str, ...]  # the arrays that a kernel writes
    known: Callable[[Arrays, Any], Any]    # what new results depend on: arrays, options
    words: Callable[[Any], Any]            # checks options that need no array; makes them plain
    prepare: Callable[[Call], None]        # checks the others beside the views
    make: Callable[[Call], Sequence[New]]  # makes the results that are not given
    ask: Callable[[Call, Views], Asked]
    sized: Tuple[str, ...] = ()  # nothing is launched where none of these has an element
    view: Callable[[Call, str, Any], View] = view_of
    labels: Mapping[str, str] = {}  # what sentences call an array, where it is not its slot
    # The views of one launch, and by how many bytes the arrays of each launch lie further on.
    parts: Callable[[Views], Tuple[Views, List[Dict[str, int]]]] = _one_launch


def run(row: Row, arrays: Arrays, options: Any, lacks: bool, stream: Any,
        dispatcher: Optional[Dispatcher], extra: Any = None) -> Arrays:
    """Launches a call, and returns its arrays with all results. options: what the call says
    besides, in the caller's words. lacks: whether a result is not given. extra: what the row's
    functions need, and no table may hold."""
    key: Any = False
    if stream is None:
        if lacks:
            try:
                place, make, others = _results[row.known(arrays, options)]
                if others is None:
                    arrays = arrays[:place] + (make(),)
                else:
                    arrays = _with_results(arrays, others)
            except Exception:  # new arrays, or what is no array or has no hash
                pass
        try:
            table = (default_dispatcher() if dispatcher is None else dispatcher)._table
        except AttributeError:  # no dispatcher, which is refused below
            table = {}
        key = _warm.call(table, arrays, options)
        if key is None:
            return arrays
        if key is not False and not isinstance(key, tuple):
            raise _abi.last_error(key)
    call = Call(row, arrays, options, stream, extra)
    chosen = dispatcher_for(dispatcher, next(iter(call.views.values())))
    check_views(chosen, [(row.labels.get(name, name), view) for name, view in call.views.items()])
    return _first(call, arrays, options, chosen, key)


def _first(call: Call, arrays: Arrays, options: Any, dispatcher: Dispatcher, key: Any) -> Arrays:
    row, views = call.row, call.views
    row.prepare(call)
    news = row.make(call)
    for name, array, _ in news:
        call.given[name], views[name] = array, row.view(call, name, array)
    for name in row.written:
        if name in views:
            _arrays.check_output(views[name], row.labels.get(name, name))
    if news:
        arrays = tuple(map(call.given.get, row.slots))
        _remember_results(call, arrays, options, news)
        key = False if call.stream else _warm.call(dispatcher._table, arrays, options)
        if key is None:
            return arrays
        if key is not False and not isinstance(key, tuple):
            raise _abi.last_error(key)
    parts, offsets = row.parts(views)
    plan, names = _plan_of(call, parts, dispatcher)
    if plan is None:
        return arrays
    launch = _abi.LaunchOptions(stream=call.stream) if call.stream else None
    for offset in offsets:
        plan.launch_at([views[name].address + offset.get(name, 0) for name in names], launch)
    if "bad_page" in views and views["bad_page"].device[0] != "cpu":
        plan.synchronize(call.stream)  # what the launch found is read next
    if len(offsets) == 1:
        _warm.remember(dispatcher, key, plan, [row.slots.index(name) for name in names], arrays)
    return arrays


def _plan_of(call: Call, views: Views, dispatcher: Dispatcher) -> Tuple[Any, List[str]]:
    """The plan, which is looked for by what the views say of the arrays, and the array of each of
    its operands; None where the results have no elements, but must be right all the same."""
    key = call.options, tuple((name, view[1:4]) for name, view in views.items())
    found = dispatcher._plans.get(key)
    if found is not None:
        return found
    row, asked = call.row, call.row.ask(call, views)
    problem = Problem(row.op, **asked.fields)
    if row.sized and all(0 in call.views[name].shape for name in row.sized):
        return None, []
    plan = dispatcher.plan(problem, force=asked.force)
    names = [asked.sources.get(operand.name, operand.name) for operand in plan.operands]
    return dispatcher._keep(key, (plan, names))


# ---- New results ---------------------------------------------------------------------------------

# For each result of NumPy's that is made: its place among the arrays, and what makes it.
_Makers = List[Tuple[int, Callable[[], Any]]]
# What a row knows of a call -> the first maker, and all of them, or None where the first is alone
# and makes the last array.
_results: Dict[Any, Tuple[int, Callable[[], Any], Optional[_Makers]]] = {}


def _with_results(arrays: Arrays, makers: _Makers) -> Arrays:
    whole = list(arrays)
    for place, make in makers:
        whole[place] = make()
    return tuple(whole)


def _remember_results(call: Call, arrays: Arrays, options: Any, news: Sequence[New]) -> None:
    """arrays: with the new ones. They are made ahead for NumPy's arrays alone."""
    if not all(array is None or hasattr(array, "__array_interface__") for array in arrays):
        return
    found = [(call.row.slots.index(new.name), _maker(new.array, new.rest)) for new in news]
    is_last = len(found) == 1 and found[0][0] == len(arrays) - 1
    given = tuple(None if any(new.name == name for new in news) else array
                  for name, array in zip(call.row.slots, arrays))
    if len(_results) >= _warm.MOST_ENTRIES:
        _results.clear()
    try:
        _results[call.row.known(given, options)] = (*found[0], None if is_last else found)
    except Exception:  # an option or a type has no hash
        pass


def _maker(array: Any, rest: Optional[float]) -> Callable[[], Any]:
    """Makes an array that lies as a given one, which has no gaps."""
    numpy = sys.modules["numpy"]
    order = sorted(range(array.ndim), key=lambda i: -array.strides[i])
    how = tuple(array.shape[i] for i in order), array.dtype
    make = (functools.partial(numpy.empty, *how) if rest is None else
            functools.partial(numpy.zeros, *how) if rest == 0 else
            functools.partial(numpy.full, how[0], rest, how[1]))
    if order == sorted(order):
        return make
    back = sorted(order, key=order.__getitem__)
    return lambda: make().transpose(back)
