"""The agent beside a page of another origin: `python beside_a_page.py [PAGE_PORT AGENT_PORT]`.

The page's own server gives each visitor a token, which the agent knows.
"""

import asyncio
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from starlette.requests import Request

from playhead.server import Identity, ServerOptions, create_app, serve

PAGE_PORT, AGENT_PORT = (int(port) for port in sys.argv[1:3] or (8000, 8001))
PAGE = """<!doctype html><html lang="en"><title>A page</title>
<script type="module">import "http://127.0.0.1:{port}/panel.js";
const panel = document.createElement("playhead-panel");
panel.setAttribute("thread", "help");
panel.fetch = (url, init = {{}}) => {{
  const headers = {{ ...Object.fromEntries(new Headers(init.headers)), authorization: "Bearer {token}" }};
  return fetch(url, {{ ...init, headers }});
}};
document.body.append(panel);</script>"""
visitors: dict[str, str] = {}


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        visitors[token := secrets.token_urlsafe()] = f"visitor {len(visitors)}"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.format(port=AGENT_PORT, token=token).encode())


async def identify(request: Request) -> Identity | None:
    user = visitors.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    return Identity(user=user) if user else None


Thread(target=ThreadingHTTPServer(("127.0.0.1", PAGE_PORT), Page).serve_forever, daemon=True).start()
options = ServerOptions(identify=identify, origins=[f"http://127.0.0.1:{PAGE_PORT}"])
asyncio.run(serve(create_app(options=options), port=AGENT_PORT, on_ready=print))
