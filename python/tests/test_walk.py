"""Which functions of the package a call on arrays passes: a first call, and a warm one."""
import gc
import os
import sys
import unittest

import numpy

import tessera
from tessera import _warm
from support import Case

FOLDER = os.path.dirname(tessera.__file__)
# What every call has in common with Dispatcher.plan() and Plan.launch(): the library's objects.
OBJECTS = {"_abi", "_checks", "_dispatcher", "_plan", "_problem", "_warm"}


def _place(frame):
    """The module of the package and the function; None elsewhere. What a comprehension runs belongs
    to its function, as it does for Python 3.12 and later."""
    while frame is not None and frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>",
                                                         "<genexpr>"):
        frame = frame.f_back
    if frame is None or os.path.dirname(frame.f_code.co_filename) != FOLDER:
        return None
    return os.path.basename(frame.f_code.co_filename)[:-3], frame.f_code.co_name


def passed(call):
    """The package's functions that a call runs, in their order, each with the one that called it
    first."""
    found = {}

    def look(frame, event, _):
        place = _place(frame)
        if event == "call" and place is not None:
            found.setdefault(place, _place(frame.f_back))

    gc.collect()
    gc.disable()  # it would give objects back meanwhile, by functions of the package
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def walk_of(found, function):
    """What a reader passes who follows the function: the engine's functions, and those that it or
    the function calls."""
    return [name for (module, name), caller in found.items()
            if module not in OBJECTS and (module == "_engine" or name == function or
                                          (caller and (caller[0] == "_engine" or
                                                       caller[1] == function)))]


class Walk(Case):
    def setUp(self):
        self.dispatcher = tessera.Dispatcher(threads=1)

    def check(self, function, call, walk, count, warm):
        """call: of arrays of a size. walk: that of the first call. count: of all functions that it
        runs. warm: all functions of the second one."""
        call(1)  # fills what is known by types alone
        first, second = passed(lambda: call(2)), passed(lambda: call(2))
        self.assertEqual(walk_of(first, function), walk.split())
        self.assertLessEqual(len(walk.split()), 15)
        if _warm.has_fast():  # without it Python does what the extension does
            self.assertEqual(len(first), count, sorted(first))
            self.assertEqual([name for _, name in second], warm.split())

    def test_matmul(self):
        def call(size):
            a = numpy.ones((size, size), "float32")
            tessera.matmul(a, a, dispatcher=self.dispatcher)
        self.check("matmul", call,
                   "matmul run _first stream_address _look view_of _check _make check_output "
                   "_plan_of _launches_of problem_of", 66, "matmul run")

    def test_attention(self):
        def call(size):
            q = numpy.ones((1, size, 1, 8), "float32")
            tessera.attention(q, q, q, dispatcher=self.dispatcher)
        self.check("attention", call,
                   "attention flag run _first stream_address _look view_of plain _make "
                   "check_output _plan_of problem_fields", 66, "attention flag run")

    def test_attention_of_several_lengths(self):
        def call(size):
            q = numpy.ones((1, size, 1, 8), "float32")
            tessera.attention(q, q, q, seqlens_k=[size], dispatcher=self.dispatcher)
        self.check("attention", call,
                   "attention lengths flag run _first stream_address _look view_of plain _make "
                   "check_output _plan_of problem_fields", 78,
                   "attention lengths layout_word shape_of shape_of check_ranks check_equal "
                   "tokens_in _length _full full package_of is_on_host _row _whole_numbers "
                   "check_lengths flag run")


if __name__ == "__main__":
    unittest.main()
