"""LightGBM's text models, read and evaluated without LightGBM."""
from __future__ import annotations

import gzip
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional

import numpy

from tessera import Error

_ZERO = 1e-35  # LightGBM takes smaller numbers for zero


class Tree(NamedTuple):
    feature: Any
    threshold: Any
    decision: Any
    left: Any
    right: Any
    value: Any
    category_starts: Any  # into category_words
    category_words: Any


class Forest(NamedTuple):
    feature_names: List[str]
    trees: List[Tree]
    average: bool

    def predict(self, rows: Any) -> Any:
        """The sum of all trees for each row; rows: (n, features)."""
        table = numpy.asarray(rows, numpy.float64)
        if table.ndim != 2 or table.shape[1] != len(self.feature_names):
            raise Error(f"the model has {len(self.feature_names)} features, and rows have "
                        f"{table.shape[-1]}; the two must be equal")
        total = numpy.zeros(len(table))
        is_whole = not numpy.isnan(table).any()
        for tree in self.trees:
            only_compares = is_whole and len(tree.feature) and not (tree.decision & 5).any()
            total += (_compared_leaves if only_compares else _leaves)(tree, table)
        return total / len(self.trees) if self.average and self.trees else total


def read(path: Any) -> Forest:
    """A file, plain or ending in .gz. Raises Error for one that is no such model."""
    file = pathlib.Path(path)
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
        return parse(text)
    except OSError as error:
        raise Error(f"{file} cannot be read: {error}", "io_error") from None
    except (KeyError, ValueError, IndexError, EOFError) as error:
        raise Error(f"{file} is no text model of LightGBM: {error!r}", "parse_error") from None


def parse(text: str) -> Forest:
    if not text.startswith("tree"):
        raise ValueError("it does not begin with 'tree'")
    head, *blocks = text.split("\nTree=")
    names = _fields(head)["feature_names"].split()
    trees = [_tree(_fields(block.partition("\nend of trees")[0])) for block in blocks]
    for tree in trees:
        if len(tree.feature) and int(max(tree.feature)) >= len(names):
            raise ValueError(f"a tree asks for feature {int(max(tree.feature))} of {len(names)}")
    return Forest(names, trees, "\naverage_output" in head)


def _fields(block: str) -> Dict[str, str]:
    return dict(line.partition("=")[::2] for line in block.split("\n") if "=" in line)


def _numbers(fields: Dict[str, str], name: str, kind: Any, default: Optional[str] = None) -> Any:
    words = (fields[name] if default is None else fields.get(name, default)).split()
    return numpy.array(words, numpy.float64).astype(kind)


def _tree(fields: Dict[str, str]) -> Tree:
    if int(fields["num_leaves"]) < 2:
        return Tree(*(numpy.zeros(0, int),) * 5, _numbers(fields, "leaf_value", float),
                    numpy.zeros(1, int), numpy.zeros(0, numpy.int64))
    if int(fields.get("is_linear", "0")):
        raise ValueError("a linear tree")
    return Tree(_numbers(fields, "split_feature", int), _numbers(fields, "threshold", float),
                _numbers(fields, "decision_type", int), _numbers(fields, "left_child", int),
                _numbers(fields, "right_child", int), _numbers(fields, "leaf_value", float),
                _numbers(fields, "cat_boundaries", int, "0"),
                _numbers(fields, "cat_threshold", numpy.int64, ""))


def _compared_leaves(tree: Tree, table: Any) -> Any:
    """As _leaves() where nothing is missing, no zero counts as missing, and there are no
    categories."""
    found, rows, node = numpy.empty(len(table)), numpy.arange(len(table)), 0
    while len(rows):
        goes_left = table[rows, tree.feature[node]] <= tree.threshold[node]
        node = numpy.where(goes_left, tree.left[node], tree.right[node])
        inner = node >= 0
        found[rows[~inner]] = tree.value[~node[~inner]]
        rows, node = rows[inner], node[inner]
    return found


def _leaves(tree: Tree, table: Any) -> Any:
    """The value of each row's leaf. Inner nodes count from 0, leaves are -1, -2, ..."""
    count = len(table)
    if not len(tree.feature):
        return numpy.full(count, tree.value[0])
    node = numpy.zeros(count, int)
    while (inner := node >= 0).any():
        rows = numpy.nonzero(inner)[0]
        at = node[rows]
        goes_left = _decide(tree, at, table[rows, tree.feature[at]])
        node[rows] = numpy.where(goes_left, tree.left[at], tree.right[at])
    return tree.value[-node - 1]


def _decide(tree: Tree, at: Any, values: Any) -> Any:
    """Bit 0: by category; bit 1: what is missing goes left; bits 2 and 3: 1 zeros, 2 NaN is
    missing."""
    decision = tree.decision[at]
    missing_kind = decision >> 2 & 3
    nan = numpy.isnan(values)
    known = numpy.where(nan & (missing_kind != 2), 0.0, values)
    missing = numpy.where(missing_kind == 1, abs(known) <= _ZERO, nan & (missing_kind == 2))
    with numpy.errstate(invalid="ignore"):
        left = numpy.where(missing, (decision & 2) != 0, known <= tree.threshold[at])
    by_category = (decision & 1) != 0
    for i in numpy.nonzero(by_category)[0]:
        left[i] = _is_in(tree, int(tree.threshold[at[i]]), values[i])
    return left


def _is_in(tree: Tree, which: int, value: float) -> bool:
    if not numpy.isfinite(value) or value < 0:
        return False
    word, bit = divmod(int(value), 32)
    first, last = tree.category_starts[which], tree.category_starts[which + 1]
    return word < last - first and bool(int(tree.category_words[first + word]) >> bit & 1)
