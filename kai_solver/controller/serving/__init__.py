"""What the controller answers over HTTP: uvicorn and starlette, with limits that hold against any client."""

from kai_solver.controller.serving.answers import Answer, PostRoute, Route, download, metrics, probe
from kai_solver.controller.serving.callers import Callers
from kai_solver.controller.serving.limits import Limits
from kai_solver.controller.serving.server import Server

__all__ = ["Answer", "Callers", "Limits", "PostRoute", "Route", "Server", "download", "metrics", "probe"]
