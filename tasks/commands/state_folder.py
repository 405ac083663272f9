"""The folder of what processes keep from one start to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.common.errors import Reason, Refused

if TYPE_CHECKING:
    from pathlib import Path

    from producer.common.settings import Settings


def state_folder(settings: Settings) -> Path:
    """The folder, for the user of this process alone; it is made if it is not there.

    Raises:
        Refused: it cannot be made.
    """
    folder = settings.state_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"The folder {folder} cannot be made ({error.strerror}): have ICEFLEET_STATE_DIR name another."
        raise Refused(Reason.CONFIGURATION, sentence) from error
    return folder
