"""A FastAPI app with the agent in it, for its own users: `python mount_in_fastapi.py [PORT]`.

Who signs in at /login?name=ada has the panel at /, and there only what is theirs.
"""

import secrets
import sys

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from playhead import tool
from playhead.server import Identity, ServerOptions, create_app

PAGE = """<!doctype html><html lang="en"><title>My app</title>
<style>body { margin: 0; height: 100dvh }</style>
<script type="module" src="/agent/panel.js"></script>
<playhead-panel server="/agent/" thread="help"></playhead-panel>"""
users: dict[str, str] = {}  # by their sessions: what an app has already


async def identify(request: Request) -> Identity | None:
    user = users.get(request.cookies.get("session", ""))
    return Identity(tenant="my-company", user=user) if user else None


@tool(approval=True)  # the panel asks the user first, and shows what exactly would be done
async def refund(order: str, amount: float) -> str:
    """Pay money back for an order."""
    return f"{amount:.2f} are paid back for the order {order}."


agent = create_app(tools=[refund], options=ServerOptions(identify=identify))
app = FastAPI(lifespan=lambda app: agent.router.lifespan_context(agent))  # runs end with it
app.mount("/agent", agent)


@app.get("/", response_class=HTMLResponse)
async def home() -> str:
    return PAGE


@app.get("/login")
async def login(name: str) -> RedirectResponse:
    response = RedirectResponse("/", status_code=303)
    response.set_cookie("session", session := secrets.token_urlsafe(), httponly=True, samesite="strict")
    users[session] = name
    return response


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, timeout_graceful_shutdown=3)
