"""One fresh interpreter that imports: what that costs. Prints one line of JSON.

Run by path, with PYTHONPATH naming the checkout whose `quaestor` is measured. Nothing is imported at the top that an import of
Quaestor would count.
"""

from __future__ import annotations

import sys
import time


def memory() -> dict[str, int]:
    """Resident bytes, and those of them that the process shares with nobody: no pages of files."""
    with open("/proc/self/status") as status:
        fields = dict(text.split(":", 1) for text in status)
    sizes = {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
    return {"rss_bytes": sizes["VmRSS"], "private_bytes": sizes["RssAnon"]}


def imported(first: str, statement: str) -> dict[str, float]:
    """Cost of a statement, after another one whose cost does not count."""
    namespace: dict[str, object] = {}
    exec(first, namespace)
    before, modules, began_s = memory(), len(sys.modules), time.process_time()
    exec(statement, namespace)
    cpu_ms = (time.process_time() - began_s) * 1000
    after = memory()
    added = {name: after[name] - before[name] for name in after}
    return {"cpu_ms": cpu_ms, "modules": len(sys.modules) - modules, **added}


if __name__ == "__main__":
    report = imported(*sys.argv[1:3])
    import json

    print(json.dumps(report))
