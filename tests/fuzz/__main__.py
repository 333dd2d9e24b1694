"""`python -m tests.fuzz`: put hostile input to every reader, for so many cases or so many minutes.

Exit status 0 when nothing was found, else 1; what was found lies in `tests/fuzz/cases`, and `make test` tries it
from then on. The same seed and number of cases give the same cases.
"""

import argparse
import math
import os
import secrets
import sys
import time

from tests.fuzz import workers
from tests.fuzz.campaign import Found
from tests.fuzz.found import FOUND


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=120_000, help="how many in all (%(default)s)")
    parser.add_argument("--minutes", type=float, help="for so long instead")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="which cases (any)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.jobs} processes", flush=True)
    start = time.monotonic()
    share = workers.Share(
        cases=math.inf if options.minutes else options.cases / options.jobs,
        seconds=options.minutes * 60 if options.minutes else math.inf,
    )
    tallies = workers.run(share, options.seed, options.jobs)
    found: dict[str, Found] = {}
    print(f"{'target':<16}{'cases':>10}{'outcomes':>10}{'faults':>8}")
    for name, tally in sorted(tallies.items()):
        print(f"{name:<16}{tally.cases:>10,}{tally.outcomes:>10,}{len(tally.found):>8}")
        found |= {each.what: each for each in tally.found}
    cases = sum(tally.cases for tally in tallies.values())
    print(f"{cases:,} cases in {time.monotonic() - start:.0f} s")
    FOUND.mkdir(exist_ok=True)
    for each in found.values():
        (FOUND / each.file).write_bytes(each.case)
        print(f"FAULT {each.target}: {each.what}\n  {FOUND / each.file}")
    if not options.minutes and not found and cases < options.cases:
        print(f"fewer than the {options.cases:,} cases asked for")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    if "PYTHONMALLOC" not in os.environ:
        # Python's own allocator keeps each arena of which the smallest part is in use: that would look like growth.
        environment = {**os.environ, "PYTHONMALLOC": "malloc"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]], environment)  # noqa: S606 - itself
    sys.exit(main())
