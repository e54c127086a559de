"""Attention: from arrays to a problem, its plan and its launch."""
from __future__ import annotations

from typing import Any, List, Optional

from . import (_arrays, _attention_dropout, _attention_fields, _attention_scales,
               _attention_shapes, _dtypes, _engine, _sequences)
from ._abi import Error
from ._arrays import Array
from ._checks import checked, refusal
from ._attention_shapes import Options
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._problem import Problem
from ._sequences import ARRAYS, NONE
from ._values import flag

# The order of a call's arrays.
SLOTS = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "page_table", "page_starts",
         "bad_page", "dropout_rng", *_attention_scales.NAMES, "out", "lse", "random_values")
_RESULTS = SLOTS.index("out")


def attention(q: Array, k: Array, v: Array, *, mask: Optional[str] = None, window: Any = None,
              sink: int = 0, bias: Optional[Array] = None, slopes: Optional[Array] = None,
              scale: Optional[float] = None, soft_cap: float = 0.0, seqlens_q: Any = None,
              seqlens_k: Any = None,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
              skip_q: int = 0, page_table: Any = None, page_starts: Any = None,
              check_pages: Optional[bool] = None, dropout: float = 0.0, seed: Any = None,
              offset: int = 0, descale_q: Any = None, descale_k: Any = None, descale_v: Any = None,
              scale_o: Any = None, scale_block_q: Optional[int] = None,
              scale_block_k: Optional[int] = None, num_splits: int = 0,
              return_lse: bool = False, return_random: bool = False, layout: str = "bshd",
              out: Optional[Array] = None, lse: Optional[Array] = None, stream: Any = None,
              dispatcher: Optional[Dispatcher] = None) -> Any:
    """softmax(scale * q @ k.T + bias) @ v of each sequence and head.

    q: (batch, queries, heads, hdim), k: (batch, keys, heads_kv, hdim), v: (batch, keys, heads_kv,
    hdim_v), of one type: float32, float16, bfloat16, float8_e4m3fn, float8_e5m2; or k and v of
    float8, and q of one of the others. heads_kv divides heads; consecutive query heads share one.
    layout="bhsd": heads before queries and keys. Any strides cost nothing.
    mask: "top_left": query i sees the keys up to i. "bottom_right": the last query sees the last
    key. window: (left, right), how far from this diagonal a query sees, -1 for no end; a mask alone
    is (-1, 0). sink: so many first keys are seen although they lie left of the window.
    bias: (batch, heads, queries, keys) or broadcast to it. slopes: (heads,) or (batch, heads) of
    float32, ALiBi: slope * -|distance to the bottom-right diagonal| is added. scale: None is
    1 / sqrt(hdim). soft_cap: scores become soft_cap * tanh(score / soft_cap); 0 is none.
    seqlens_q, seqlens_k: with arrays of 4 dimensions the sequences' lengths, without one of the two
    all of its length. With 3 dimensions, (tokens, heads, hdim), sequences lie one behind the other,
    and these are batch + 1 prefix sums of their lengths. Lists and arrays of whole numbers on a
    CPU, int32 on a GPU, where their values are not read: give max_seqlen_q and max_seqlen_k for
    speed, the longest lengths. skip_q: sequences of at most so many queries are left out; 0 is
    none.
    page_table: k and v are caches, (pages, tokens of a page, heads_kv, hdim), with layout="bhsd"
    heads before tokens, or in runs of x elements, 16 bytes: k (pages, heads_kv, hdim / x, tokens,
    x) and v (pages, heads_kv, tokens / x, hdim_v, x). page_table (batch, most pages) holds the
    pages of each sequence in order, or (pages of all sequences) with page_starts, batch + 1 prefix
    sums of how many each has. seqlens_k then holds the lengths of all sequences' keys.
    check_pages: whether a page out of range is an error, and nothing is written; None: where
    page_table lies on a CPU. On a GPU the call then waits for the launch. Without it such indices
    are taken as the nearest page.
    dropout: the part of the weights that become 0; the others grow, so that their mean stays.
    seed, offset: 64 bits each, which say which ones; a new offset is a new choice. seed may be an
    array of both, int64 or uint64, which a GPU's kernel reads when it runs.
    descale_q, descale_k, descale_v: what the numbers of float8 stand for: they times factors, which
    are one number each; or float32 (batch, heads, blocks of scale_block_q queries) and (batch,
    heads_kv, blocks of scale_block_k keys), both 128 where None, counted in each sequence; or one
    number for q and those of blocks for k and v, with page_table (pages, heads_kv), or those of
    heads, (heads_kv,), or of tokens, (batch, heads_kv, keys), with page_table (pages, heads_kv,
    tokens of a page). A q of more bits has none beside k and v of float8. scale_o: what a result of
    float8, which out then is, is multiplied by before it is rounded; it has at most the type's
    largest number. A new result of float8 inputs is float16. num_splits: into how many parts
    the keys are cut by kernels that can, 0 as suits the machine. return_lse: also
    returns the logarithms of the sums of exp(score), float32, (batch, heads, queries) or (heads,
    tokens). return_random: also returns dropout's random values, uint8, (batch, heads, queries,
    keys) or (heads, tokens, longest keys). out, lse: the places of the results. stream, dispatcher:
    as in matmul().

    A query that sees no key gets 0, and minus infinity in lse. Rows behind a sequence's length and
    those of skipped sequences are not written; in new results they hold the same.

    Returns out, or (out, lse), (out, random values), (out, lse, random values).
    """
    try:
        if bias is not None and slopes is not None:
            raise Error("bias and slopes cannot both be given; add the slopes to the bias")
        pages, report, lengths, longest = NONE, None, NONE, NONE
        if page_table is not None or page_starts is not None or check_pages is not None:
            pages, report = _sequences.pages_of(ARRAYS, q, page_table, page_starts, check_pages)
        if not (seqlens_q is seqlens_k is max_seqlen_q is max_seqlen_k is page_table is None):
            lengths, longest = _sequences.lengths(ARRAYS, q, k, (seqlens_q, seqlens_k),
                                                  (max_seqlen_q, max_seqlen_k), layout, pages)
        words = None
        if type(dropout) is not float or dropout != 0:
            words = _attention_dropout.words(dropout, seed, offset, q)
        scales = (descale_q, descale_k, descale_v, scale_o)
        if not (descale_q is descale_k is descale_v is scale_o is None):
            scales = _attention_scales.arrays_of(scales, q, out)
        wants_lse = flag("return_lse", return_lse)
        wants_random = flag("return_random", return_random)
        arrays = (q, k, v, bias, slopes, *lengths, *pages, report, words, *scales, out, lse, None)
        ends = tuple(window) if isinstance(window, list) else window
        options = Options(layout, mask, ends, sink, scale, soft_cap, skip_q, *longest, dropout,
                          (scale_block_q, scale_block_k), num_splits,
                          wants_lse or lse is not None, wants_random)
        results = _engine.run(_ROW, arrays, options, stream, dispatcher)[_RESULTS:]
        if report is not None:
            _sequences.check_report(report, pages, k)
    except Exception as failure:
        raise refusal(attention, locals(), failure) from None
    if not wants_lse and not wants_random:
        return results[0]
    return (results[0], *results[1:2] * wants_lse, *results[2:] * wants_random)


