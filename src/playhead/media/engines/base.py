"""Making an engine from its description."""

from importlib import import_module

from playhead.errors import ConfigError
from playhead.media.types import Engine, EngineSpec

# id -> where its class is. An id of the form `package.module:Class` names an engine of one's own.
ENGINES = {
    "whisper": "playhead.media.engines.whisper:WhisperEngine",
    "http": "playhead.media.engines.http:HttpEngine",
    "fake": "playhead.media.engines.fake:FakeEngine",
}


def create_engine(spec: EngineSpec) -> Engine:
    """Make an engine; nothing is loaded yet. Raises `ConfigError` for an unknown id or wrong options."""
    module, _, name = ENGINES.get(spec.id, spec.id).partition(":")
    if not name:
        raise ConfigError(f"Unknown speech engine {spec.id!r}: use one of {', '.join(ENGINES)}.")
    try:
        engine: Engine = getattr(import_module(module), name)(**spec.options)
    except (ImportError, AttributeError):
        raise ConfigError(f"The speech engine {spec.id!r} cannot be imported.") from None
    except TypeError as error:
        raise ConfigError(f"The options of the speech engine {spec.id!r} are wrong: {error}.") from None
    return engine
