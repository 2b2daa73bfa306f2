"""Print a statement for psql: ``python -m djqueue.engines.postgres.show fetch``; without a name, list all statements.

The parameters become psql variables: ``\\set queue mail``. A variable cannot be null; write NULL in its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from djqueue.engines.postgres.statements import DIRECTORY, lines_of


def main(arguments: Sequence[str]) -> int:
    """Print what the arguments ask for; return the exit status."""
    names = sorted(path.stem for path in DIRECTORY.glob("[!_]*.sql"))
    if not arguments:
        print("\n".join(names))
        return 0
    [name, *more] = arguments
    if more or name not in names:
        print(_problem(arguments, names), file=sys.stderr)
        return 2
    # Only these two are escaped for psycopg.
    text = re.sub(r"%\((\w+)\)s", r":'\1'", "\n".join(lines_of(name))).replace("%%", "%")
    print(f"{text.rstrip()};")
    return 0


def _problem(arguments: Sequence[str], names: Sequence[str]) -> str:
    name = " ".join(arguments)
    close = get_close_matches(name, names, n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else "Call without a name to list all statements."
    return f"Invalid statement name {name!r}: give the name of one file in engines/postgres/sql. {hint}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
