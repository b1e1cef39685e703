"""A Django project with the agent in it: `python mount_in_django.py [PORT]`.

Who signs in at /login?name=ada has the panel at /. Django's sessions say who it is, to both.
"""

import secrets
import sys

import uvicorn
from django.conf import settings
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from playhead.server import Identity, ServerOptions, create_app

PAGE = """<!doctype html><html lang="en"><title>My project</title>
<script type="module" src="/agent/panel.js"></script>
<playhead-panel server="/agent/" thread="help"></playhead-panel>"""
SESSIONS = "django.contrib.sessions"
settings.configure(SECRET_KEY=secrets.token_urlsafe(), ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"],
                   SESSION_ENGINE=f"{SESSIONS}.backends.signed_cookies", INSTALLED_APPS=[SESSIONS],
                   MIDDLEWARE=[f"{SESSIONS}.middleware.SessionMiddleware"])  # fmt: skip


def login(request: HttpRequest) -> HttpResponse:  # in a real one, with a password
    request.session["user"] = request.GET["name"]
    return HttpResponseRedirect("/")


async def identify(request: Request) -> Identity | None:
    user = await SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME)).aget("user")
    return Identity(user=user) if user else None


urlpatterns = [path("", lambda request: HttpResponse(PAGE)), path("login", login)]
agent = create_app(options=ServerOptions(identify=identify))
routes = [Mount("/agent", agent), Mount("/", get_asgi_application())]
app = Starlette(routes=routes, lifespan=lambda app: agent.router.lifespan_context(agent))
uvicorn.run(app, port=int((*sys.argv, 8000)[1]), timeout_graceful_shutdown=3)
