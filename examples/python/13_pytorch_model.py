"""optimize(model): Tessera's Linear in the place of torch.nn.Linear, with a report, layer by layer.
Needs PyTorch. Real models are in torch/."""
import copy
import sys

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch: pip install torch")
from torch import nn

import tessera.torch

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.LayerNorm(512),
                      nn.Linear(512, 10, bias=False))
model = model.eval().requires_grad_(False)  # frozen weights can be packed once
x = torch.randn(256, 512)

ours, report = tessera.torch.optimize(copy.deepcopy(model), example=x)
print(report)
for layer in report:
    print(f"{layer.name}: {layer.predicted_seconds * 1e6:.0f} us predicted, "
          f"activation {layer.activation}, packed: {layer.packed}")

error = tessera.torch.worst_error(ours(x), copy.deepcopy(model).double()(x.double()))
print(f"the error against fp64 is {error:.1e} of the greatest element")
assert error < 1e-5  # sums of 2048 products in fp32
print("same keys in the state dict:", list(ours.state_dict()) == list(model.state_dict()))

found = tessera.torch.compare(lambda: ours(x), lambda: model(x))
print(f"Tessera {found['ours'] * 1e6:.0f} us, PyTorch {found['theirs'] * 1e6:.0f} us: "
      f"{found['speedup']:.2f} times as fast")
