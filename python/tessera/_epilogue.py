"""What a product or a convolution does with its sums before it stores them: alpha, beta, a bias, an
activation, a residual."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from . import _dtypes
from ._abi import Error
from ._arrays import View
from ._layout import check_row
from ._values import number, shown


def plain(options: Any) -> Any:
    """The same options, with alpha and beta as floats."""
    options = options._replace(alpha=number("alpha", options.alpha),
                               beta=number("beta", options.beta))
    if options.activation is not None and not isinstance(options.activation, str):
        raise Error(f"activation must be a word such as 'relu', got {shown(options.activation)}")
    return options


def check_new(options: Any) -> None:
    """Refuses a beta without an out."""
    if options.beta != 0:
        raise Error(f"beta is {options.beta}, but there is no out whose contents it multiplies")


def fields(options: Any, views: Mapping[str, View], n: int, type_field: str, who: str = ""
           ) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The problem's fields, and the arrays that its operands d0 and d1 are. n: how many elements a
    bias has. type_field: of bias and residual. who: what the sentences begin with."""
    read = [name for name in ("bias", "residual") if name in views]
    words = [views[name].dtype for name in read]
    if len(set(words)) > 1:
        raise Error(f"{who}bias and residual must have one type, got " +
                    " and ".join(_dtypes.NAMES[word] for word in words))
    if "bias" in views:
        check_row(f"{who}bias", views["bias"].shape, views["bias"].strides, n)
    steps = ["bias"] * ("bias" in views) + [options.activation] * (options.activation is not None)
    steps += ["add"] * ("residual" in views)
    found: Dict[str, Any] = {"alpha": options.alpha, "beta": options.beta}
    if steps:
        found["epilogue"] = "+".join(steps)
    if words:
        found[type_field] = words[0]
    return found, {f"d{i}": name for i, name in enumerate(read)}
