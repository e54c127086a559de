"""cuDNN's attention with products of 8 bits, through the package nvidia-cudnn-frontend."""
import torch

WEIGHTS = 256.0  # by which softmax's weights are multiplied before they become e4m3
RESULTS = 64.0   # by which results are, which cuDNN writes in e4m3 here


def _tensors(graph, kinds, shape, q, kv):
    """What the graph takes, in the order of its arguments: operands, then factors."""
    def operand(name, x):
        strides = [x.stride(0), x.stride(2), x.stride(1), 1]
        return graph.tensor(name=name, dim=[shape[0], x.shape[2], x.shape[1], x.shape[3]],
                            stride=strides, data_type=kinds.FP8_E4M3)
    operands = {"q": operand("q", q), "k": operand("k", kv[0]), "v": operand("v", kv[1])}
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    return operands, {name: graph.tensor(name=name, dim=[1] * 4, stride=[1] * 4,
                                         data_type=kinds.FLOAT) for name in names}


def _built(front, handle, q, k, v, is_causal):
    kinds = front.data_type
    graph = front.pygraph(io_data_type=kinds.FP8_E4M3, intermediate_data_type=kinds.FLOAT,
                          compute_data_type=kinds.FLOAT, handle=handle)
    operands, factors = _tensors(graph, kinds, q.shape, q, (k, v))
    result, _, most_s, most_o = graph.sdpa_fp8(
        **operands, **factors, generate_stats=False, use_causal_mask=is_causal,
        attn_scale=q.shape[3]**-0.5, name="attention")
    batch, tokens, heads, hdim = q.shape
    result.set_output(True).set_dim([batch, heads, tokens, hdim]).set_data_type(kinds.FP8_E4M3)
    result.set_stride([tokens * heads * hdim, hdim, heads * hdim, 1])
    for most in (most_s, most_o):
        most.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(kinds.FLOAT)
    graph.build([front.heur_mode.A])
    return graph, operands, factors, result, (most_s, most_o)


def prepared(q, k, v, factors, is_causal):
    """q, k and v are (batch, tokens, heads, hdim) in e4m3, with a factor each. Returns a function
    that computes on the current stream, and one that returns the result in fp32."""
    import cudnn as front  # pylint: disable=import-outside-toplevel
    handle = front.create_handle()
    graph, operands, scales, result, most = _built(front, handle, q, k, v, is_causal)
    one = lambda x: torch.full((1, 1, 1, 1), float(x), device="cuda")
    out = torch.empty(q.shape, dtype=torch.uint8, device="cuda")
    pack = {operands[name]: x.view(torch.uint8) for name, x in (("q", q), ("k", k), ("v", v))}
    pack |= {result: out, most[0]: one(0), most[1]: one(0)}
    numbers = [*factors, 1 / WEIGHTS, WEIGHTS, RESULTS]
    pack |= {tensor: one(x) for tensor, x in zip(scales.values(), numbers)}
    room = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)

    def call():
        front.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(pack, room, handle=handle)

    def returned():
        torch.cuda.synchronize()
        return out.view(torch.float8_e4m3fn).float() / RESULTS
    return call, returned
