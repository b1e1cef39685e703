"""What the video page works on: projects, the media in them, and their transcripts as people edited them.

One project is always there and holds the media that are in no other, such as files that came in before
there were projects.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from playhead.errors import MediaError, StoreError
from playhead.ids import new_id
from playhead.media.cues import CueStyle, make_cues
from playhead.media.edits import Line, edited, line_of
from playhead.media.library import MediaLibrary, MediaRecord, no_such_media
from playhead.media.previews import Previews, Waveform
from playhead.media.service import SpeechService
from playhead.media.sheet import Thumbnails
from playhead.media.types import OnProgress, Segment, Transcript
from playhead.session.opening import Books
from playhead.storage.edits import By, LineEdit
from playhead.storage.ledger import coded, conflict
from playhead.storage.projects import Project, no_project
from playhead.tools.builtin import MadeCaptions

FIRST = "first"
SAMPLE = Path(__file__).parent.parent / "media" / "samples" / "jfk.mp4"
_FIRST = Project(FIRST, "My first project", FIRST)
# What `CueStyle` may be asked for: least and most.
RANGES: Mapping[str, tuple[float, float]] = {"words": (1, 20), "lines": (1, 2), "speed": (5, 40)}


class NumberedLine(msgspec.Struct, frozen=True):
    """A line of a transcript, counted from 0, as a change found it and as it left it."""

    number: int
    before: str
    text: str


class LineChange(msgspec.Struct, frozen=True):
    """What a person, or an agent in one turn, changed. `at` is in milliseconds since 1970."""

    id: str
    by: By
    at: int
    lines: Sequence[NumberedLine]


class Workspace:
    """Projects, media and transcripts of one tenant.

    Args:
        library: the media files.
        speech: what transcribes.
        previews: what draws waveforms and thumbnails.
        books: returns the stores; they are opened when first needed.
        tenant: whose projects and edits these are, and whose media.
        whole: the library that this tenant's is a part of.

    Methods raise `StoreError` and `MediaError`, with the code `not_found` for what is not there.
    """

    def __init__(
        self,
        library: MediaLibrary,
        speech: SpeechService,
        previews: Previews,
        books: Callable[[], Awaitable[Books]],
        *,
        tenant: str | None = None,
        whole: MediaLibrary | None = None,
    ) -> None:
        self.library = library
        self._whole = whole or library
        self._speech = speech
        self._previews = previews
        self._books = books
        self._tenant = tenant
        self._known: set[str] = set()  # ids of projects that were there when a run asked

    def of_tenant(self, tenant: str | None) -> "Workspace":
        """What a tenant works on; nothing in it is another's."""
        if tenant == self._tenant:
            return self
        library = self._whole.of_tenant(tenant)
        return Workspace(library, self._speech, self._previews, self._books, tenant=tenant, whole=self._whole)

    # ------------------------------------------------------------ projects

    async def projects(self) -> Sequence[Project]:
        """All of them, the one that is always there before the others."""
        kept = await (await self._books()).projects.list(tenant_id=self._tenant)
        first = next((project for project in kept if project.id == FIRST), _FIRST)
        return [first, *(project for project in kept if project.id != FIRST)]

    async def project(self, project_id: str) -> Project:
        """One of them. Raises `StoreError` with code `not_found`."""
        kept = await (await self._books()).projects.get(project_id, tenant_id=self._tenant)
        if kept is None and project_id != FIRST:
            raise no_project(project_id)
        return kept or _FIRST

    async def has(self, project_id: str | None) -> bool:
        """Whether a project is there. While the database cannot be read, any that is named counts."""
        if project_id is None or project_id in self._known:
            return project_id is not None
        try:
            await self.project(project_id)
        except StoreError as error:
            return error.code != "not_found"
        self._known.add(project_id)
        return True

    async def create(self, name: str) -> Project:
        """A new project, with a conversation of its own."""
        store = (await self._books()).projects
        return await store.create(Project(new_id(), name, new_id()), tenant_id=self._tenant)

    async def change(self, project_id: str, *, name: str | None, thread_id: str | None) -> Project:
        """Another name or conversation for a project."""
        store = (await self._books()).projects
        if project_id == FIRST:
            await store.create(_FIRST, tenant_id=self._tenant)
        return await store.change(project_id, name=name, thread_id=thread_id, tenant_id=self._tenant)

    async def delete(self, project_id: str) -> Project:
        """Forget a project and the media that are in no other; return what it was.

        The one that is always there stays: raises `StoreError` with code `conflict`.
        """
        if project_id == FIRST:
            raise conflict(
                "This project stays: it holds the media of no other. Rename it, or delete its media."
            )
        project = await self.project(project_id)
        store = (await self._books()).projects
        mine = await store.media(project_id, tenant_id=self._tenant)
        await store.delete(project_id, tenant_id=self._tenant)
        self._known.discard(project_id)
        placed = await store.placed(tenant_id=self._tenant)
        for media_id in mine:
            if media_id not in placed and self.library.get(media_id) is not None:
                await self.delete_media(media_id)
        return project

    # ------------------------------------------------------------ media

    async def media(self, project_id: str) -> Sequence[MediaRecord]:
        """The files of a project, in the order in which they came in."""
        store = (await self._books()).projects
        await self.project(project_id)
        mine = await store.media(project_id, tenant_id=self._tenant)
        if project_id == FIRST:
            placed = await store.placed(tenant_id=self._tenant)
            own = set(mine)
            return [r for r in self.library.list() if r.id in own or r.id not in placed]
        return [record for media_id in mine if (record := self.library.get(media_id)) is not None]

    async def put(self, project_id: str, media_id: str, *, known: bool = False) -> None:
        """Put a file into a project. One that was `known` before, and is in none, stays in the first too."""
        store = (await self._books()).projects
        into = [project_id]
        if project_id != FIRST and known and media_id not in await store.placed(tenant_id=self._tenant):
            into.insert(0, FIRST)
        for one in into:
            if one == FIRST:
                await store.create(_FIRST, tenant_id=self._tenant)
            await store.put_media(one, media_id, tenant_id=self._tenant)

    async def add_sample(self, project_id: str) -> MediaRecord:
        """Put the recording that ships with the package into a project."""
        await self.project(project_id)
        before = {record.id for record in self.library.list()}
        record = await self.library.add_file(SAMPLE)
        await self.put(project_id, record.id, known=record.id in before)
        return record

    async def take_out(self, project_id: str, media_id: str) -> None:
        """Take a file out of a project; it is deleted unless another has it."""
        if all(record.id != media_id for record in await self.media(project_id)):
            raise coded("not_found", f"There is no media {media_id[:100]!r} in this project.")
        store = (await self._books()).projects
        await store.drop_media(project_id, media_id, tenant_id=self._tenant)
        if media_id not in await store.placed(tenant_id=self._tenant):
            await self.delete_media(media_id)

    async def delete_media(self, media_id: str) -> None:
        """Delete a file, and what was kept of it."""
        record = self.library.get(media_id)
        await self.library.delete(media_id)
        books = await self._books()
        await books.projects.forget_media(media_id, tenant_id=self._tenant)
        await books.edits.forget(media_id, tenant_id=self._tenant)
        if record is not None and all(other.sha256 != record.sha256 for other in self.library.list()):
            await self._previews.forget(record.sha256)

    async def waveform(self, media_id: str) -> Waveform:
        """The peaks of the sound of a file."""
        path = self.library.path(media_id)
        return await self._previews.waveform(path, self._sha256(media_id))

    async def thumbnails(self, media_id: str) -> Thumbnails:
        """Pictures of a file."""
        path = self.library.path(media_id)
        return await self._previews.thumbnails(path, self._sha256(media_id))

    def _sha256(self, media_id: str) -> str:
        record = self.library.get(media_id)
        if record is None:
            raise no_such_media(media_id)
        return record.sha256

    # ------------------------------------------------------------ transcripts

    async def transcript(self, media_id: str) -> Transcript:
        """What was said in a file, as people edited it. Raises `MediaError` with code `not_found`."""
        transcript = await self._speech.known(self.library.path(media_id))
        if transcript is None:
            text = "There is no transcript of this file yet: ask for one in a chat."
            raise MediaError(text, code="not_found")
        return await self.with_edits(media_id, transcript)

    async def known(self, media_id: str) -> Transcript | None:
        """The same, or None where there is none."""
        try:
            return await self.transcript(media_id)
        except MediaError as error:
            if error.code != "not_found":
                raise
            return None

    async def with_edits(self, media_id: str, transcript: Transcript) -> Transcript:
        """A transcript of a file with what people wrote over its lines."""
        kept = await (await self._books()).edits.edits(media_id, tenant_id=self._tenant)
        texts: dict[Line, str] = {edit.line: edit.text for edit in kept}
        return edited(transcript, texts)

    async def edit(self, media_id: str, number: int, said: str, text: str) -> Segment:
        """Write a line anew, or take that back with the text that was recognised; return the line.

        Raises `StoreError`: `not_found` where there is no such line, `conflict` where something else
        was said in it, since the file was transcribed anew.
        """
        lines = (await self.transcript(media_id)).segments
        if not 0 <= number < len(lines):
            raise coded(
                "not_found", f"There is no line {number}: the transcript has {len(lines)}, from 0 on."
            )
        start, end, recognised = line_of(lines[number])
        if said.strip() != recognised:
            raise conflict(f"The line {number} is another one by now: read the transcript again.")
        # What people write is one line, and the recogniser's own words are no edit.
        written = " ".join(text.split())
        edit = LineEdit(start, end, recognised, written)
        edits = (await self._books()).edits
        await edits.write(media_id, [edit], change=new_id(), tenant_id=self._tenant)
        return (await self.transcript(media_id)).segments[number]

    async def rewrite(self, asset_id: str, lines: Sequence[tuple[Segment, str]], *, change: str) -> None:
        """Let an agent write lines anew; see `TranscriptWriter`."""
        edits = [LineEdit(*line_of(segment), " ".join(text.split())) for segment, text in lines]
        store = (await self._books()).edits
        await store.write(asset_id, edits, change=change, by="agent", tenant_id=self._tenant)

    async def changes(self, media_id: str) -> Sequence[LineChange]:
        """What was changed in the lines of a transcript, the newest first."""
        segments = (await self.transcript(media_id)).segments
        numbers = {line_of(segment): number for number, segment in enumerate(segments)}
        made = await (await self._books()).edits.changes(media_id, tenant_id=self._tenant)
        found = []
        for change in made:
            there = [(numbers[line.line], line) for line in change.lines if line.line in numbers]
            lines = [NumberedLine(number, line.before, line.text) for number, line in there]
            if lines:
                found.append(LineChange(change.id, change.by, change.at, lines))
        return found

    async def undo(self, project_id: str, change: str) -> int:
        """Take a change back in all media of a project; return how many lines are as they were before.

        Lines that somebody wrote anew since stay. Raises `StoreError` `not_found` where it was taken back.
        """
        store = (await self._books()).edits
        media = await self.media(project_id)
        taken = [await store.undo(record.id, change, tenant_id=self._tenant) for record in media]
        back = [lines for lines in taken if lines is not None]
        if not back:
            raise coded("not_found", "There is nothing to take back: it was taken back, or is too long ago.")
        return sum(map(len, back))

    async def captions(
        self,
        asset_id: str,
        form: str,
        *,
        words: int | None = None,
        lines: int | None = None,
        speed: float | None = None,
    ) -> MadeCaptions:
        """Cues of a transcript, and where they are served as a file; see `CaptionMaker`."""
        style = style_of(words, lines, speed)
        asked = {"words": words, "lines": lines, "speed": speed}
        given = {name: value for name, value in asked.items() if value is not None}
        cues = make_cues((await self.transcript(asset_id)).segments, style)
        query = f"?{urlencode(given)}" if given else ""
        url = f"api/media/{quote(asset_id, safe='')}/captions.{form}{query}"
        return MadeCaptions(url, cues, sum(style.is_too_fast(cue) for cue in cues))


