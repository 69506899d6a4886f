"""The solver's child process: reads models, streams back solutions and bounds. Started by `search.child`.

It runs as a script of its own and imports the standard library and one module of OR-tools: no numpy, no pandas, nothing
of kai-solver. ``ortools.sat.python.cp_model_helper``, the C++ half of ``cp_model``, has all that is needed here
(messages, solve, callbacks, stop); measured on 2026-11-21, OR-tools 9.15, 2 cores: it imports in 0.05 s with 32 MiB
resident, ``cp_model`` in 0.95 s with 94 MiB (it drags in pandas). SCIP, of the same library, comes when it is first
asked: 5 MiB and 0.1 s more.

Frames, both ways: `MAGIC`, two lengths, a JSON header, then the header's blobs (arrays of machine integers). Neither
side unpickles anything. Standard output belongs to the frames; whatever else writes to it lands on standard error.

No ``PR_SET_PDEATHSIG``: it fires when the *thread* that started the child ends, so a child warmed up by a short-lived
thread would die with it. The parent's end shows as the end of standard input, or as another parent's pid. No memory
limit either: CP-SAT maps far more than it touches; the parent watches what is resident.
"""

import importlib
import json
import math
import os
import queue
import select
import signal
import struct
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

MAGIC = b"KAIf"
_PREFIX = struct.Struct(">4sIQ")
MAX_FRAME_BYTES = 2 << 30
_READ_BYTES = 1 << 20
_PARENT_CHECK_S = 1.0

_OPEN = 2**62
"""Ends of rows beyond it mean that there is none."""
_MILP_SPARE_S = 0.05
"""Seconds before its deadline at which the MIP solver is to end: its solution is read only then."""
_RELATIVE_ERROR, _ABSOLUTE_ERROR = 1e-9, 1e-5
"""By how much a bound that was calculated in floating point may be too high."""

_LOG_AT_ONCE = ("#", "Starting presolve", "Starting search", "CpSolverResponse")
"""Begins of lines of CP-SAT's log after which it is sent on."""

LINEAR, AT_MOST_ONE, BOOL_OR, EXACTLY_ONE = range(4)
"""Kinds of rows, as in ``model.rows``."""


class FrameError(Exception):
    """Bytes that are not a frame."""


class Frame(NamedTuple):
    """A message: what it is, its fields, and arrays as bytes."""

    kind: str
    fields: Mapping[str, Any]
    blobs: Mapping[str, bytes]


