"""A model of a few bytes that stands in for a real one where only its files matter."""

import hashlib
from pathlib import Path

import pytest

from playhead.media import catalogue
from playhead.media.catalogue import KnownModel, ModelFile

SMALL_FILES = {
    "config.json": b'{"lang_ids": []}',
    "model.bin": b"weights " * 200,
    "tokenizer.json": b'{"tokens": 3}',
    "vocabulary.txt": b"a\nb\nc\n",
}


def told(fraction: float | None, text: str) -> None:
    """A listener that is not interested."""


def known(name: str, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """Make the catalogue's entry of that name one of the small files."""
    files = [ModelFile(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in SMALL_FILES.items()]
    model = KnownModel(name, f"maker/{name}", "0123abcd", files)
    monkeypatch.setitem(catalogue.KNOWN, name, model)
    index = [entry.name for entry in catalogue.CATALOGUE].index(name)
    monkeypatch.setattr(
        catalogue, "CATALOGUE", [*catalogue.CATALOGUE[:index], model, *catalogue.CATALOGUE[index + 1 :]]
    )
    from playhead.media import models, service

    for module in (models, service):
        monkeypatch.setattr(module, "CATALOGUE", catalogue.CATALOGUE)
    return model


def install(models: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the small files where a prepared model of that name would lie."""
    known(name, monkeypatch)
    folder = models / name
    folder.mkdir(parents=True)
    for file, data in SMALL_FILES.items():
        (folder / file).write_bytes(data)
    return folder
