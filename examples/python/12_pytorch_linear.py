"""A linear layer in PyTorch: the same parameters as torch.nn.Linear, the activation in the kernel,
gradients, torch.compile. Needs PyTorch."""
import sys

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch: pip install torch")
import torch.nn.functional as functional

import tessera.torch

torch.manual_seed(1)
layer = tessera.torch.Linear(768, 3072, activation="gelu")
x = torch.randn(128, 768, requires_grad=True)

y = layer(x)
expected = functional.gelu(functional.linear(x, layer.weight, layer.bias))
print("the greatest difference to PyTorch:", float((y - expected).detach().abs().max()))
# Sums of 768 products in another order: a few roundings of fp32 at values of about 1.
torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)

# The products of the backward pass are Tessera's too.
y.square().mean().backward()
mine, x.grad = x.grad, None
expected.square().mean().backward()
torch.testing.assert_close(mine, x.grad, rtol=1e-4, atol=1e-8)
print("gradients agree:", tuple(mine.shape))

# The operators are a part of the graph, without a break.
compiled = torch.compile(lambda x: tessera.torch.softmax(layer(x) * 2), fullgraph=True)
torch.testing.assert_close(compiled(x), torch.softmax(expected * 2, -1), rtol=1e-4, atol=1e-6)
print("torch.compile agrees")

# Autocast, half precision, any strides: as with torch.nn.functional.linear.
half = tessera.torch.linear(x.detach().bfloat16(), layer.weight.detach().bfloat16())
print("in bfloat16:", half.dtype, tuple(half.shape))
try:
    tessera.torch.linear(x, layer.weight.double())
except tessera.Error as error:
    print("an error is a sentence:", error)
