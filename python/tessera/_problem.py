"""Problems: what is asked, and the operands that it needs."""
from __future__ import annotations

import json
import numbers
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from . import _abi, _values
from ._checks import checked
from ._dtypes import word_of


class Operand(NamedTuple):
    """One operand as it lies in memory.

    shape and strides have the order of NumPy, the innermost dimension last; strides count elements.
    With more than one batch, the first dimension is the batch.
    """

    name: str
    access: str  # "read", "write", "update"
    dtype: str   # Tessera's word: "bf16"
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    bytes: int
    in_array: bool  # the operand is an array of pointers, one for each batch


def _operand(row: Dict[str, Any]) -> Operand:
    shape, strides = tuple(row["sizes"][::-1]), tuple(row["strides"][::-1])
    if row["batches"] != 1 and not row["in_array"]:
        shape, strides = (row["batches"], *shape), (row["batch_stride"], *strides)
    return Operand(row["name"], row["access"], row["dtype"], shape, strides, row["bytes"],
                   row["in_array"])


class Problem(_abi.Handle):
    """What is asked: an operation, types, sizes, strides, epilogue. It does not change.

    Problem("gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu")
    Problem("gemm", m=128, n=3072, k=768, dtype="bf16", epilogue="bias+gelu")

    The words and fields are those of the command line. Types may be NumPy's (numpy.float32).
    Raises Error with the rule that the problem breaks.
    """

    _kind = "problem"
    _line: Optional[str] = None
    _described: Optional[Dict[str, Any]] = None

    def __init__(self, line: str, **fields: Any) -> None:
        if not isinstance(line, str):
            raise _abi.Error(f"a problem is a line such as 'gemm m=64 n=64 k=64', got "
                             f"{type(line).__name__} {_values.shown(line)}")
        one_word = fields and len(line.split()) == 1
        self._make("tsr_problem_create" if one_word else "tsr_problem_parse", _abi.encode(line))
        for field, value in fields.items():
            self._set(field, value)
        _abi.call("tsr_problem_validate", self)

    @classmethod
    @checked
    def from_json(cls, given: Union[str, Dict[str, Any]]) -> "Problem":
        """From {"op": "gemm", "m": 128, ...}, as text or as a dict."""
        made = cls.__new__(cls)
        made._make("tsr_problem_from_json", _abi.given_json(given))
        _abi.call("tsr_problem_validate", made)
        return made

    def _set(self, field: str, value: Any) -> None:
        name = _abi.encode(field)
        if isinstance(value, bool):
            _abi.call("tsr_problem_set_integer", self, name, int(value))
        elif isinstance(value, numbers.Integral):
            if not -2**63 <= int(value) < 2**63:
                raise _abi.Error(f"{field} must be at least -2^63 and below 2^63, got "
                                 f"{_values.shown(value)}")
            _abi.call("tsr_problem_set_integer", self, name, int(value))
        elif isinstance(value, numbers.Real):
            _abi.call("tsr_problem_set_number", self, name, _values.number(field, value))
        else:
            _abi.call("tsr_problem_set", self, name,
                      _abi.encode(value if isinstance(value, str) else word_of(value, field)))

    @checked
    def get(self, field: str) -> str:
        """One field's value as text; strides that follow from the sizes are written out."""
        return _abi.text("tsr_problem_get", self, _abi.encode(field))

    @property
    def line(self) -> str:
        """The problem in one line, lossless."""
        if self._line is None:
            self._line = _abi.text("tsr_problem_line", self)
        return self._line

    @property
    def op(self) -> str:
        return self.line.partition(" ")[0]

    def to_json(self) -> str:
        """The problem as JSON, lossless."""
        return _abi.text("tsr_problem_json", self)

    def _description(self) -> Dict[str, Any]:
        if self._described is None:
            self._described = json.loads(_abi.text("tsr_problem_describe", self))
        return self._described

    @property
    def flops(self) -> float:
        """Useful operations; a multiply-add counts as 2."""
        return self._description()["flops"]

    @property
    def bytes(self) -> float:
        """The least traffic, in bytes."""
        return self._description()["bytes"]

    @property
    def operands(self) -> List[Operand]:
        """The operands in the order of a launch."""
        return [_operand(row) for row in self._description()["operands"]]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Problem) and self.line == other.line

    def __hash__(self) -> int:
        return hash(self.line)

    def __str__(self) -> str:
        return self.line

    def __repr__(self) -> str:
        return f"tessera.Problem({self.line!r})"

    def __reduce__(self) -> Any:
        return Problem, (self.line,)


def as_problem(given: Union[str, Problem], **fields: Any) -> Problem:
    if isinstance(given, Problem):
        if fields:
            raise _abi.Error(f"a Problem does not change; the fields {', '.join(fields)} belong "
                             "into the line or into Problem(...)")
        return given
    return Problem(given, **fields)