def encode_frame(kind: str, fields: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> bytes:
    """Return the bytes of one frame; ``fields`` hold JSON values, infinities included."""
    blobs = blobs or {}
    sizes = {name: len(blob) for name, blob in blobs.items()}
    header = json.dumps({"kind": kind, "fields": dict(fields), "blobs": sizes}).encode()
    return b"".join((_PREFIX.pack(MAGIC, len(header), sum(sizes.values())), header, *blobs.values()))


class FrameDecoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add ``data`` and yield every frame that is complete now.

        Raises
        ------
        FrameError
            If the stream is not made of frames.
        """
        self._buffer += data
        while len(self._buffer) >= _PREFIX.size:
            magic, header_size, blob_size = _PREFIX.unpack_from(self._buffer)
            end = _PREFIX.size + header_size + blob_size
            if magic != MAGIC or end > MAX_FRAME_BYTES:
                raise FrameError(f"not a frame: {bytes(self._buffer[:40])!r}")
            if len(self._buffer) < end:
                return
            frame = _decode(bytes(self._buffer[_PREFIX.size : end]), header_size)
            del self._buffer[:end]
            yield frame


def _decode(body: bytes, header_size: int) -> Frame:
    try:
        header = json.loads(body[:header_size])
        blobs, at = {}, header_size
        for name, size in header["blobs"].items():
            blobs[name] = body[at : at + size]
            at += size
        return Frame(header["kind"], header["fields"], blobs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"a frame with a broken header: {error!r}") from error


def ints(blob: bytes, code: str = "q") -> "array[int]":
    """Read an array of machine integers of type ``code``."""
    values = array(code)
    values.frombytes(blob)
    return values


def build_model(helper: Any, constant: int, blobs: Mapping[str, bytes]) -> Any:
    """Convert the columns of a ``ModelSpec``, whose objective has a ``constant``, to a ``CpModelProto``.

    Direct writing of the message: 0.15 s for 100,000 Booleans in 900 rows of 300,000 terms (measured 2026-11-21).
    """
    model = helper.CpModelProto()
    variables = model.variables
    for low, high in zip(ints(blobs["var_low"]), ints(blobs["var_high"]), strict=True):
        variables.add().domain.extend((low, high))
    _add_rows(model.constraints, blobs)
    objective = ints(blobs["objective_var"], "i")
    if objective:
        model.objective.vars.extend(objective)
        model.objective.coeffs.extend(ints(blobs["objective_coefficient"]))
        model.objective.offset = constant  # a relative gap is relative to all of the objective
    if "hint" in blobs:
        values = ints(blobs["hint"])
        model.solution_hint.vars.extend(range(len(values)))
        model.solution_hint.values.extend(values)
    return model


def _add_rows(constraints: Any, blobs: Mapping[str, bytes]) -> None:
    references, coefficients = ints(blobs["reference"], "i"), ints(blobs["coefficient"])
    guards = ints(blobs["guard"], "i")
    rows = zip(
        ints(blobs["kind"], "b"),
        ints(blobs["low"]),
        ints(blobs["high"]),
        ints(blobs["term_end"]),
        ints(blobs["guard_end"]),
        strict=True,
    )
    first = first_guard = 0
    for kind, low, high, end, guard_end in rows:
        constraint = constraints.add()
        if guard_end > first_guard:
            constraint.enforcement_literal.extend(guards[first_guard:guard_end])
        if kind == LINEAR:
            linear = constraint.linear
            linear.vars.extend(references[first:end])
            linear.coeffs.extend(coefficients[first:end])
            linear.domain.extend((low, high))
        else:
            _clause(constraint, kind).literals.extend(references[first:end])
        first, first_guard = end, guard_end


def _clause(constraint: Any, kind: int) -> Any:
    if kind == AT_MOST_ONE:
        return constraint.at_most_one
    return constraint.bool_or if kind == BOOL_OR else constraint.exactly_one


def build_milp(helper: Any, constant: int, blobs: Mapping[str, bytes]) -> Any:
    """Convert the same columns to a ``ModelBuilderHelper``: a mixed-integer model, guards by the least big M."""
    model = helper.ModelBuilderHelper()
    domains = list(zip(ints(blobs["var_low"]), ints(blobs["var_high"]), strict=True))
    for low, high in domains:
        var = model.add_var()
        model.set_var_lower_bound(var, low)
        model.set_var_upper_bound(var, high)
        model.set_var_integrality(var, True)
    for terms, least, most in _linear_rows(blobs, domains):
        row = model.add_linear_constraint()
        model.set_constraint_lower_bound(row, least)
        model.set_constraint_upper_bound(row, most)
        for var, coefficient in terms.items():
            model.add_term_to_constraint(row, var, coefficient)
    costs: dict[int, int] = {}
    for var, cost in zip(ints(blobs["objective_var"], "i"), ints(blobs["objective_coefficient"]), strict=True):
        costs[var] = costs.get(var, 0) + cost
    for var, cost in costs.items():
        model.set_var_objective_coefficient(var, cost)
    model.set_objective_offset(constant)
    for var, value in enumerate(ints(blobs["hint"]) if "hint" in blobs else ()):
        model.add_hint(var, value)
    return model


LinearRow = tuple[dict[int, int], float, float]
"""Coefficients by variable, low and high end (infinite where it has none)."""


def _linear_rows(blobs: Mapping[str, bytes], domains: Sequence[tuple[int, int]]) -> Iterator[LinearRow]:
    """All rows as sums, with what is guarded relaxed by as much as it can be broken at most."""
    references, coefficients = ints(blobs["reference"], "i"), ints(blobs["coefficient"])
    guards = ints(blobs["guard"], "i")
    ends = zip(ints(blobs["term_end"]), ints(blobs["guard_end"]), strict=True)
    first = first_guard = 0
    for (end, guard_end), low, high in zip(ends, ints(blobs["low"]), ints(blobs["high"]), strict=True):
        terms, shift = _sum_of(zip(coefficients[first:end], references[first:end], strict=True))
        least = low - shift if low > -_OPEN else -math.inf
        most = high - shift if high < _OPEN else math.inf
        mine = guards[first_guard:guard_end]
        first, first_guard = end, guard_end
        if not mine:
            yield terms, least, most
            continue
        slack_high = sum(c * domains[v][c > 0] for v, c in terms.items()) - most
        if slack_high > 0 and most < math.inf:
            loosened, moved = _sum_of([*((c, v) for v, c in terms.items()), *((int(slack_high), g) for g in mine)])
            yield loosened, -math.inf, most + int(slack_high) * len(mine) - moved
        slack_low = least - sum(c * domains[v][c < 0] for v, c in terms.items())
        if slack_low > 0 and least > -math.inf:
            loosened, moved = _sum_of([*((c, v) for v, c in terms.items()), *((-int(slack_low), g) for g in mine)])
            yield loosened, least - int(slack_low) * len(mine) - moved, math.inf


def _sum_of(terms: Iterable[tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Terms (coefficient, reference) by variable, and the constant that negated references leave."""
    found: dict[int, int] = {}
    constant = 0
    for coefficient, reference in terms:
        if reference < 0:
            constant += coefficient
            coefficient, reference = -coefficient, -1 - reference
        found[reference] = found.get(reference, 0) + coefficient
    return found, constant


def read_programme(fields: Mapping[str, Any], blobs: Mapping[str, bytes]) -> dict[str, Any]:
    """What `kai_solver.prices.glop.solve` is asked, from a frame."""
    stages = [
        (ints(blobs[f"stage_columns_{number}"], "i"), ints(blobs[f"stage_amounts_{number}"]))
        for number in range(len(fields["at"]))
    ]
    return {
        "most": ints(blobs["most"]),
        "end": ints(blobs["end"]),
        "column": ints(blobs["column"], "i"),
        "coefficient": ints(blobs["coefficient"]),
        "row_low": ints(blobs["row_low"], "d"),
        "row_high": ints(blobs["row_high"], "d"),
        "devices": fields["devices"],
        "stages": stages,
        "at": fields["at"],
    }


def _glop() -> ModuleType:
    """`kai_solver.prices.glop`, without kai-solver."""
    file = Path(__file__).parents[1] / "prices" / "glop.py"
    spec = spec_from_file_location("glop", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    glop = module_from_spec(spec)
    spec.loader.exec_module(glop)
    return glop


class Worker:
    """Serves one question after the other; a listening thread hears ``stop`` and the end of the parent."""

    def __init__(self, helper: Any, source: int, sink: int) -> None:
        self._helper = helper
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self._stopping = threading.Lock()
        self._stopped = 0
        self._asked = 0
        self._solver: Any = None
        self._simplex: Any = None
        self._questions: queue.SimpleQueue[tuple[Frame, float]] = queue.SimpleQueue()

    def send(self, kind: str, fields: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> None:
        """Write one frame; a parent that does not listen any more ends this process."""
        data = memoryview(encode_frame(kind, fields, blobs))
        with self._writing:
            try:
                while data:
                    data = data[os.write(self._sink, data) :]
            except BrokenPipeError:
                os._exit(0)

    def listen(self) -> None:
        """Read frames until the parent is gone, then end the process, whatever it is doing."""
        decoder, parent = FrameDecoder(), os.getppid()
        while os.getppid() == parent:
            if not select.select([self._source], [], [], _PARENT_CHECK_S)[0]:
                continue
            data = os.read(self._source, _READ_BYTES)
            if not data:
                break
            for frame in decoder.feed(data):
                if frame.kind == "stop":
                    self._stop(frame.fields["id"])
                else:
                    self._questions.put((frame, time.monotonic()))
        os._exit(0)

    def serve(self) -> None:
        """Answer questions for ever; what goes wrong with one is its answer."""
        while True:
            frame, received = self._questions.get()
            try:
                self._solve(frame, received)
            except Exception as error:  # any failure is reported to the parent, which decides
                self.send("error", {"id": frame.fields.get("id", 0), "text": f"{type(error).__name__}: {error}"})

    def _stop(self, question: int) -> None:
        with self._stopping:
            self._stopped = max(self._stopped, question)
            if self._solver is not None and self._asked <= self._stopped:
                self._solver.stop_search()

    def _solve(self, frame: Frame, received: float) -> None:
        if frame.kind in ("programme", "rows"):
            self._solve_programme(frame, received)
            return
        if frame.fields["engine"] == "scip":
            self._solve_milp(frame, received)
            return
        question = frame.fields["id"]
        model = build_model(self._helper, frame.fields["constant"], frame.blobs)
        build_s = time.monotonic() - received
        if build_s >= frame.fields["time_limit_s"]:
            self.send("answer", {"id": question, "status": "UNKNOWN", "build_s": build_s, "deterministic_s": 0.0})
            return
        solver = self._helper.SolveWrapper()
        solver.set_parameters(self._parameters(frame.fields, build_s))
        solver.add_best_bound_callback(lambda bound: self.send("bound", {"id": question, "bound": bound}))
        if frame.fields.get("log"):
            solver.add_log_callback(_Log(self, question))
        on_solution = self._on_solution(question)  # the solver keeps a bare pointer: it must outlive the solve
        solver.add_solution_callback(on_solution)
        with self._stopping:
            self._solver, self._asked = solver, question
            if self._stopped >= question:
                solver.stop_search()
        try:
            response = solver.solve(model)
        finally:
            with self._stopping:
                self._solver = None
            solver.clear_solution_callback(on_solution)
        self._answer(frame, model, response, build_s)

    def _solve_programme(self, frame: Frame, received: float) -> None:
        """Ask GLOP, by the same code as where there is no solver process; ``rows`` are more of the last programme."""
        if frame.kind == "programme":
            self._simplex = None  # Its memory is free before the next one takes as much.
            self._simplex = _glop().Simplex(read_programme(frame.fields, frame.blobs))
        limit_s = frame.fields["time_limit_s"] - (time.monotonic() - received)
        if frame.kind == "programme":
            found = self._simplex.solve(limit_s)
        else:
            found = self._simplex.solve_with(frame.fields["rows"], limit_s)
        blobs = {
            f"{name}_{number}": array("d", stage[name]).tobytes()
            for number, stage in enumerate(found)
            for name in ("duals", "holds", "out")
        }
        solutions = [(stage["number"], stage["cost"], stage["held"]) for stage in found]
        self.send("prices", {"id": frame.fields["id"], "solutions": solutions}, blobs)

    def _solve_milp(self, frame: Frame, received: float) -> None:
        """Ask SCIP. Its solutions come when it ends; the parent checks them in integers, bounds are rounded down.

        It keeps its time limit, but does not hear that it should stop earlier (OR-tools 9.15): then the parent ends it.
        """
        helper = importlib.import_module("ortools.linear_solver.python.model_builder_helper")
        question, solver = frame.fields["id"], helper.ModelSolverHelper("scip")
        model = build_milp(helper, frame.fields["constant"], frame.blobs)
        build_s = time.monotonic() - received
        limit_s = frame.fields["time_limit_s"] - build_s - _MILP_SPARE_S
        if limit_s <= 0:
            self.send("answer", {"id": question, "status": "UNKNOWN", "build_s": build_s, "deterministic_s": 0.0})
            return
        if limit_s < float("inf"):
            solver.set_time_limit_in_seconds(limit_s)
        solver.set_solver_specific_parameters(
            "\n".join(f"{name} = {value}" for name, value in frame.fields["parameters"].items())
        )
        if self._stopped < question:
            solver.solve(model)
        fields = {"id": question, "status": "UNKNOWN", "build_s": build_s, "deterministic_s": 0.0}
        values = None
        if solver.has_response() and solver.has_solution():
            values = array("q", (round(solver.variable_value(var)) for var in range(model.num_variables())))
            bound = solver.best_objective_bound()
            bound = math.ceil(bound - _ABSOLUTE_ERROR - _RELATIVE_ERROR * abs(bound)) if abs(bound) < _OPEN else -_OPEN
            fields |= {"status": "FEASIBLE", "bound": bound}
        self.send("answer", fields, {"values": values.tobytes()} if values else None)

    def _parameters(self, fields: Mapping[str, Any], spent_s: float) -> Any:
        parameters = self._helper.SatParameters()
        for name, value in fields["parameters"].items():
            if isinstance(value, list):
                getattr(parameters, name).extend(value)
                continue
            known = getattr(parameters, name)
            setattr(parameters, name, type(known)(value) if hasattr(type(known), "__members__") else value)
        parameters.catch_sigint_signal = False
        if fields.get("log"):
            parameters.log_search_progress, parameters.log_to_stdout = True, False  # to the callback
        limit = fields["time_limit_s"] - spent_s
        if limit < float("inf"):
            parameters.max_time_in_seconds = limit
        return parameters

    def _on_solution(self, question: int) -> Any:
        send = self.send

        class Callback(self._helper.SolutionCallback):  # type: ignore[misc, name-defined]
            def OnSolutionCallback(self) -> None:  # noqa: N802 - CP-SAT's name
                send("incumbent", {"id": question}, {"values": array("q", self.Response().solution).tobytes()})

        return Callback()

    def _answer(self, frame: Frame, model: Any, response: Any, build_s: float) -> None:
        status = response.status.name
        if status == "MODEL_INVALID":
            why = self._helper.CpSatHelper.validate_model(model) or response.solution_info
            raise ValueError(f"CP-SAT refuses the model: {why}")
        fields = {
            "id": frame.fields["id"],
            "status": status,
            "bound": response.inner_objective_lower_bound + frame.fields["constant"],
            "build_s": build_s,
            "deterministic_s": response.deterministic_time,
        }
        solution = array("q", response.solution)
        self.send("answer", fields, {"values": solution.tobytes()} if solution else None)


class _Log:
    """Sends the log's lines, those of a hundred steps of presolve together, each solution and bound at once."""

    def __init__(self, worker: Worker, question: int) -> None:
        self._worker = worker
        self._question = question
        self._lines: list[str] = []
        self._begun_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Take a line, or several."""
        self._lines.append(text)
        if text.lstrip().startswith(_LOG_AT_ONCE):
            fields = {"id": self._question, "text": "\n".join(self._lines), "at_s": time.monotonic() - self._begun_s}
            self._worker.send("log", fields)
            self._lines.clear()


def main() -> None:
    """Claim standard output, load CP-SAT, say that it is ready, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops or ends us
    sink = os.dup(1)
    os.dup2(2, 1)
    import ortools
    from ortools.sat.python import cp_model_helper

    version = vars(ortools)["__version__"]  # importlib.metadata would read it from a file, with modules of 15 ms
    worker = Worker(cp_model_helper, source=0, sink=sink)
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.send("ready", {"pid": os.getpid(), "ortools": version})
    worker.serve()


if __name__ == "__main__":
    main()
