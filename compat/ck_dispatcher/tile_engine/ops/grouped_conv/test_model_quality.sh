#!/bin/sh
# Validates an old model, trains a new one (3 folds), validates it, and compares both on the same
# problems: test_model_quality.sh VARIANT OLD_MODEL MEASUREMENTS [OUTPUT_FOLDER]
# Further words for train.py come from TRAIN_OPTIONS.
set -eu
if [ $# -lt 3 ]; then
  echo "usage: $0 VARIANT OLD_MODEL MEASUREMENTS [OUTPUT_FOLDER]" >&2
  exit 2
fi
variant=$1 old=$2 data=$3 output=${4:-model_quality}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
mkdir -p "$output"
"$python" "$here/validate_ml_vs_oracle.py" --variant "$variant" --model-dir "$old" \
  --oracle-csv "$data" --save-predictions "$output/old.csv"
# shellcheck disable=SC2086
"$python" "$here/../../../heuristics/train.py" --operation grouped_conv --direction "$variant" \
  --data_dir "$data" --out_dir "$output/model" --n_splits 3 ${TRAIN_OPTIONS:-}
"$python" "$here/validate_ml_vs_oracle.py" --variant "$variant" --model-dir "$output/model" \
  --oracle-csv "$data" --save-predictions "$output/new.csv"
"$python" "$here/compare_model_predictions.py" --variant "$variant" \
  --old-predictions "$output/old.csv" --new-predictions "$output/new.csv"
