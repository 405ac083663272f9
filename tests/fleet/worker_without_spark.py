"""``icefleet`` whose workers start a Spark session when a unit needs one, and none in advance.

Starting one takes 13 seconds of processor time, in each child that a worker starts. Tests that kill and restart workers
have small units, which are done without Spark whether there is a session or not.
"""

from __future__ import annotations

from producer.cli.main import main
from workers.runtime import session


def start_no_session() -> None:
    """Have the children of this process start no session in advance."""
    session.warm = lambda budget, spill=None: None


if __name__ == "__main__":
    start_no_session()
    main()
