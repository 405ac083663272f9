"""The command line in a process whose children use 10 GB more than they do, once the file that GROWN names is there."""

from __future__ import annotations

import os

from producer.cli.main import main
from tasks import child_process

if __name__ == "__main__":
    measured = child_process.process_tree_memory
    child_process.process_tree_memory = lambda: measured() + (10 << 30) * os.path.exists(os.environ["GROWN"])
    main()
