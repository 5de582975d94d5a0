"""Reports a run of pytest as Rust's test programs do, and counts the tests that reached farjump's connector."""

import time

import pytest

import farjump.proxystore

# Calls that reach an owner. Others of ProxyStore's protocol make these.
_CALLS = ("evict", "exists", "get", "put", "set")


class Report:
    """A plugin. The run fails if fewer than `least` tests reached the connector, or if not exactly `passes` tests passed."""

    def __init__(self, name, passes, least):
        self.name, self.passes, self.least = name, passes, least
        self.reached, self.outcomes, self.outputs = 0, {}, {}
        self.called = False
        for call in _CALLS:
            self.count(call)

    def count(self, call):
        real = getattr(farjump.proxystore.FarjumpConnector, call)

        def counted(connector, *args, **kwargs):
            self.called = True
            return real(connector, *args, **kwargs)

        setattr(farjump.proxystore.FarjumpConnector, call, counted)

    def pytest_sessionstart(self):
        self.begun = time.monotonic()
        print(f"     Running {self.name} ({self.name})", flush=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.called = False
        try:
            return (yield)
        finally:
            self.reached += self.called

    def pytest_runtest_logreport(self, report):
        outcome = self.outcomes.get(report.nodeid, "ok")
        if report.failed:
            outcome = "FAILED"
            self.outputs.setdefault(report.nodeid, []).append(report.longreprtext)
        elif report.skipped:
            outcome = "ignored, skipped"
        self.outcomes[report.nodeid] = outcome

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        passed = sum(outcome == "ok" for outcome in self.outcomes.values())
        for wrong, what in (
            (passed != self.passes, f"{passed} tests passed, not {self.passes}"),
            (self.reached < self.least, f"{self.reached} tests reached the connector, fewer than {self.least}"),
        ):
            if wrong:
                self.outcomes[f"all: {what}"] = "FAILED"
                self.outputs[f"all: {what}"] = [what]
        if self.outputs:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self):
        names = {test: test.replace("/", "::").replace(".py", "") for test in self.outcomes}
        print(f"\n\nrunning {len(self.outcomes)} tests")
        for test, outcome in self.outcomes.items():
            print(f"test {names[test]} ... {outcome}")
        if self.outputs:
            print("\nfailures:\n")
            for test, output in self.outputs.items():
                print(f"---- {names[test]} stdout ----\n" + "\n".join(output))
            print("\nfailures:")
            for test in self.outputs:
                print(f"    {names[test]}")
        print(f"\n{self.reached} tests reached the connector, of at least {self.least}")
        passed = sum(outcome == "ok" for outcome in self.outcomes.values())
        ignored = len(self.outcomes) - passed - len(self.outputs)
        print(
            f"\ntest result: {'FAILED' if self.outputs else 'ok'}. {passed} passed; {len(self.outputs)} failed; "
            f"{ignored} ignored; 0 measured; 0 filtered out; finished in {time.monotonic() - self.begun:.2f}s",
            flush=True,
        )
