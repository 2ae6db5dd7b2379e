"""What a user sees of a run over SuperNodes: what `flwr run --stream` prints, without what it says of every run."""

from deploy.lines import Filter

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


def shown(text: str) -> list[str]:
    """The lines of `text` that are shown."""
    chosen = Filter(verbose=False)
    return [kept for line in text.splitlines() for kept in chosen.show(line)]


def test_of_a_run_whose_setting_the_server_refused_nothing_is_shown() -> None:
    assert shown(REFUSED.format(error="server.settings.SettingsError: no dataset card 'nope'")) == []


def test_of_a_run_that_crashed_the_traceback_is_shown() -> None:
    lines = shown(REFUSED.format(error="RuntimeError: all is lost"))
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: all is lost"
