"""Speech to captions, without an agent: `python transcribe_file.py talk.mp4 > talk.vtt`."""

import asyncio
import sys
from pathlib import Path

from playhead import MediaError
from playhead.config import create_speech, load_settings
from playhead.media.captions import render


async def main(file: Path) -> None:
    speech = create_speech(load_settings())
    try:
        transcript = await speech.transcribe(file, on_progress=lambda _, text: print(text, file=sys.stderr))
        print(render(transcript, "vtt"), end="")
    except MediaError as error:
        sys.exit(f"{error} ({error.code})")
    finally:
        await speech.aclose()


if len(sys.argv) != 2:
    sys.exit("Usage: python transcribe_file.py FILE")
asyncio.run(main(Path(sys.argv[1])))
