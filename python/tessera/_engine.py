"""The engine of all functions on arrays: from the arrays of a call to the launch of its plan.

A function is a Row, which says what the function has of its own: the names of its arrays, the
results that it makes, the problem that it asks for. The engine does what all functions have in
common. A later call on arrays of the same types, shapes and strides finds its plan in a table.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, _arrays, _warm
from ._arrays import View
from ._dispatcher import Dispatcher, check_views, default_dispatcher, dispatcher_for
from ._problem import Problem

Views = Dict[str, View]
Arrays = _warm.Arrays  # in the order of a row's slots; None: not given


class New(NamedTuple):
    """An array that was made for a result."""

    name: str
    array: Any
    rest: Optional[float] = None  # what it holds where no kernel writes; None: anything


class Call(NamedTuple):
    """A call whose plan is in no table."""

    options: Any            # as the row's check() returned them
    given: Dict[str, Any]   # the arrays, with new results
    views: Views            # of them
    packed: Any             # a PackedWeight, or None


class Row(NamedTuple):
    """What a function has of its own. Its options differ from those of all others, because all
    functions share a dispatcher's tables."""

    op: str                   # the operation of its problems
    slots: Tuple[str, ...]    # the names of its arrays
    needed: Tuple[str, ...]   # the arrays without which a call is refused
    written: Tuple[str, ...]  # the arrays that a kernel writes
    check: Callable[[Any, Views], Any]     # checks the options beside the views; makes them plain
    make: Callable[[Call], Sequence[New]]  # makes the results that are not given
    # The problem's fields, from such options and the views. Beside them, where an operand has
    # another name than its array, the arrays' names by the operands'.
    ask: Callable[[Any, Views], Any]
    sized: Tuple[str, ...] = ()  # nothing is launched where none of these has an element
    labels: Mapping[str, str] = {}  # what sentences call an array, where it is not its slot
    # How to look at arrays of types that no problem knows, by name.
    looks: Mapping[str, Callable[[Any, str, Optional[int]], View]] = {}
    # The views of one launch, and by how many bytes the arrays of each launch lie further on.
    parts: Optional[Callable[[Views], Tuple[Views, List[Dict[str, int]]]]] = None


def run(row: Row, arrays: Arrays, options: Any, stream: Any, dispatcher: Optional[Dispatcher],
        packed: Any = None) -> Arrays:
    """Launches a call, and returns its arrays with all results. options: what the call says
    besides, in the caller's words. packed: the PackedWeight whose memory is the array b."""
    found: Any = False
    if stream is None:
        try:
            table = (default_dispatcher() if dispatcher is None else dispatcher)._table
        except AttributeError:  # no dispatcher, which is refused below
            table = {}
        found = _warm.call(table, arrays, options)
        if type(found) is tuple:
            return found
        if type(found) is int:
            raise _abi.last_error(found)
    return _first(row, arrays, options, stream, dispatcher, packed, found)


def _first(row: Row, arrays: Arrays, options: Any, stream: Any, dispatcher: Optional[Dispatcher],
           packed: Any, found: Any) -> Arrays:
    """A call whose plan is in no table. found: what the table said."""
    stream = _arrays.stream_address(stream)
    given = {name: array for name, array in zip(row.slots, arrays)
             if array is not None or name in row.needed}
    views = {name: _look(row, name, array, stream) for name, array in given.items()}
    chosen = dispatcher_for(dispatcher, next(iter(views.values())))
    check_views(chosen, [(row.labels.get(name, name), view) for name, view in views.items()])
    if packed is not None:
        views["b"] = packed.view  # its memory alone says neither shape nor type
    call = Call(row.check(options, views), given, views, packed)
    news = row.make(call)
    for name, array, rest in news:
        if rest is not None:
            array[...] = rest
        given[name], views[name] = array, _look(row, name, array, stream)
    for name in row.written:
        if name in views:
            _arrays.check_output(views[name], row.labels.get(name, name))
    whole = tuple(map(given.get, row.slots))
    plan, names, offsets = _plan_of(row, call, chosen)
    if plan is None:
        return whole
    launch = _abi.LaunchOptions(stream=stream) if stream else None
    for offset in offsets:
        plan.launch_at([views[name].address + offset.get(name, 0) for name in names], launch)
    if "bad_page" in views and views["bad_page"].device[0] != "cpu":
        plan.synchronize(stream)  # what the launch found is read next
    if len(offsets) == 1 and found:
        place = row.slots.index
        _warm.remember(chosen, found, plan, [place(name) for name in names], whole,
                       [_warm.maker(place(name), array, rest) for name, array, rest in news])
    return whole


def _look(row: Row, name: str, array: Any, stream: Optional[int]) -> View:
    return row.looks.get(name, _arrays.view_of)(array, row.labels.get(name, name), stream)


def _plan_of(row: Row, call: Call, dispatcher: Dispatcher
             ) -> Tuple[Any, List[str], List[Dict[str, int]]]:
    """The plan, which is looked for by what the views say of the arrays, the array of each of its
    operands, and how far on the arrays of each launch lie. No plan where the results have no
    elements, but must be right all the same."""
    views, offsets = (call.views, [{}]) if row.parts is None else row.parts(call.views)
    key = call.options, tuple([(name, view[1:4]) for name, view in views.items()])
    found = dispatcher._plans.get(key)
    if found is None:
        asked = row.ask(call.options, views)
        fields, sources = asked if type(asked) is tuple else (asked, {})
        packed = call.packed
        problem = Problem(row.op, **(fields if packed is None else packed.fit(fields)))
        if row.sized and all(0 in call.views[name].shape for name in row.sized):
            return None, [], []
        plan = dispatcher.plan(problem, force=None if packed is None else packed.kernel)
        names = [sources.get(operand.name, operand.name) for operand in plan.operands]
        found = dispatcher._keep(key, (plan, names))
    return (*found, offsets)
