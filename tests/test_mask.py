"""What leaves the process in an error text holds no secret and no absolute path, and stays readable."""

import asyncio
import gc
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.encode import error_text, mask

EVERY_CHARACTER = st.characters(exclude_categories=())
SECRET = "Zq7vLp93xKw2Bn5tRd8yHc4m"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: basic {SECRET}==",
        f"'Authorization': 'Token {SECRET}'",
        f"the header was Bearer {SECRET}.",
        f"Incorrect API key provided: {SECRET}",
        f"OPENAI_API_KEY={SECRET} is wrong",
        f"api_key: {SECRET}",
        f"apiKey = {SECRET}",
        f"{{'api_key': '{SECRET}', 'x': 1}}",
        f'{{"x-goog-api-key":"{SECRET}"}}',
        f"x-api-key: {SECRET}",
        f"client_secret={SECRET}&grant=1",
        f"password={SECRET}",
        f'"password": "two words {SECRET}"',
        f"Cookie: session=1; other={SECRET}",
        f"Invalid token: {SECRET}",
        f"https://user:{SECRET}@example.com/x",
        f"postgresql://:{SECRET}@db:5432/x",
        f"https://example.com/v1?alt=sse&key={SECRET}&x=1",
        f"https://example.com/a?access_token={SECRET}",
        f"https://example.com/a?X-Amz-Signature={SECRET}",
        f"tried sk-proj-{SECRET} first",
        f"tried AIza{SECRET} first",
        f"tried ghp_{SECRET} first",
        f"tried xoxb-{SECRET} first",
        f"jwt eyJhbGciOiJIUzI1NiJ9.{SECRET}.{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        "x " * 7_995 + f"api_key={SECRET}",
        # The cut for length falls into the key, and the paths before it shrink.
        ("/aaaaaaaa/b " * 1_400)[:15_990] + f" sk-{SECRET} " * 9,
    ],
)
def test_no_secret_passes_the_masker(text: str) -> None:
    """Rule 12: keys, tokens, passwords, cookies, URL credentials and query keys."""
    masked = mask(text)
    assert SECRET[:6] not in masked
    assert mask(masked) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("[Errno 2] No such file: '/home/ann lee/My Files/a b.mp4'", "[Errno 2] No such file: 'a b.mp4'"),
        ("cannot open /home/ann lee/x/y.mp4: denied", "cannot open y.mp4: denied"),
        ('File "/usr/lib/python3/x.py", line 3', 'File "x.py", line 3'),
        ("open(/tmp/a/b)", "open(b)"),
        ("PATH=/usr/bin:/usr/local/bin", "PATH=bin:bin"),
        ("gcc -I/usr/include/x", "gcc -Ix"),
        ("in /srv/data/", "in data"),
        (r"C:\Users\Ann\My Files\x.txt is gone", "x.txt is gone"),
        (r"'C:\\Users\\Ann\\x.txt'", "'x.txt'"),
        ("D:/media/x.txt", "x.txt"),
        (r"\\server\share\d\f.txt", "f.txt"),
        ("see file:///home/ann/y.mp4", "see y.mp4"),
    ],
)
def test_absolute_paths_are_reduced_to_their_last_name(text: str, masked: str) -> None:
    """Rule 12: POSIX, Windows, UNC and file URLs; nobody outside learns where things lie."""
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "and/or text/plain 1/2/3 ./a/b ../c/d a/b.py",
        "see https://docs.example.com/home/user/x.html.",
        "LLM_API_KEY is missing; set it",
        "LLM_API_KEY: missing",
        "`password`: expected string, got 5 (integer)",
        "Unexpected token: }",
        "monkey=banana, risk-assessment, task-scheduler-one",
        "a line\\nand a tab\\t, a regex \\\\d+",
        "unknown route /healthz",
        "Unknown LLM provider: unknown-provider",
        "ümläut 😀",
        "",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """S8: an error stays useful to the model that reads it."""
    assert mask(text) == text


@pytest.mark.parametrize(
    "text",
    [
        part * (16_000 // len(part))
        for part in [
            "a",
            "/a",
            "/a a",
            "://",
            "api_key ",
            "\\",
            "'",
            "'/a/",
            "a:/ b",
            "Bearer ",
            "eyJ",
            "key=",
            "b c ",
        ]
    ]
    + ["password" + " " * 15_900, "/" + "a " * 7_900, "z" * 5_000_000],
)
def test_no_text_makes_the_masker_slow_or_long(text: str) -> None:
    """Hostile input is normal: no pattern takes more than linear time to speak of."""
    gc.collect()
    started = time.process_time()
    masked = mask(text)
    assert time.process_time() - started < 0.5
    assert len(masked) <= 4_000


@settings(max_examples=200, deadline=None)
@given(st.text(EVERY_CHARACTER, max_size=300), st.integers(min_value=20, max_value=200))
def test_the_masker_is_total(text: str, limit: int) -> None:
    """Rule 12: any text, any length."""
    masked = mask(text, limit)
    assert len(masked) <= limit
    masked.encode()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad value"), "bad value"),
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (KeyError("name"), "KeyError: 'name'"),
        (TimeoutError(), "TimeoutError"),
        (FileNotFoundError(2, "No such file", "/srv/x/y.mp4"), "[Errno 2] No such file: 'y.mp4'"),
        (RuntimeError(f"refused api_key={SECRET}"), "refused api_key=***"),
        (ExceptionGroup("unhandled", [ValueError("one"), OSError("two")]), "one; two"),
        (asyncio.CancelledError(), "CancelledError"),
        (RuntimeError("x\0\ud800"), "x\ufffd\ufffd"),
    ],
)
def test_an_error_is_its_message_masked(error: BaseException, text: str) -> None:
    """S8: the message, or the class when there is none; no traceback, no secret, no path."""
    assert error_text(error) == text


def test_an_error_that_cannot_be_printed_is_its_class() -> None:
    """S8: even then there is a text."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert error_text(Broken()) == "Broken"
