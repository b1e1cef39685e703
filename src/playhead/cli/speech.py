"""`playhead speech prepare`: a speech model is made ready before it is needed."""

import sys

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE
from playhead.cli.screen import clean, make_console, progress_on, put
from playhead.config import Settings, create_speech
from playhead.errors import MediaError
from playhead.media.catalogue import ALIASES, KNOWN
from playhead.media.service import SpeechStatus


def prepare(settings: Settings, model: str | None) -> int:
    """Join, check or download a model, and say which one is used. Returns the exit code."""
    service = create_speech(settings)
    progress = progress_on(make_console(sys.stderr))
    with Bridge() as bridge:
        try:
            status = bridge.run(
                service.prepare(
                    lambda fraction, text: progress.move("", "model", fraction, clean(text)), model
                )
            )
        except MediaError as error:
            if error.code == "weights_missing":
                known = not model or ALIASES.get(model, model) in KNOWN
                error.add_note(
                    "Check the network, or name a mirror by HF_ENDPOINT."
                    if known
                    else "Give --model one of them."
                )
            raise
        finally:
            progress.close()
            bridge.run(service.aclose())
    _tell(status, model)
    return DONE


def _tell(status: SpeechStatus, asked: str | None) -> None:
    lines = [f"In use: {status.message}"]
    if asked and ALIASES.get(asked, asked) != status.model:
        lines.append(f"Ready as well: {asked}. To use it, set PLAYHEAD_SPEECH_MODEL={asked}")
    for offer in status.better:
        lines.append(f"Better: {offer.name}, a download of {offer.size / 10**6:.0f} MB, {offer.note}.")
        lines.append(f"        playhead speech prepare --model {offer.name}")
    put(sys.stdout, clean("\n".join(lines)) + "\n")
