"""Parts of all measurements: a target in a process of its own, interleaved rounds, ratios, the report.

A measurement is a script with a list of `Case`s, which are run one right after another in each round, and a list of
`Bound`s between them. Ratios and differences are taken within a round; the figure is the median of the rounds.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

import farjump

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ALLOWED = os.sched_getaffinity(0)
# Longest life of a target, in seconds: one that is left behind ends.
WATCHDOG = 1800


@dataclass
class Case:
    """One measured thing. `run` measures it once, and returns nanoseconds for one operation."""

    name: str
    run: Callable[[], float]
    figures: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)


@dataclass
class Bound:
    """A limit of a case: `times` the figure of the reference, and `plus` nanoseconds."""

    case: Case
    reference: Case
    times: float = 1.0
    plus: float = 0.0

    @property
    def excess(self) -> float:
        """Median over the rounds of the figure divided by its limit. The bound holds up to 1."""
        rounds = zip(self.case.figures, self.reference.figures, strict=True)
        return statistics.median(figure / (self.times * other + self.plus) for figure, other in rounds)

    @property
    def text(self) -> str:
        limit = f"{self.times:g} x {self.reference.name}" if self.times != 1 else self.reference.name
        return f"{limit} + {self.plus:g} ns" if self.plus else limit


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of all measurements."""
    options = argparse.ArgumentParser(description=description, allow_abbrev=False)
    options.add_argument("--program", default="farjump", help="the program farjump [default: that in PATH]")
    options.add_argument("--rounds", type=positive, default=9, metavar="N", help="rounds over all cases [default: 9]")
    options.add_argument("--json", action="store_true", help="print JSON in place of tables")
    options.add_argument(
        "--cpus", type=processors, default=None, metavar="A,B",
        help="processors of this process and of the target; `any` leaves them to the system [default: the first two allowed]",
    )
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def processors(text: str) -> list[int]:
    if text == "any":
        return []
    numbers = [int(one) for one in text.split(",")]
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError("give two processors, such as 0,1, or `any`")
    return numbers


def chosen_processors(options: argparse.Namespace) -> list[int]:
    """Returns the processors of this process and of the target; none if the system chooses."""
    if options.cpus is not None:
        return options.cpus
    allowed = sorted(ALLOWED)
    return allowed[:2] if len(allowed) > 1 else []


@contextlib.contextmanager
def target(options: argparse.Namespace, *arguments: str, spins: bool = True) -> Iterator[tuple[str, int]]:
    """Serves a target, and yields its address and its pid. Places this process and the target on their processors."""
    places = chosen_processors(options)
    with tempfile.TemporaryDirectory(prefix="farjump-bench-") as folder:
        address = f"unix:{folder}/target"
        command = [options.program, "serve", "--listen", address, *arguments, *(["--wait-policy", "always"] if spins else [])]
        said = open(f"{folder}/said", "w+")
        serving = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        watchdog = threading.Timer(WATCHDOG, serving.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            wait_for(address, serving, said)
            if places:
                os.sched_setaffinity(0, places[:1])
                os.sched_setaffinity(serving.pid, places[1:])
            yield address, serving.pid
        finally:
            os.sched_setaffinity(0, ALLOWED)
            serving.terminate()
            serving.wait()
            watchdog.cancel()
            said.close()


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stops a target, and lets children of this process run on all processors: they measure on the same two."""
    place = os.sched_getaffinity(0)
    os.kill(pid, signal.SIGSTOP)
    os.sched_setaffinity(0, ALLOWED)
    try:
        yield
    finally:
        os.sched_setaffinity(0, place)
        os.kill(pid, signal.SIGCONT)


def wait_for(address: str, serving: subprocess.Popen[bytes], said: TextIO) -> None:
    """Waits until the target listens."""
    while serving.poll() is None:
        with contextlib.suppress(farjump.ConnectError):
            return farjump.Link(address).close()
        time.sleep(0.01)
    said.seek(0)
    raise SystemExit(f"the target ended with status {serving.returncode} before it listened: {said.read()}")


@contextlib.contextmanager
def built(options: argparse.Namespace, source: str) -> Iterator[farjump.Library]:
    """Builds the ifunc in this file of the repository."""
    with tempfile.TemporaryDirectory(prefix="farjump-bench-") as folder:
        name = os.path.splitext(os.path.basename(source))[0]
        path = f"{folder}/lib{name}.so"
        command = [options.program, "build", os.path.join(ROOT, source), "-o", path]
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(f"{source} cannot be built:\n{made.stdout}")
        yield farjump.Library(path)


def measure(cases: list[Case], rounds: int) -> None:
    """Runs each case once in each round, after one round that does not count."""
    for number in range(rounds + 1):
        for case in cases:
            figure = case.run()
            if number > 0:
                case.figures.append(figure)


def report(options: argparse.Namespace, cases: list[Case], bounds: list[Bound]) -> int:
    """Prints the figures. Returns the exit status: 1 if a bound does not hold."""
    exceeded = [bound for bound in bounds if bound.excess > 1]
    if options.json:
        rows = [{"name": case.name, "median_ns": case.median, "rounds_ns": case.figures} for case in cases]
        limits = [
            {"case": bound.case.name, "bound": bound.text, "of_bound": bound.excess, "holds": bound.excess <= 1}
            for bound in bounds
        ]
        print(json.dumps({"machine": machine(options), "cases": rows, "bounds": limits}, indent=2))
        return bool(exceeded)
    print(", ".join(f"{name} {value}" for name, value in machine(options).items()))
    print(f"\nns for one, medians of {options.rounds} rounds")
    table([("case", "median", "smallest", "largest", "million/s")] + [
        (case.name, f"{case.median:.0f}", f"{min(case.figures):.0f}", f"{max(case.figures):.0f}", f"{1e3 / case.median:.2f}")
        for case in cases
    ])
    print("\nmedians of the rounds' ratios")
    table([("case", "bound", "of the bound", "holds")] + [
        (bound.case.name, bound.text, f"{bound.excess:.2f}", "yes" if bound.excess <= 1 else "NO") for bound in bounds
    ])
    return bool(exceeded)


def table(rows: list[tuple[str, ...]]) -> None:
    """Prints rows in columns: names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.rjust(width) if text[:1].isdigit() or row is rows[0] and rows[1][column][:1].isdigit() else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def machine(options: argparse.Namespace) -> dict[str, str]:
    """Returns the conditions on which the figures depend."""
    places = chosen_processors(options)
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": ",".join(map(str, places)) if places else "any",
    }