class EditedSpeech:
    """Speech for the tools: what was recognised, as people edited it since.

    Args:
        speech: what transcribes.
        workspace: where the edits are kept; the name of a file of its library begins with its id.
    """

    def __init__(self, speech: SpeechService, workspace: Workspace) -> None:
        self._speech = speech
        self._workspace = workspace

    async def transcribe(
        self,
        path: Path,
        *,
        language: str | None = None,
        model_id: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Transcript:
        """See `SpeechService.transcribe`."""
        made = await self._speech.transcribe(
            path, language=language, model_id=model_id, on_progress=on_progress
        )
        return await self._workspace.with_edits(path.stem, made)

    def of_tenant(self, tenant: str | None) -> "EditedSpeech":
        """The same with a tenant's edits."""
        return EditedSpeech(self._speech, self._workspace.of_tenant(tenant))


def style_of(words: int | None, lines: int | None, speed: float | None) -> CueStyle:
    """The style with these numbers. Raises `MediaError` `unsupported` for one that is out of range."""
    for name, value in {"words": words, "lines": lines, "speed": speed}.items():
        least, most = RANGES[name]
        if value is not None and not least <= value <= most:
            text = f"{name}: It is {value:g}; give {least:g} to {most:g}."
            raise MediaError(text, code="unsupported")
    return CueStyle(lines=lines or CueStyle().lines, words=words, speed=speed)
