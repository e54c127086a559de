#!/usr/bin/env python3
"""Gives every function, method and constructor of the Python package wrong values.

    python3 tools/attack/hostile_arguments.py [SEED [ROUNDS]]

Each call is right but for one argument, which holds a value of a catalogue or a changed copy of the
right one. It may work, or raise a tessera.Error whose text is a sentence of the package. All else
is printed: other exceptions, words of other packages, and crashes. PYTHONPATH and TESSERA_LIBRARY
say what is attacked. Exit status 1 where something was found.
"""
import os
import random
import re
import sys
import tempfile
import traceback

import numpy

import tessera


class Odd:
    """An object that has what arrays have, and all of it wrong."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __repr__(self):
        return "<odd\nobject>"


class Raises:
    """An object whose every use fails."""

    def _fail(self, *_):
        raise RuntimeError("hostile")

    __str__ = __repr__ = __len__ = __iter__ = __index__ = __float__ = __bool__ = _fail
    __array__ = __eq__ = __hash__ = __dlpack__ = __dlpack_device__ = _fail
    shape = dtype = __array_interface__ = property(_fail)


def scalars():
    """Values that are no arrays."""
    knot = []
    knot.append(knot)
    numbers = [-1, 0, 1, 3, 2**31, -2**31 - 1, 2**63, 2**70, -2**70, 10**5000, True, 0.0, -0.5, 1.5,
               float("nan"), float("inf"), 1e308, 1j, numpy.float32(1), numpy.int64(2),
               numpy.bool_(True)]
    texts = ["", "x", "fp32", "a\0b", "\ud800", "{", b"", b"\xff", bytearray(b"x"), numpy.str_("x")]
    groups = [(), (1,), (1, 2, 3), (None, None), ("a", "b"), [], [1], [[1]], [None], [2**70], ["x"],
              [1.5], knot, {}, {"x": 1}, {1: 2}, {"packs": 5}, {"cache_bytes": "x"}, set(), {1},
              range(3), iter(())]
    odd = [Odd(), Odd(shape=5), Odd(shape=(2, "x")), Odd(dtype="float32"),
           Odd(shape=(2, 2), dtype="float32"), Odd(__array_interface__=None, dtype="float32"),
           Odd(__array_interface__={}, dtype=numpy.dtype("float32")), Raises()]
    others = [None, object(), int, float, numpy, len, lambda: 1, slice(3), ..., NotImplemented,
              numpy.dtype("float32"), numpy.float32, tessera.Error("x"),
              tessera.Problem("gemm m=1 n=1 k=1")]
    return [*others, *numbers, *texts, *groups, *odd]


def arrays(draw):
    """Arrays that fit nowhere."""
    x = draw.standard_normal((3, 4)).astype("float32")
    fixed = x.copy()
    fixed.flags.writeable = False
    found = [x, x[0], x[:0], x[:, ::2], x[::-1], x.T, x[None, None], fixed, x.astype("float64"),
             x.astype("float16"), x.astype(">f4"), x.astype("complex64"), x.astype("int8"), x > 0,
             numpy.tril(numpy.ones((4, 4))), numpy.arange(4), numpy.zeros((), "float32"),
             numpy.zeros((0, 8), "float32"), numpy.array(["a"]), numpy.array([None]),
             numpy.broadcast_to(x[:1], (3, 4)), numpy.zeros(3, [("a", "f4")]),
             numpy.array([2**63], "uint64"), numpy.zeros((1,) * 30, "float32"),
             numpy.ma.masked_array(x), memoryview(x), memoryview(b"abc"), x.tolist()]
    torch = sys.modules.get("torch")
    if torch is not None:
        found += [torch.ones(3, 4), torch.ones(3, 4, requires_grad=True),
                  torch.ones(3, 4).to_sparse(), torch.empty(3, 4, device="meta"),
                  torch.ones(2).to(torch.complex64)]
    return found


def changed(value, draw):
    """The right array with something wrong."""
    if not isinstance(value, numpy.ndarray):
        return []
    fixed = value.copy()
    fixed.flags.writeable = False
    wide = numpy.zeros((*value.shape, 2), value.dtype)[..., 0]
    found = [fixed, wide, value[..., None], value[None], value[:0], value[:-1], value[..., :-1],
             value.astype("float64"), value.astype("float16"), value.astype("int8"), value.ravel(),
             value.tolist(), value.tobytes(), numpy.broadcast_to(value[:1], value.shape), value.T,
             numpy.asfortranarray(value), numpy.zeros((0, *value.shape[1:]), value.dtype),
             value[::-1]]
    torch = sys.modules.get("torch")
    if torch is not None and value.dtype.kind in "fi":
        found += [torch.from_numpy(value.copy()), torch.from_numpy(value.copy()).requires_grad_()
                  if value.dtype.kind == "f" else None]
    if value.ndim:
        end = list(value.shape)
        end[int(draw.integers(0, value.ndim))] += 1
        found.append(numpy.zeros(end, value.dtype))
    return found


# ---- What is attacked ----------------------------------------------------------------------------

def functions(draw):
    """(name, the function, its right arguments by name)."""
    def x(*shape):
        return draw.standard_normal(shape).astype("float32")

    d = tessera.Dispatcher(threads=1)
    lengths = numpy.array([3, 5], "int32")
    table = numpy.array([[0, 1], [2, 3]], "int32")
    more = dict(dispatcher=d, stream=None)
    line = "gemm m=4 n=4 k=4"
    rows = {"out": x(3, 8), **more}
    q, k, v = x(2, 5, 4, 8), x(2, 5, 2, 8), x(2, 5, 2, 8)
    out, lse = tessera.attention(q, k, v, return_lse=True, dispatcher=d)
    heads = dict(mask=None, window=None, sink=0, bias=None, slopes=None, scale=None, soft_cap=0.0,
                 seqlens_q=None, seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, skip_q=0,
                 dropout=0.0, seed=None, offset=0, layout="bshd", dispatcher=d)
    scored = dict(page_table=None, page_starts=None, check_pages=None, descale_q=None,
                  descale_k=None, descale_v=None, scale_o=None, scale_block_q=None,
                  scale_block_k=None, num_splits=0, return_lse=False, return_random=False,
                  out=None, lse=None, stream=None)
    cos = x(16, 4)
    new = dict(k_new=x(2, 1, 2, 8), v_new=x(2, 1, 2, 8))
    turned = dict(cos=cos, sin=cos.copy(), rotary="half")
    paged = dict(page_table=table, page_starts=None, check_pages=None)
    caches = dict(k_cache=x(4, 4, 2, 8), v_cache=x(4, 4, 2, 8))
    moved = dict(stride=1, padding=1, dilation=1, groups=1, layout="nhwgc", **more)
    image, weight, gradient = x(2, 6, 6, 4), x(8, 3, 3, 4), x(2, 6, 6, 8)
    packed = tessera.prepack(x(8, 4), dispatcher=d)
    return [
        ("matmul", tessera.matmul, dict(a=x(3, 8), b=x(8, 4), bias=x(4), activation=None,
                                        residual=x(3, 4), out=x(3, 4), alpha=1.0, beta=0.0,
                                        **more)),
        ("matmul new", tessera.matmul, dict(a=x(3, 8), b=x(8, 4), bias=None, activation="relu",
                                            residual=None, out=None, alpha=1.0, beta=0.0, **more)),
        ("matmul packed", tessera.matmul, dict(a=x(3, 8), b=packed, bias=None, out=None, **more)),
        ("prepack", tessera.prepack, dict(b=x(8, 4), rows=8, bias=False, activation=None,
                                          residual=False, out=None, extra=None, **more)),
        ("softmax", tessera.softmax, dict(x=x(3, 8), **rows)),
        ("rms_norm", tessera.rms_norm, dict(x=x(3, 8), scale=x(8), residual=x(3, 8), epsilon=1e-5,
                                            sum=None, **rows)),
        ("layer_norm", tessera.layer_norm, dict(x=x(3, 8), scale=x(8), shift=x(8), residual=None,
                                                epsilon=1e-5, out=None, sum=None, **more)),
        ("conv", tessera.conv, dict(x=image, w=weight, bias=x(8), residual=None, activation=None,
                                    alpha=1.0, beta=0.0, out=None, **moved)),
        ("conv_backward_data", tessera.conv_backward_data,
         dict(grad_out=gradient, w=weight, size=(6, 6), alpha=1.0, beta=0.0, out=None, **moved)),
        ("conv_backward_weight", tessera.conv_backward_weight,
         dict(x=image, grad_out=gradient, filter=(3, 3), alpha=1.0, beta=0.0, out=None, **moved)),
        ("conv_problem", tessera.conv_problem,
         dict(direction="forward", n=2, c=4, k=8, size=(6, 6), filter=3, stride=1, padding=1,
              dilation=1, groups=1, dtype="fp32", layout="nhwgc", epilogue="bias")),
        ("attention", tessera.attention, dict(q=q, k=k, v=v, **heads, **scored)),
        ("attention masked", tessera.attention,
         dict(q=q, k=k, v=v, mask="top_left", window=(-1, 0), sink=1, bias=x(1, 4, 5, 5),
              dropout=0.1, seed=3, offset=1, seqlens_q=lengths, seqlens_k=lengths, return_lse=True,
              return_random=True, out=x(2, 5, 4, 8), dispatcher=d)),
        ("attention packed", tessera.attention,
         dict(q=x(8, 4, 8), k=x(8, 2, 8), v=x(8, 2, 8), seqlens_q=[0, 3, 8], seqlens_k=[0, 3, 8],
              max_seqlen_q=5, max_seqlen_k=5, slopes=x(4), skip_q=0, dispatcher=d)),
        ("attention paged", tessera.attention,
         dict(q=q, k=caches["k_cache"], v=caches["v_cache"], seqlens_k=lengths, seqlens_q=None,
              max_seqlen_k=None, **paged, dispatcher=d)),
        ("attention_backward", tessera.attention_backward,
         dict(dout=x(2, 5, 4, 8), q=q, k=k, v=v, out=out, lse=lse, return_dbias=False, **heads)),
        ("attention_problem", tessera.attention_problem,
         dict(batch=2, heads=4, seqlen_q=5, seqlen_k=5, hdim=8, heads_kv=2, hdim_v=None,
              dtype="fp32", mask=None, window=None, sink=0, layout="bhsd")),
        ("append_kv", tessera.append_kv,
         dict(k_cache=x(2, 9, 2, 8), v_cache=x(2, 9, 2, 8), seqlens_k=lengths, q=x(2, 1, 4, 8),
              seqlens_q=None, max_seqlen_q=None, page_table=None, page_starts=None,
              check_pages=None, layout="bshd", out=None, **new, **turned, **more)),
        ("append_kv paged", tessera.append_kv,
         dict(seqlens_k=lengths, seqlens_q=[1, 0], **caches, **new, **paged, dispatcher=d)),
        ("decode", tessera.decode,
         dict(q=x(2, 1, 4, 8), k_cache=x(2, 9, 2, 8), v_cache=x(2, 9, 2, 8), seqlens_k=lengths,
              seqlens_q=None, window=None, sink=0, slopes=None, scale=None, soft_cap=0.0,
              max_seqlen_k=None, num_splits=0, return_lse=False, layout="bshd", out=None, **new,
              **turned, **more)),
        ("decode paged", tessera.decode,
         dict(q=x(2, 1, 4, 8), seqlens_k=lengths, **caches, **new, **paged, dispatcher=d)),
        ("run", tessera.run, dict(problem=line, a=x(4, 4), b=x(4, 4), out=x(4, 4), verify=False,
                                  **more)),
        ("gemm", tessera.gemm, dict(problem=None, m=4, n=4, k=4, a=x(4, 4), b=x(4, 4), c=None,
                                    d0=None, out=None, verify=False, **more)),
        ("select", tessera.select, dict(problem=line, target=None, threads=0, force=None)),
        ("explain", tessera.explain, dict(problem=line, target=None, threads=0, force=None,
                                          everything=False)),
    ]


def objects(draw):
    """The same of constructors and methods."""
    def x(*shape):
        return draw.standard_normal(shape).astype("float32")

    d = tessera.Dispatcher(threads=1)
    line = "gemm m=4 n=4 k=4"
    plan, problem = d.plan(line), tessera.Problem(line)
    kernels = tessera.KernelSet("k", target="avx2").preselected("fp32_rcr_essential")
    registry = tessera.Registry("r").declare(kernels)
    cache = tessera.KvCache(pages=6, page_size=4, heads_kv=2, hdim=8, layers=2)
    texts = [cache.add(), cache.add()]
    spare = tessera.KvCache(pages=1, heads_kv=1, hdim=8)
    step = cache.step(texts, 2)
    builder = tessera.FmhaProblemBuilder().data_type("fp32").dims(8, 8, 1, 4, 4).nheads(2, 2)
    new = dict(k_new=x(2, 2, 2, 8), v_new=x(2, 2, 2, 8))

    def run_command(name, **options):
        return tessera.command(name, **options)

    def built(setter):
        return lambda **named: getattr(tessera.FmhaProblemBuilder().data_type("fp32").dims(
            8, 8, 1, 4, 4).nheads(2, 2), setter)(*named.values()).build()

    return [
        ("Problem", tessera.Problem, dict(line=line)),
        ("Problem fields", tessera.Problem, dict(line="gemm", m=4, n=4, k=4, dtype="fp32",
                                                 alpha=1.0)),
        ("Problem.from_json", tessera.Problem.from_json, dict(given={"op": "gemm", "m": 1, "n": 1,
                                                                    "k": 1})),
        ("Problem.get", problem.get, dict(field="m")),
        ("Dispatcher", tessera.Dispatcher,
         dict(target=None, threads=1, device=0, models=None, cache=None, pool=None,
              deterministic=False, autotune=False, autotune_seconds=0, autotune_top=0,
              tuning_store=None, build=None, by_length=False, without_model="estimate",
              without_model_top=0, batch_invariant=False)),
        ("Dispatcher.plan", d.plan, dict(problem=line, threads=0, force=None)),
        ("Dispatcher.select", d.select, dict(problem="gemm", m=4, n=4, k=4, threads=0, force=None)),
        ("Dispatcher.set_timing", d.set_timing, dict(cold=1, repeat=1)),
        ("Dispatcher.run", d.run, dict(problem=problem, a=x(4, 4), b=x(4, 4), out=None, stream=None,
                                       verify=False)),
        ("Plan.launch", plan.launch, dict(a=x(4, 4), b=x(4, 4), out=x(4, 4), stream=None,
                                          workspace=None, verify=False)),
        ("Plan.verify", plan.verify, dict(seed=1)),
        ("Plan.synchronize", plan.synchronize, dict(stream=None)),
        ("Plan.bench", plan.bench, dict(flush_caches=False, seed=1, a=x(4, 4), b=x(4, 4),
                                        out=x(4, 4))),
        ("Plan", tessera.Plan, dict(dispatcher=d, problem=problem, options=None)),
        ("KernelSet", tessera.KernelSet, dict(name="k", target=None)),
        ("KernelSet.from_json", tessera.KernelSet.from_json, dict(given=kernels.to_json())),
        ("KernelSet.op", tessera.KernelSet("k", target="avx2").op, dict(name="gemm")),
        ("KernelSet.where", tessera.KernelSet("k", target="avx2").op("gemm").where,
         dict(dtype="fp32", tile=["32x*", "16x*"])),
        ("KernelSet.add", tessera.KernelSet("k").add, dict(kernel=kernels.kernels[0])),
        ("KernelSet.receipt", tessera.KernelSet("k", target="avx2").receipt, dict(name=801)),
        ("KernelSet.preselected", tessera.KernelSet("k", target="avx2").preselected,
         dict(name="fp32_rcr_essential")),
        ("KernelSet.for_problem", tessera.KernelSet("k").for_problem, dict(problem=line, best=1)),
        ("Registry", tessera.Registry, dict(name="r", cache=None, build={"no_compile": 1})),
        ("Registry.add_target", tessera.Registry("t").add_target, dict(file="none.json")),
        ("Registry.declare", registry.declare, dict(kernels=kernels)),
        ("Registry.build", tessera.Registry("empty").build, dict(max_workers=1, progress=None)),
        ("Registry.filter", registry.filter, dict(pattern="*")),
        ("Registry.filter_receipt", registry.filter_receipt, dict(name="fp32")),
        ("Registry.merge", tessera.Registry("m").merge, dict(other=registry)),
        ("Registry.import_json", tessera.Registry("i").import_json,
         dict(text=registry.export_json())),
        ("Model", tessera.Model, dict(path="none")),
        ("KvCache", tessera.KvCache, dict(pages=2, page_size=4, heads_kv=2, hdim=8, hdim_v=None,
                                          layers=1, dtype=None, like=None)),
        ("KvCache.step", lambda **named: cache.truncate(texts[0], 2) or cache.step(**named),
         dict(sequences=[texts[0]], tokens=1)),
        ("KvCache.truncate", cache.truncate, dict(sequence=texts[0], length=2)),
        ("KvCache.length", cache.length, dict(sequence=texts[0])),
        ("KvCache.pages_of", cache.pages_of, dict(sequence=texts[0])),
        ("KvCache.free", spare.free, dict(sequence=spare.add())),
        ("Step.append", step.append, dict(layer=0, q=None, cos=None, sin=None, rotary=None,
                                          out=None, stream=None, dispatcher=d, **new)),
        ("Step.attend", step.attend, dict(layer=0, q=x(2, 2, 4, 8), mask=None, window=None,
                                          bias=None, return_lse=False, out=None, dispatcher=d)),
        ("PackedWeight", tessera.PackedWeight, dict(problem=problem, kernel="k", signature={},
                                                    view=None)),
        ("Explanation", tessera.Explanation, dict(text="", decision={})),
        ("Report", tessera.Report, dict(facts={}, problems=[])),
        ("command", run_command, dict(name="explain", problem=line, target="generic",
                                          check=True, as_frame=False, progress=None)),
        ("command targets", run_command, dict(name="targets", only_here=None)),
        ("data", tessera.data, dict(what="describe", files=["none.sqlite"])),
        ("autotune", d.autotune, dict(problem="gemm m=-1 n=1 k=1", seconds=0, top=0)),
        *[(f"FmhaProblemBuilder.{setter}", built(setter), arguments) for setter, arguments in (
            ("api_family", dict(word="fwd")), ("kernel_family", dict(word="fwd")),
            ("gfx_arch", dict(target="avx2")), ("data_type", dict(word="fp32")),
            ("dims", dict(q=8, v=8, batch=1, a=4, b=4)), ("nheads", dict(q=2, k=2)),
            ("mask_type", dict(word="no")), ("bias_type", dict(word=0)), ("lse", dict(value=True)),
            ("dropout", dict(value=True, p_drop=0.1)), ("qscale_type", dict(word="no")),
            ("logits_soft_cap", dict(value=True, cap=1.0)), ("window", dict(left=-1, right=0)),
            ("max_seqlen", dict(q=4, k=4)), ("kv_cache", dict(layout="linear", table="vllm_2d",
                                                              page=16)))],
        ("FmhaProblemBuilder.build", lambda **named: builder.build(), dict()),
    ]


NO_MORE = 77  # a child's exit status

# ---- What may come of it -------------------------------------------------------------------------

# Words of Python, NumPy, PyTorch, ctypes and JSON's parser, which say nothing to a caller.
FOREIGN = re.compile(r"truth value|'NoneType'|object is not|has no attribute|unhashable|json\.|"
                     r"argument \d+:|cannot be interpreted|ndarray' object|literal for|hostile|"
                     r"filesystem error|std::|required argument|not supported between|C long|"
                     r"Traceback|<odd|codec can't")


def fault(error):
    """What is wrong with an exception; "" where nothing is."""
    if not isinstance(error, tessera.Error):
        return f"{type(error).__name__}: {error}"
    text = str(error)
    if FOREIGN.search(text):
        return f"foreign words: {text}"
    if "\n" in text.strip() or len(text.split()) < 4:
        return f"no sentence: {text}"
    return ""


# How many things are made one after the other: many take long, and none is too many.
COUNTS = ("layers",)


def attack(function, right, draw, report, share=1.0):
    """Calls with each argument wrong, of a share of the values, and yields each beforehand.
    report(argument, value, fault, error) gets what is found."""
    try:
        function(**right)
    except tessera.Error:
        pass
    for argument in right:
        values = [*scalars(), *arrays(draw), *changed(right[argument], draw)]
        for value in values:
            if draw.random() >= share:
                continue
            yield argument, value
            if argument in COUNTS and isinstance(value, int) and value > 2**20:
                continue
            try:
                function(**{**right, argument: value})
            except Exception as error:
                found = fault(error)
                if found:
                    report(argument, value, found, error)


def described(value):
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text.replace("\n", " ")[:70]


def attack_in_child(index, seed, last):
    """The whole catalogue for one function; `last` holds the last value, if this process dies.
    Returns the exit status."""
    os.chdir(os.path.dirname(last))
    draw = numpy.random.default_rng(seed)
    attacked = [*functions(draw), *objects(draw)]
    if index >= len(attacked):
        return NO_MORE
    name, function, right = attacked[index]
    found = []

    def report(argument, value, what, error):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        found.append(what)
        print(f"{name}({argument}={described(value)}): {what[:300]} "
              f"[{os.path.basename(frame.filename)}:{frame.lineno}]", flush=True)

    with open(last, "w", encoding="utf-8", errors="replace") as file:
        for argument, value in attack(function, right, draw, report):
            file.seek(0)
            file.truncate()
            file.write(f"{name}({argument}={described(value)})")
            file.flush()
    return 1 if found else 0


def attack_all(seed, last):
    """Each function in a process of its own. Returns how many have faults."""
    faults = 0
    for index in range(10**6):
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = attack_in_child(index, seed, last)
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == NO_MORE:
            return faults
        faults += code != 0
        if code not in (0, 1):
            with open(last, encoding="utf-8") as file:
                print(f"exit status {code} after {file.read()}", flush=True)


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("PyTorch is missing, so that no tensors are among the values")
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}", flush=True)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
            faults += attack_all(seed, os.path.join(folder, "last.txt"))
            seed += 1
    print("nothing was found" if faults == 0 else f"{faults} functions have faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
