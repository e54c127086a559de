"""Tessera for Hugging Face transformers: importing this package registers attention, masks and
experts under the name "tessera".

    import tessera_transformers
    model = LlamaForCausalLM.from_pretrained(folder, attn_implementation="tessera")
    report = tessera_transformers.use_tessera(model.eval())   # the layers, too
    print(tessera_transformers.tessera_report())              # what was left to the framework
"""
from ._attention import tessera_attention, tessera_mask
from ._experts import tessera_experts
from ._layers import LAYERS, Replaced, use_tessera
from ._registry import register
from ._report import NotTaken, tessera_report

__all__ = ["LAYERS", "NotTaken", "Replaced", "register", "tessera_attention", "tessera_experts",
           "tessera_mask", "tessera_report", "use_tessera"]

register()
