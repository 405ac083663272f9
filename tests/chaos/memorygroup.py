"""Control groups that bound the memory of processes, as the kernel of a small machine or a container does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """One control group, of either version of them."""

    folder: Path

    @classmethod
    @contextmanager
    def of(cls, name: str, size: int) -> Iterator[Self]:
        """A group whose processes get so many bytes; whoever is in it at the end is given back all there is."""
        group = cls(_parent() / name)
        group.folder.mkdir()
        try:
            limit = group.folder / "memory.max"
            (limit if limit.exists() else group.folder / "memory.limit_in_bytes").write_text(str(size))
            yield group
        finally:
            for pid in (group.folder / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has ended
                    (_parent() / "cgroup.procs").write_text(pid)
            group.folder.rmdir()

    @property
    def entrance(self) -> Path:
        """The file into which a process writes its id to come in, with all that it starts from then on."""
        return self.folder / "cgroup.procs"

    @property
    def killed(self) -> int:
        """How many of its processes the kernel has killed."""
        for name in ("memory.events", "memory.oom_control"):
            if (file := self.folder / name).exists():
                counts = dict(line.split() for line in file.read_text().splitlines())
                return int(counts.get("oom_kill", 0))
        return 0


def allowed() -> bool:
    """Whether this process may make such groups here."""
    try:
        with MemoryGroup.of("icefleet-probe", 1 << 30):
            return True
    except OSError:
        return False


def _parent() -> Path:
    version_1 = _ROOT / "memory"
    return version_1 if version_1.is_dir() else _ROOT
