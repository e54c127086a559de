"""A decision that a person can read, in a terminal and in a notebook."""
from __future__ import annotations

import html
from typing import Any, Dict, List

from ._checks import checked


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds > 0 else ""


class Explanation:
    """Why a kernel was chosen. str() is the text of `tessera explain`; `decision` is the dict that
    Dispatcher.select() returns."""

    @checked
    def __init__(self, text: str, decision: Dict[str, Any]) -> None:
        self.text = text
        self.decision = decision

    @property
    def kernel(self) -> str:
        return self.decision["kernel"]

    @property
    def considered(self) -> List[Dict[str, Any]]:
        return self.decision["considered"]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """What a notebook shows: the chosen kernel, and the best of the others in a table."""
        d = self.decision
        rows = [row for row in self.considered if not row["refusal"]][:6]
        refused = sum(1 for row in self.considered if row["refusal"])
        cells = "".join(
            f"<tr><td><code>{html.escape(row['kernel'])}</code></td>"
            f"<td style='text-align:right'>{_microseconds(row['predicted_seconds'])}</td></tr>"
            for row in rows)
        return (f"<p><b><code>{html.escape(d['kernel'])}</code></b> for "
                f"<code>{html.escape(d['problem'])}</code> on {html.escape(d['target'])} "
                f"({html.escape(d['source'])}): {html.escape(d['why'])}</p>"
                f"<table><tr><th>kernel</th><th>predicted us</th></tr>{cells}</table>"
                f"<p>{refused} kernels were refused.</p>")
