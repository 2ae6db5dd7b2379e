"""The lines of `flwr run --stream` that a user sees."""

from collections.abc import Iterable

from deploy.log_filter import LogFilter

REFUSED = """\
Using SuperLink: local (127.0.0.1:26326)
Successfully started run 12956304422192159716
\x1b[92mINFO \x1b[0m:      Starting logstream for run_id `12956304422192159716`
\x1b[92mINFO \x1b[0m:      Start `flwr-serverapp` process
Successfully installed fedcomp to /f/superlink/home/apps/fedcomp.fedcomp.0.1.0.5c77b361.
\x1b[91mERROR \x1b[0m:     ServerApp raised an exception
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/flwr/superlink/runtime/run_serverapp.py", line 221, in run_serverapp
    context = run_(
{error}
\x1b[91mERROR \x1b[0m:     Exit Code: 201
An unhandled exception occurred in the ServerApp.

For more information, visit: <https://flower.ai/docs/framework/1.41/en/ref-exit-codes/201.html>
"""


def shown(lines: Iterable[str], *, verbose: bool = False) -> list[str]:
    """The lines that are shown."""
    chosen = LogFilter(verbose)
    return [kept for line in lines for kept in chosen.show(line)]


def test_only_the_traceback_of_a_refused_setting_is_hidden() -> None:
    assert shown(REFUSED.format(error="server.settings.SettingsError: no dataset card 'nope'").splitlines()) == []
    lines = shown(REFUSED.format(error="RuntimeError: all is lost").splitlines())
    assert (lines[1], lines[-1]) == ("Traceback (most recent call last):", "RuntimeError: all is lost")


def test_in_simulation_only_the_traceback_of_a_refused_setting_is_hidden() -> None:
    head = [
        "ERROR :     Simulation raised an exception",
        "Traceback (most recent call last):",
        '  File "app.py", line 1',
    ]
    assert shown([*head, "server.settings.SettingsError: seed is -1"]) == []
    assert shown([*head, "RuntimeError: all is lost"]) == [*head, "RuntimeError: all is lost"]


def test_only_the_runs_own_lines_warnings_and_errors_are_shown() -> None:
    lines = [
        "\x1b[92mINFO \x1b[0m:      [ROUND 1/3]",
        "round 1/3  accuracy 50.0%",
        "\x1b[93mWARNING \x1b[0m:   something is odd",
        "\x1b[91mERROR \x1b[0m:     something is wrong",
        "2026-01-01 10:00:00,123\tINFO worker.py:1 -- Started a local Ray instance.",
    ]
    assert shown(lines) == lines[1:4]
    assert shown(lines, verbose=True) == lines


def test_nodes_that_fail_alike_show_one_line() -> None:
    lines = [f"ERROR :     ray::Actor.run() (pid={pid}, actor_id=ab{pid})" for pid in (1, 2, 3)]
    assert shown(lines) == lines[:1]
