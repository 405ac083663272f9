"""What one worker child may use: the machine's, where the settings leave it open."""

from __future__ import annotations

from producer.common.errors import Reason, Refused
from producer.common.settings import Settings
from workers.runtime.machine import Budget, Machine


def budget_of(settings: Settings, children: int = 1) -> Budget:
    """The budget of each of ``children`` that share this machine.

    Raises:
        Refused: more memory is asked for than there is.
    """
    try:
        return Budget.of(
            Machine.detect(),
            cores=settings.cores,
            heap_mb=settings.heap_mb,
            memory_mb=settings.memory_mb,
            children=children,
        )
    except ValueError as error:
        raise Refused(Reason.CONFIGURATION, f"ICEFLEET_HEAP_MB, ICEFLEET_MEMORY_MB: {error}.") from error
