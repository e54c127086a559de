"""Times of Tessera's functions beside JAX's own, under jax.jit on this machine's CPU.

    python bench.py [rounds] [processor]

Rounds of both are interleaved. Prints the median of each in microseconds, its spread (interquartile
range over median), and JAX's median over Tessera's.
"""
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy

import tessera_jax

# "processor" counts the time that the process got, which other programs lengthen less.
CLOCK = time.process_time if "processor" in sys.argv[2:] else time.perf_counter


def spread_of(times):
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / statistics.median(times)


def seconds(function, given, calls):
    begin = CLOCK()
    for _ in range(calls):
        jax.block_until_ready(function(*given))
    return (CLOCK() - begin) / calls


def compare(name, ours, theirs, given, rounds):
    functions = [jax.jit(ours), jax.jit(theirs)]
    calls = []
    for function in functions:
        jax.block_until_ready(function(*given))
        calls.append(max(1, int(0.02 / seconds(function, given, 2))))
    times = [[], []]
    for _ in range(rounds):
        for i, function in enumerate(functions):
            times[i].append(1e6 * seconds(function, given, calls[i]))
    middle = [statistics.median(x) for x in times]
    print(f"{name:34} {middle[0]:10.1f} {spread_of(times[0]):6.1%} {middle[1]:10.1f} "
          f"{spread_of(times[1]):6.1%} {middle[1] / middle[0]:6.2f}")


def cases(dtype):
    source = numpy.random.default_rng(0)

    def drawn(*shape):
        return jnp.asarray(source.uniform(-1, 1, shape), dtype)

    def jax_conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)),
                                            dimension_numbers=("NHWC", "OHWI", "NHWC"))

    q = drawn(1, 512, 12, 64)
    yield ("matmul 128x768 @ 768x3072", tessera_jax.matmul, jnp.matmul,
           (drawn(128, 768), drawn(768, 3072)))
    yield ("matmul 8 x 64x64", tessera_jax.matmul, jnp.matmul, (drawn(8, 64, 64), drawn(8, 64, 64)))
    yield "attention 12 x 512 x 64", tessera_jax.attention, jax.nn.dot_product_attention, (q, q, q)
    yield ("conv 3x3, 64 channels, 28x28", lambda x, w: tessera_jax.conv(x, w, padding=1), jax_conv,
           (drawn(1, 28, 28, 64), drawn(64, 3, 3, 64)))
    yield ("layer_norm 512x768", tessera_jax.layer_norm,
           lambda x: tessera_jax.reference.norm("layernorm", x, None, None, 1e-5),
           (drawn(512, 768),))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"{'':34} {'Tessera':>10} {'':6} {'JAX':>10} {'':6} {'JAX / Tessera'}")
    for dtype in ("float32", "bfloat16"):
        for name, ours, theirs, given in cases(dtype):
            compare(f"{name} {dtype}", ours, theirs, given, rounds)
    for left in tessera_jax.report():
        print(f"left to JAX: {left.function}: {left.why}")


if __name__ == "__main__":
    main()
