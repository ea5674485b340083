"""One run of a method on a table, in a process of its own that can be ended."""

import os
import signal
import traceback
import warnings
from multiprocessing import get_context

import numpy as np
import pandas as pd
from _data import cpu_seconds
from _wild_methods import made
from _wild_tables import DRAWS, case_of, score_draws, score_points
from threadpoolctl import threadpool_limits

PATIENCE = 4  # seconds of the clock for each second of CPU, on a shared machine
TEXT = 160  # characters of a warning


class OutOfTime(BaseException):
    """The limit is reached; no `except Exception` of a method catches it."""


def measure(name, way, method, limit, seed=0):
    """Fill a table by a method and score it; returns a dict of numbers and texts."""
    case, found = case_of(name, way, seed), {}
    found |= {"rows": len(case.full), "columns": case.full.shape[1]}
    found["hidden"] = int(case.hidden.sum())
    masked = case.masked
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, limit, 1)
    try:
        with threadpool_limits(1):
            found |= _scored(case, masked, made(method, seed), seed)
    except OutOfTime:
        found["error"] = f"more than {limit:g} s"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:TEXT]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        found["error"] = f"{type(error).__name__}: {text} ({where})"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}


def warnings_of_fit(name, way, method, seed=0):
    """Fit a method to a table, and return the number and the texts of its warnings."""
    masked = case_of(name, way, seed).masked
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made(method, seed).fit(masked)
    return _counted(caught)


def _counted(caught):
    texts = [_text(one) for one in caught]
    return {"warnings": len(texts), "texts": sorted(set(texts))}


def _stop(*_):
    raise OutOfTime


def _scored(case, masked, imputer, seed):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = cpu_seconds()
        imputer.fit(masked.copy())
        fitted = cpu_seconds()
        of_fit = _counted(caught)
        filled = imputer.transform(masked.copy())
        done = cpu_seconds()
        found = {"fit": fitted - start, "transform": done - fitted, **of_fit}
        found |= score_points(case, filled)
        if hasattr(imputer, "sample"):
            start = cpu_seconds()
            draws = imputer.sample(masked.copy(), n_draws=DRAWS, random_state=seed)
            found["sample"] = cpu_seconds() - start
            found |= score_draws(case, draws)
    return found | getattr(imputer, "remarks", {})


def _text(warning):
    text = " ".join(str(warning.message).split())[:TEXT]
    return f"{warning.category.__name__}: {text}"


def warm_up(method):
    """Let a method load and compile on a small table, which is not timed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=80), "z": x > 0})
    frame["z"] = frame["z"].astype(float)
    frame["t"] = np.where(rng.random(80) < 0.5, "a", "b")
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = made(method, 0).fit(frame)
        imputer.transform(frame)
        if hasattr(imputer, "sample"):
            imputer.sample(frame, n_draws=2, random_state=0)


def _serve(pipe):
    warm = set()
    while task := pipe.recv():
        method = task[2]
        if method not in warm:
            warm.add(method)
            try:
                warm_up(method)
            except Exception:  # the tables show it
                pass
            pipe.send("warm")
        pipe.send(measure(*task))


class Worker:
    """A process that measures; it is ended and started again if it does not answer."""

    process = None

    def measure(self, name, way, method, limit):
        """Measure a method on a table, as `measure` does."""
        if self.process is None:
            os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            context = get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send((name, way, method, limit))
            while self.pipe.poll(PATIENCE * limit + 60):
                answer = self.pipe.recv()
                if answer != "warm":
                    return answer
            error = f"no answer after {limit:g} s"
        except (EOFError, OSError):
            error = "the process ended"
        self.close()
        return {"error": error}

    def close(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.process = None
