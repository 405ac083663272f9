"""A PostgreSQL server of its own, for catalogs in SQL."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None if there is none; Debian keeps them off the path."""
    if (found := shutil.which("pg_ctl")) is not None:
        return Path(found).resolve().parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), reverse=True)), None)


@contextmanager
def running_postgres(programs: Path, folder: Path, port: int) -> Iterator[str]:
    """Run a server, and yield the address of its database ``postgres``; it runs as ``postgres``, as root it refuses."""
    user = "postgres" if os.geteuid() == 0 else None
    folder.mkdir(parents=True)
    if user is not None:
        shutil.chown(folder, user)
        for above in (folder, *folder.parents):
            if above.stat().st_uid == 0 and above.is_relative_to("/tmp") and above != Path("/tmp"):
                above.chmod(above.stat().st_mode | 0o011)

    def run(program: str, *arguments: str) -> None:
        subprocess.run([programs / program, *arguments], user=user, cwd=folder, check=True, capture_output=True)

    run("initdb", "-D", str(folder / "data"), "-U", "postgres", "--auth=trust", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    run("pg_ctl", "-D", str(folder / "data"), "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        yield f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "-t", "120", "stop")
