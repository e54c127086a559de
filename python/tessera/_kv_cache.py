"""A cache of keys and values in pages, which sequences get as they grow and give back."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _arrays, _dtypes, _values
from ._abi import Error
from ._append import append_kv
from ._attention import attention


class KvCache:
    """Keys and values of sequences, for one layer of a network or for several.

    cache = KvCache(pages=64, page_size=16, heads_kv=2, hdim=64, layers=4)
    texts = [cache.add() for _ in range(3)]
    step = cache.step(texts, 1)                        # room for one new token of each
    for layer in range(4):
        q = step.append(layer, k_new, v_new, q=q, cos=cos, sin=sin, rotary="half")
        out = step.attend(layer, q)
    cache.free(texts[0])

    pages, page_size: of the cache, for all sequences; a page holds page_size tokens of one
    sequence. heads_kv, hdim, hdim_v: heads of keys and values, and their elements. dtype: float32,
    float16 or bfloat16, or float8_e4m3fn or float8_e5m2 for new keys, values and queries of more
    bits. like: an array of PyTorch, CuPy or NumPy in whose package, and on whose device, the cache
    lies; its type is the cache's where dtype is left out.
    descale_k, descale_v: factors of a cache of 8 bits, numbers or float32 (heads_kv,), one pair for
    all layers. Without them each token's head gets a factor when it is appended.

    keys and values are lists with an array for each layer, (pages, page_size, heads_kv, hdim) and
    (pages, page_size, heads_kv, hdim_v), which attention() and other libraries take with a step's
    page_table. descales is a list with the factors of each layer's keys and values, a pair, which
    are (pages, heads_kv, page_size) where tokens have their own; (None, None) without 8 bits. All
    layers have the same pages. The cache is not for several threads at a time.
    """

    def __init__(self, *, pages: int, heads_kv: int, hdim: int, page_size: int = 16,
                 hdim_v: Optional[int] = None, layers: int = 1, dtype: Any = None,
                 like: Any = None, descale_k: Any = None, descale_v: Any = None) -> None:
        hdim_v = hdim if hdim_v is None else hdim_v
        pages, heads_kv, hdim, page_size, hdim_v, layers = (
            _values.at_least(f"KvCache: {name}", value, 1) for name, value in (
                ("pages", pages), ("heads_kv", heads_kv), ("hdim", hdim),
                ("page_size", page_size), ("hdim_v", hdim_v), ("layers", layers)))
        if like is None:
            import numpy
            like = numpy.empty(0, "float32")
        view = _arrays.view_of(like, "like")
        word = view.dtype if dtype is None else _dtypes.word_of(dtype, "dtype")
        if word not in _TYPES:
            raise Error("KvCache: dtype must be one of " +
                        ", ".join(_dtypes.NAMES[known] for known in _TYPES) +
                        f", got {_dtypes.NAMES[word]}")
        lead = (pages, page_size, heads_kv)
        self.keys, self.values = ([_zeros((*lead, n), word, like, view) for _ in range(layers)]
                                  for n in (hdim, hdim_v))
        self.descales = _descales((descale_k, descale_v), word, layers,
                                  lambda: _zeros((pages, heads_kv, page_size), "fp32", like, view))
        self.page_size = page_size
        self._like = like
        self._free = list(range(pages))[::-1]
        self._pages: Dict[int, List[int]] = {}
        self._lengths: Dict[int, int] = {}
        self._shortened: Dict[int, int] = {}  # how often; a step from before has lost its places
        self._next = 0

    # ---- Sequences -------------------------------------------------------------------------------

    def add(self) -> int:
        """A new sequence without tokens: its number, which no other sequence gets."""
        self._next += 1
        self._pages[self._next], self._lengths[self._next] = [], 0
        self._shortened[self._next] = 0
        return self._next

    def free(self, sequence: int) -> None:
        """Forgets a sequence, whose pages others may get. Its steps end."""
        self._check(sequence)
        self._free.extend(reversed(self._pages.pop(sequence)))
        del self._lengths[sequence], self._shortened[sequence]

    def truncate(self, sequence: int, length: int) -> None:
        """Keeps the first `length` tokens, as after a guess that was wrong. Where that makes the
        sequence shorter, its steps end."""
        self._check(sequence)
        if not 0 <= _whole("length", length) <= self._lengths[sequence]:
            raise Error(f"KvCache: length must be at least 0 and at most "
                        f"{self._lengths[sequence]}, which the sequence has, got {length}")
        pages, kept = self._pages[sequence], -(-length // self.page_size)
        self._free.extend(reversed(pages[kept:]))
        del pages[kept:]
        self._shortened[sequence] += length < self._lengths[sequence]
        self._lengths[sequence] = length

    def length(self, sequence: int) -> int:
        """How many tokens a sequence has."""
        self._check(sequence)
        return self._lengths[sequence]

    def pages_of(self, sequence: int) -> List[int]:
        """The pages of a sequence, in the order of its tokens."""
        self._check(sequence)
        return list(self._pages[sequence])

    @property
    def free_pages(self) -> int:
        """How many pages no sequence has."""
        return len(self._free)

    # ---- Steps -----------------------------------------------------------------------------------

    def step(self, sequences: Sequence[int], tokens: Union[int, Sequence[int]] = 1) -> "Step":
        """Makes room for new tokens of each sequence, which then count as its own.

        tokens: how many, of all or of each. Append them in every layer before the next step. Where
        pages are missing, nothing changes.
        """
        rows = _values.items("KvCache: sequences", sequences)
        for row in rows:
            self._check(row)
        if len(set(rows)) != len(rows):
            raise Error(f"KvCache: a step has each sequence once, got {rows}")
        counts = self._counts(rows, tokens)
        needed = [max(0, -(-(self._lengths[row] + count) // self.page_size)
                      - len(self._pages[row])) for row, count in zip(rows, counts)]
        if sum(needed) > len(self._free):
            raise Error(f"KvCache: the new tokens need {sum(needed)} pages, but {len(self._free)} "
                        "are free; free() sequences, or make a cache of more pages")
        before = [self._lengths[row] for row in rows]
        for row, count, pages in zip(rows, counts, needed):
            self._pages[row].extend(self._free.pop() for _ in range(pages))
            self._lengths[row] += count
        return self._step(rows, before, counts)

    def _counts(self, rows: List[int], tokens: Union[int, Sequence[int]]) -> List[int]:
        try:
            counts = [_whole("tokens", tokens)] * len(rows)
        except Error:
            counts = [_whole("tokens", count)
                      for count in _values.items("KvCache: tokens", tokens)]
        if len(counts) != len(rows):
            raise Error(f"KvCache: tokens must hold {len(rows)} numbers, one for each sequence, "
                        f"got {len(counts)}")
        for count in counts:
            if count < 0:
                raise Error(f"KvCache: tokens must be at least 0, got {count}")
        return counts

    def _step(self, rows: List[int], before: List[int], counts: List[int]) -> "Step":
        """Tables grow by doubling, so that few plans serve a text as it grows. Entries that no
        sequence needs hold page 0 and are not read."""
        import numpy
        width = 1
        while width < max((len(self._pages[row]) for row in rows), default=1):
            width *= 2
        table = numpy.zeros((len(rows), width), "int32")
        for i, row in enumerate(rows):
            table[i, :len(self._pages[row])] = self._pages[row]
        new = numpy.array(counts, "int32")
        old = numpy.array(before, "int32")
        is_even = len(set(counts)) <= 1
        table, old, new, both = (_arrays.from_host(x, self._like, "a step on a GPU cannot be made")
                                 for x in (table, old, new, old + new))
        return Step(self, table, old, both, None if is_even else new, max(counts, default=0), new,
                    tuple(rows), tuple(self._shortened[row] for row in rows))

    def _check(self, sequence: int) -> None:
        if _whole("a sequence", sequence) not in self._lengths:
            raise Error(f"KvCache: there is no sequence {sequence}; add() makes one")


class Step(NamedTuple):
    """What a step of some sequences of a KvCache needs: int32 arrays beside the cache.

    It serves until one of its sequences is freed or made shorter, because others may have their
    pages then.
    """

    cache: KvCache
    page_table: Any  # (sequences, entries)
    before: Any      # (sequences,): tokens without the new ones
    lengths: Any     # (sequences,): with them
    counts: Any      # (sequences,): of new tokens; None where all sequences have as many
    tokens: int      # the most of them
    queries: Any     # (sequences,): of new tokens, in any case
    sequences: Tuple[int, ...]
    shortened: Tuple[int, ...]  # how often each sequence was, before the step

    def append(self, layer: int, k_new: Any, v_new: Any, *, q: Any = None, **options: Any) -> Any:
        """Writes the new tokens' keys and values, (sequences, tokens, heads_kv, hdim), into a
        layer. q, options: as in append_kv(): cos, sin, rotary, out, stream, dispatcher. Returns q
        turned, None without it."""
        self._check(layer, options, _APPENDED, {"k_new": k_new, "v_new": v_new, "q": q})
        descale_k, descale_v = self.cache.descales[layer]
        return append_kv(self.cache.keys[layer], self.cache.values[layer], k_new, v_new,
                         self.before, q=q, page_table=self.page_table, check_pages=False,
                         seqlens_q=self.counts, descale_k=descale_k, descale_v=descale_v,
                         **options)

    def attend(self, layer: int, q: Any, **options: Any) -> Any:
        """Attention of the new tokens, q (sequences, tokens, heads, hdim), over all keys up to
        their own. options: as in attention(), but for those that the step says itself: lengths,
        pages and the layout."""
        self._check(layer, options, _ATTENDED, {"q": q})
        if self.tokens != 1:
            options.setdefault("mask", "bottom_right")
        descale_k, descale_v = self.cache.descales[layer]
        return attention(q, self.cache.keys[layer], self.cache.values[layer],
                         page_table=self.page_table, seqlens_q=self.queries,
                         seqlens_k=self.lengths, check_pages=False, descale_k=descale_k,
                         descale_v=descale_v, **options)

    def _check(self, layer: int, options: Dict[str, Any], known: Sequence[str],
               arrays: Dict[str, Any]) -> None:
        """The kernels trust the step's pages and lengths, so that all else must fit to them."""
        layers = len(self.cache.keys)
        if not 0 <= _whole("layer", layer) < layers:
            raise Error(f"KvCache: layer must be at least 0 and below {layers}, got {layer}")
        for option in options:
            if option not in known:
                raise Error(f"KvCache: a step takes no option '{option}'; it takes " +
                            ", ".join(known), "not_found")
        for row, times in zip(self.sequences, self.shortened):
            if self.cache._shortened.get(row) != times:
                ended = "made shorter" if row in self.cache._shortened else "freed"
                raise Error(f"KvCache: sequence {row} was {ended} after the step; make a new step")
        for name, array in arrays.items():
            if array is None and name == "q":
                continue
            shape, rows = _arrays.shape_of(array, name), len(self.sequences)
            if len(shape) != 4 or shape[:2] != (rows, self.tokens):
                raise Error(f"KvCache: {name} must have the shape ({rows}, {self.tokens}, heads, "
                            f"elements a head), the step's sequences and tokens, got {shape}")


