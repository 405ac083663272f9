"""All numbers that scale: a smoke size that takes minutes, a medium one, and the full size that targets apply to."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the workloads are, and how often each is run."""

    name: str
    #: Runs that count, and those before them that do not.
    runs: int
    warmups: int
    #: Contestants serve several cases, so that sessions start once; memory then is that of the largest case so far.
    keep: bool
    #: How often a query is asked, for its median; 0: not at all.
    queries: int
    #: Seconds after which a reader that answers a query is stopped.
    query_seconds: float
    #: W0: data files, rows of each, deleted keys, delete files; and how many times as much the large case is.
    w0_files: int
    w0_rows: int
    w0_deleted: int
    w0_delete_files: int
    w0_times: int
    #: W1: TPC-H's scale factor, rows of a file of some 11 MB and of one of some 1 MB.
    w1_scale: float
    w1_rows: int
    w1_rows_of_small: int
    #: W2: numbers of checkpoints, rows of one, heaps, and seconds after which a run is stopped.
    w2_checkpoints: tuple[int, ...]
    w2_rows: int
    w2_heaps_mb: tuple[int, ...]
    w2_seconds: float
    #: W3 and W5: scale factor, and batches of the stream.
    w3_scale: float
    w3_batches: int
    #: W4: scale factor, and commits.
    w4_scale: float
    w4_commits: int
    #: W5: seconds that each contestant works beside the stream, and from one commit of it to the next.
    w5_seconds: float
    w5_interval: float
    #: W6: numbers of commits.
    w6_commits: tuple[int, ...]
    #: W8: small tables; of the others it takes the sizes of their workloads.
    w8_small_tables: int
    #: W12: numbers of deleted keys.
    w12_deleted: tuple[int, ...]
    #: Planning: partitions, commits, and data files that each commit adds to each partition.
    planning_partitions: int
    planning_commits: int
    planning_files: int
    #: Small tables: how many.
    small_tables: int
    #: Two workers: scale factor, batches of the stream, tables at a time.
    two_scale: float
    two_batches: int
    two_tables: int

    def with_runs(self, runs: int | None) -> Size:
        """The same with another number of runs that count; None leaves it as it is."""
        return self if runs is None else replace(self, runs=runs)


SMOKE = Size(
    name="smoke",
    runs=1,
    warmups=0,
    keep=True,
    queries=0,
    query_seconds=10.0,
    w0_files=4,
    w0_rows=20_000,
    w0_deleted=800,
    w0_delete_files=2,
    w0_times=2,
    w1_scale=0.01,
    w1_rows=8_000,
    w1_rows_of_small=2_000,
    w2_checkpoints=(6,),
    w2_rows=500,
    w2_heaps_mb=(512,),
    w2_seconds=120.0,
    w3_scale=0.01,
    w3_batches=4,
    w4_scale=0.01,
    w4_commits=10,
    w5_seconds=4.0,
    w5_interval=1.0,
    w6_commits=(3, 9),
    w8_small_tables=2,
    w12_deleted=(2_000, 8_000),
    planning_partitions=4,
    planning_commits=40,
    planning_files=2,
    small_tables=4,
    two_scale=0.01,
    two_batches=2,
    two_tables=2,
)
FULL = Size(
    name="full",
    runs=5,
    warmups=1,
    keep=False,
    queries=3,
    query_seconds=60.0,
    w0_files=30,
    w0_rows=1_000_000,
    w0_deleted=300_000,
    w0_delete_files=10,
    w0_times=10,
    w1_scale=6.0,
    w1_rows=400_000,
    w1_rows_of_small=36_000,
    w2_checkpoints=(100, 300, 1000),
    w2_rows=10_000,
    w2_heaps_mb=(512, 4096),
    w2_seconds=300.0,
    w3_scale=1.0,
    w3_batches=20,
    w4_scale=1.0,
    w4_commits=1000,
    w5_seconds=120.0,
    w5_interval=10.0,
    w6_commits=(25, 50, 100, 400),
    w8_small_tables=20,
    w12_deleted=(1_000_000, 5_000_000, 20_000_000),
    planning_partitions=100,
    planning_commits=200,
    planning_files=5,
    small_tables=200,
    two_scale=1.0,
    two_batches=20,
    two_tables=4,
)
#: For a machine that is shared: the tables that take longest to make or to work on are smaller.
MEDIUM = replace(
    FULL,
    name="medium",
    runs=3,
    w1_scale=1.5,
    w2_checkpoints=(100,),
    planning_partitions=20,
    small_tables=50,
    w8_small_tables=10,
)
SIZES = {size.name: size for size in (SMOKE, MEDIUM, FULL)}
