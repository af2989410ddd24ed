# SPDX-License-Identifier: Apache-2.0
"""`make constraints`: write into constraints.txt the newest versions that fit together.

Names and versions only, no addresses and no hashes: the file must work whatever index is set up.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# The exact versions that `make setup` installs and CI tests. Refreshed by `make constraints`.
"""


def main() -> None:
    """Let pip resolve all extras as if nothing were installed, and keep what it would take."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    resolve = [*pip, "--report", "-", f"{ROOT}[all,bench,dev]"]
    report = subprocess.run(resolve, check=True, capture_output=True, text=True).stdout
    found = {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"]
        for item in json.loads(report)["install"]
    }
    del found["pilothouse"]
    lines = [f"{name}=={version}\n" for name, version in sorted(found.items())]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
