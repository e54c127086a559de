"""python -m tessera version | doctor, with --json as one line of JSON."""
import json
import sys

from ._abi import Error
from ._commands import command


def main() -> int:
    words = sys.argv[1:]
    as_json = "--json" in words
    names = [word for word in words if word != "--json"]
    if names not in (["version"], ["doctor"]):
        print(f"usage: python -m tessera version|doctor [--json], got '{' '.join(words)}'; "
              "tessera.command() runs all commands", file=sys.stderr)
        return 2
    try:
        result = command(names[0], check=False)
    except Error as error:
        print(f"tessera: {error}", file=sys.stderr)
        return 1
    status = result.pop("exit_code", 0)
    if as_json:
        print(json.dumps(result))
        return status
    if "version" in result:
        print(f"tessera {result['version']}")
    for row in result["findings"]:
        print(f"{row['what']:<16} {row['detail']}")
    return status


if __name__ == "__main__":
    sys.exit(main())