_EIGHT_BITS = ("fp8", "bf8")
_TYPES = ("fp32", "fp16", "bf16", *_EIGHT_BITS)

# What a step's calls may say besides; the rest is the step's.
_APPENDED = ("cos", "sin", "rotary", "out", "stream", "dispatcher")
_ATTENDED = ("mask", "window", "sink", "bias", "slopes", "scale", "soft_cap", "skip_q", "dropout",
             "seed", "offset", "num_splits", "return_lse", "return_random", "out", "lse", "stream",
             "dispatcher")


def _whole(name: str, value: Any) -> int:
    return _values.whole(f"KvCache: {name}", value)


def _descales(given: Tuple[Any, Any], word: str, layers: int, new: Any) -> List[Tuple[Any, Any]]:
    """The factors of each layer. new: makes those of tokens."""
    if word not in _EIGHT_BITS:
        if given != (None, None):
            raise Error("KvCache: descale_k and descale_v are for a cache of 8 bits, got "
                        f"{_dtypes.NAMES[word]}")
        return [(None, None)] * layers
    if (given[0] is None) != (given[1] is None):
        raise Error("KvCache: descale_k and descale_v must be given together")
    if given[0] is not None:
        return [given] * layers
    return [(new(), new()) for _ in range(layers)]


def _zeros(shape: Any, word: str, like: Any, view: _arrays.View) -> Any:
    made = _arrays.empty(shape, word, like, view)
    made[...] = 0
    return made
