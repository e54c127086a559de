"""Learned choice and tuning: what a model predicts, and what measuring on this machine finds."""
import os
import pathlib
import tempfile

import tessera

LINE = "gemm m=192 n=256 k=128 layout=rrr"


def find_model():
    """TESSERA_EXAMPLE_MODEL, or a model of the checkout that holds this file."""
    models = pathlib.Path(__file__).resolve().parents[2] / "models"
    given = os.environ.get("TESSERA_EXAMPLE_MODEL", models / "gemm_avx512_fp32")
    return pathlib.Path(given)


if find_model().exists():
    model = tessera.Model.load(find_model())
    ranked = model.rank(LINE, top=3)
    print(f"{find_model().name}, the first three:")
    for row in ranked:
        seconds = model.predict(LINE, row["kernel"])
        print(f"  {seconds * 1e6:8.2f} us  {row['kernel']}")
        assert seconds > 0
else:
    print("no model lies beside this example; TESSERA_EXAMPLE_MODEL may name one")

with tempfile.TemporaryDirectory() as folder:
    store = str(pathlib.Path(folder) / "tuning.sqlite")
    dispatcher = tessera.Dispatcher(threads=1, tuning_store=store)
    print("chosen before:", dispatcher.select(LINE)["source"])
    measured = dispatcher.autotune(LINE, seconds=2, top=3)
    for row in measured:
        print(f"  {row['outcome']:5} {row['seconds'] * 1e6:8.2f} us  {row['kernel']}")
    assert measured and all(row["outcome"] == "ok" for row in measured)
    after = tessera.Dispatcher(threads=1, tuning_store=store).select(LINE)
    print(f"chosen after: {after['kernel']} ({after['source']})")
    assert after["kernel"] == measured[0]["kernel"]