@checked
def attention_problem(*, batch: int, heads: int, seqlen_q: int, seqlen_k: int, hdim: int,
                      heads_kv: Optional[int] = None, hdim_v: Optional[int] = None,
                      dtype: Any = "fp32", mask: Optional[str] = None, window: Any = None,
                      sink: int = 0, layout: str = "bshd", **fields: Any) -> Problem:
    """An attention's Problem.

    attention_problem(batch=2, heads=32, heads_kv=8, seqlen_q=512, seqlen_k=512, hdim=128,
                      dtype="bf16", mask="top_left")

    fields: any other of the problem's, such as lse=1 or lengths="packed".
    """
    sizes = {"batch": batch, "heads": heads, "seqlen_q": seqlen_q, "seqlen_k": seqlen_k,
             "hdim": hdim}
    if heads_kv is not None:
        sizes["heads_kv"] = heads_kv
    if hdim_v is not None:
        sizes["hdim_v"] = hdim_v
    if _attention_shapes.layout_word(layout) == "bhsd":
        kv, last = sizes.get("heads_kv", heads), sizes.get("hdim_v", hdim)
        keys, parts = seqlen_k, batch
        if fields.get("pages", "none") != "none":
            keys, parts = fields.get("page_size", 1), fields.get("num_pages", 2)
        in_runs = fields.get("cache_layout") == "vectorized"
        for name, b, h, s, d in (("q", batch, heads, seqlen_q, hdim), ("k", parts, kv, keys, hdim),
                                 ("v", parts, kv, keys, last),
                                 ("out", batch, heads, seqlen_q, last)):
            if in_runs and name in "kv":
                continue
            lying = ((b, h * s * d), (s, d), (h, s * d), (d, 1))
            fields = {**_attention_shapes.stride_fields(name, lying), **fields}
    word = _dtypes.word_of(dtype, "dtype")
    return Problem("fmha", **sizes, **{"in": word, "out": _attention_scales.RESULTS.get(word, word),
                                       "dtype_bias": word,
                                       **_attention_fields.mask_fields(mask, window, sink),
                                       **fields})


# ---- Calls ---------------------------------------------------------------------------------------

def _make(call: Call) -> List[New]:
    options, q, like = call.options, call.views["q"], call.given["q"]
    found = _attention_shapes.results_of(options, q.shape, q.strides, call.views["k"].shape,
                                         call.views["v"].shape, "seqlens_q" in call.given)
    made = []
    if "out" not in call.given:
        word = _attention_scales.RESULTS.get(q.dtype, q.dtype)
        out = _arrays.empty_in(found.order, found.out, word, like, q)
        made.append(New("out", out, 0.0 if found.leaves else None))
    if options.lse and "lse" not in call.given:
        made.append(New("lse", _arrays.empty(found.lse, "fp32", like, q),
                        float("-inf") if found.leaves else None))
    if options.random:
        made.append(New("random_values", _arrays.full(
            found.random, 0, "uint8", like, "random values on a GPU cannot be made"), 0))
    return made


LOOKS = dict.fromkeys(_attention_dropout.NAMES, _attention_dropout.view_of)
_ROW = Row("fmha", SLOTS, ("q", "k", "v"), ("out", "lse"), _attention_fields.plain, _make,
           _attention_fields.problem_fields, sized=("out",), looks=LOOKS)
