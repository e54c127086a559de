"""As much of vLLM's interface as the backend meets, for tests where vLLM is not installed. It was
written after vLLM's sources; what those check when something is registered is checked here, too."""
from __future__ import annotations

import contextlib
import enum
import inspect
import sys
import types
from typing import Any, Callable, Dict, Iterator, List

import torch
from torch.library import infer_schema


class Op:
    """An operator of vllm.ir: providers must have its schema, and as many parameters."""

    def __init__(self, native: Callable[..., Any]) -> None:
        self.impls = {"native": types.SimpleNamespace(impl_fn=native)}
        self.priority: List[str] = ["native"]
        self.schema = infer_schema(native, mutates_args=[])

    def register_impl(self, provider: str, *, supported: bool = True, supports_args: Any = None,
                      inplace: bool = False, batch_invariant: bool = False) -> Any:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            assert provider not in self.impls and provider not in ("native", "unfused")
            assert infer_schema(function, mutates_args=[]) == self.schema
            given, native = (inspect.signature(one).parameters.values()
                             for one in (supports_args, self.impls["native"].impl_fn))
            assert [(p.name, p.default) for p in given] == [(p.name, p.default) for p in native]
            self.impls[provider] = types.SimpleNamespace(
                impl_fn=function, supports_args=supports_args, supported=supported)
            return function
        return register

    @contextlib.contextmanager
    def set_priority(self, priority: List[str]) -> Iterator[None]:
        former, self.priority = self.priority, priority
        yield
        self.priority = former

    def __call__(self, *arguments: Any) -> Any:
        for name in self.priority:
            impl = self.impls[name]
            if name == "native" or (impl.supported and impl.supports_args(*arguments)):
                return impl.impl_fn(*arguments)
        raise RuntimeError("no provider takes the arguments")


def _rms_norm(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float,
              variance_size: int | None = None) -> torch.Tensor:
    wide = x.float()
    part = wide if variance_size is None else wide[..., :variance_size]
    wide = wide * torch.rsqrt(part.square().mean(-1, keepdim=True) + epsilon)
    return wide.to(x.dtype) if weight is None else wide.to(x.dtype) * weight


def _fused_add_rms_norm(x: torch.Tensor, x_residual: torch.Tensor, weight: torch.Tensor | None,
                        epsilon: float, variance_size: int | None = None
                        ) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + x_residual
    return _rms_norm(total, weight, epsilon, variance_size), total


class Backend:
    """vllm.v1.attention.backend.AttentionBackend."""


class Impl:
    """AttentionImpl."""


class Builder:
    """AttentionMetadataBuilder."""

    def __init__(self, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
        self.device = device


class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


class AttentionBackendEnum(enum.Enum):
    CUSTOM = None

    def get_path(self) -> str:
        return _registered[self]


_registered: Dict[Any, str] = {}


def install() -> None:
    """Puts the modules where `import vllm` finds them."""
    ops = types.SimpleNamespace(rms_norm=Op(_rms_norm), fused_add_rms_norm=Op(_fused_add_rms_norm))

    def register_backend(backend: Any, class_path: str) -> None:
        _registered[backend] = class_path
    contents = {
        "vllm": {"ir": types.SimpleNamespace(ops=ops), "__version__": "stand-in"},
        "vllm.v1": {}, "vllm.v1.attention": {}, "vllm.v1.attention.backends": {},
        "vllm.v1.attention.backend": {
            "AttentionBackend": Backend, "AttentionImpl": Impl, "AttentionType": AttentionType,
            "AttentionMetadataBuilder": Builder},
        "vllm.v1.attention.backends.registry": {
            "AttentionBackendEnum": AttentionBackendEnum, "register_backend": register_backend},
    }
    for name, members in contents.items():
        module: Any = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
