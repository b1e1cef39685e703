"""`/api/projects`: several pieces of work, each with its media and its conversation."""

from collections.abc import Sequence

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from playhead.server.body import read_json
from playhead.server.errors import ApiError
from playhead.server.media import item
from playhead.server.parts import parts_of
from playhead.server.routes import Endpoint
from playhead.server.wire import (
    MediaItem,
    NewProject,
    ProjectChange,
    ProjectItem,
    ProjectList,
    ProjectView,
    TakenBack,
    UndoBody,
    dump,
)
from playhead.server.workspace import Workspace
from playhead.storage.projects import Project


def project_endpoints() -> Sequence[Endpoint]:
    """The part of the route table that is here."""
    one = "/api/projects/{project_id}"
    bad = (400, 413)
    return (
        Endpoint("GET", "/api/projects", list_projects, reply=ProjectList),
        Endpoint(
            "POST",
            "/api/projects",
            create_project,
            body=NewProject,
            reply=ProjectItem,
            status=201,
            errors=bad,
        ),
        Endpoint("GET", one, read_project, reply=ProjectView, errors=[404]),
        Endpoint(
            "PATCH",
            one,
            change_project,
            body=ProjectChange,
            reply=ProjectItem,
            errors=(*bad, 404),
        ),
        Endpoint("DELETE", one, delete_project, status=204, errors=[404, 409]),
        Endpoint(
            "POST", f"{one}/sample", add_sample, reply=MediaItem, status=201, errors=[404, 413, 503, 507]
        ),
        Endpoint("POST", f"{one}/undo", undo, body=UndoBody, reply=TakenBack, errors=(*bad, 404)),
        Endpoint("DELETE", f"{one}/media/{{media_id}}", take_out, status=204, errors=[404]),
    )


async def list_projects(request: Request) -> Response:
    """The projects, oldest first.

    One is always there, before the others: it holds the media that are in no other.
    """
    projects = await workspace_of(request).projects()
    return _json(ProjectList([_item(project) for project in projects]))


async def create_project(request: Request) -> Response:
    """Make a project, with a conversation of its own."""
    body = await read_json(request, NewProject, parts_of(request).options.max_body)
    return _json(_item(await workspace_of(request).create(_name(body.name))), 201)


async def read_project(request: Request) -> Response:
    """A project and its files."""
    workspace, project_id = workspace_of(request), request.path_params["project_id"]
    project = await workspace.project(project_id)
    media = [item(record) for record in await workspace.media(project_id)]
    return _json(ProjectView(_item(project), media))


async def change_project(request: Request) -> Response:
    """Rename a project, or begin another conversation in it.

    What is left out stays as it is. The former conversation is not deleted.
    """
    body = await read_json(request, ProjectChange, parts_of(request).options.max_body)
    if body.thread_id is not UNSET and not body.thread_id.isprintable():
        text = "threadId: It must be printable characters, such as an id of your own."
        raise ApiError(400, "invalid", text, path="threadId")
    changed = await workspace_of(request).change(
        request.path_params["project_id"],
        name=None if body.name is UNSET else _name(body.name),
        thread_id=None if body.thread_id is UNSET else body.thread_id,
    )
    return _json(_item(changed))


async def delete_project(request: Request) -> Response:
    """Delete a project, its conversation, and the media that are in no other project.

    409 for the one that is always there.
    """
    project = await workspace_of(request).delete(request.path_params["project_id"])
    await parts_of(request).sessions.delete(project.thread_id)
    return Response(status_code=204)


async def add_sample(request: Request) -> Response:
    """Put the recording that comes with Playhead into a project, to try things with."""
    parts = parts_of(request)
    parts.check_open()
    work = workspace_of(request).add_sample(request.path_params["project_id"])
    return _json(item(await parts.carry_out(work)), 201)


async def undo(request: Request) -> Response:
    """Take a change of transcripts back, in all files of a project.

    What an agent wrote in one turn is one change. A line that was written anew since stays as it is
    now. 404 where the change was taken back, or is too long ago.
    """
    body = await read_json(request, UndoBody, parts_of(request).options.max_body)
    lines = await workspace_of(request).undo(request.path_params["project_id"], body.change)
    return _json(TakenBack(lines))


async def take_out(request: Request) -> Response:
    """Take a file out of a project. It is deleted unless another project has it."""
    where = request.path_params
    await workspace_of(request).take_out(where["project_id"], where["media_id"])
    return Response(status_code=204)


def workspace_of(request: Request) -> Workspace:
    """The workspace of whoever asks."""
    return parts_of(request).workspace


def _name(text: str) -> str:
    shown = "".join(c for c in " ".join(text.split()) if c.isprintable())
    if not shown:
        raise ApiError(400, "invalid", "name: It is empty; give the project a name.", path="name")
    return shown


def _item(project: Project) -> ProjectItem:
    return ProjectItem(project.id, project.name, project.thread_id, project.created_at, project.updated_at)


def _json(value: object, status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json")
