"""What a provider can do wrong, and the code it is told by."""

from playhead.testing import Reply, hang, reply_bytes, reply_json
from tests.server.support import CANARY

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
FAULTS: list[tuple[Reply, str]] = [
    (reply_json({"error": {"message": f"bad key {CANARY}"}}, 401), "auth"),
    (reply_json({"error": {"message": "no"}}, 403), "auth"),
    (reply_json({"error": {"message": "no such model"}}, 404), "model_not_found"),
    (reply_json({"error": {"message": "bad field SECRET-BODY"}}, 400), "bad_request"),
    (reply_json({"error": {"message": "slow down"}}, 429, {"Retry-After": "7"}), "rate_limit"),
    (reply_json({"error": {"message": "boom SECRET-BODY"}}, 500), "overloaded"),
    (reply_json({"error": {"message": "busy"}}, 503), "overloaded"),
    (reply_bytes(_HEAD + b"Content-Length: 11\r\n\r\nSECRET-BODY"), "protocol"),
    (reply_bytes(b"SECRET-BODY is not HTTP\r\n\r\n"), "protocol"),
    (reply_json({"lies": "SECRET-BODY"}), "protocol"),
    (reply_json([]), "protocol"),
    (reply_json({"choices": []}, cut="rst"), "connection"),
    (reply_bytes(end="rst"), "connection"),
    (hang(), "timeout"),
    (reply_bytes(_HEAD + b"Content-Length: 99\r\n\r\n{", end="hang"), "timeout"),
]


FAULT_IDS = [f"{number}-{code}" for number, (_, code) in enumerate(FAULTS)]
