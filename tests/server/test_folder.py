"""Run folders: created, reopened, and never overwritten."""

import errno
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedcomp.sync import Traffic
from server.folder import RunFolder, create_folder, reopen_folder
from server.run_records import RoundRecord
from server.settings import Settings

MakeSettings = Callable[..., Settings]


def test_runs_without_a_name_are_numbered_and_a_named_one_is_never_overwritten(settings: MakeSettings) -> None:
    names = [create_folder(settings()).path.name for _ in range(3)]
    assert names == ["digits-001", "digits-002", "digits-003"]
    numbered = reopen_folder(settings(run_name="digits-002", resume=True))
    assert json.loads(numbered.settings.read_text())["run-name"] == "digits-002"
    mine = create_folder(settings(run_name="mine", seed=5))
    assert Settings.from_config(json.loads(mine.settings.read_text())) == settings(run_name="mine", seed=5)
    mine.write("summary.json", b"old")
    with pytest.raises(ValueError, match=r"mine holds a run already; choose another run-name$"):
        create_folder(settings(run_name="mine"))  # it has ended, without a checkpoint
    assert mine.summary.read_bytes() == b"old"


def test_an_impossible_folder_is_a_wrong_setting(settings: MakeSettings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="^runs-dir is '.*file'; "):
        create_folder(settings(runs_dir=str(tmp_path / "file")))


def test_a_start_that_is_stopped_before_its_settings_are_written_leaves_the_name_free(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Killed(BaseException):
        """The process ends."""

    def kill(*_: object, **__: object) -> None:
        raise Killed

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for stop, error in ((kill, Killed), (full, ValueError)):
        with monkeypatch.context() as patched:
            patched.setattr("server.folder.write_atomically", stop)
            with pytest.raises(error):
                create_folder(settings(run_name="mine"))
        with pytest.raises(ValueError, match="there is no run 'mine'"):
            reopen_folder(settings(run_name="mine", resume=True))
    (tmp_path / "runs" / "mine").mkdir()  # as an older version left it
    assert create_folder(settings(run_name="mine")).settings.exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_two_starts_at_once_do_not_share_a_folder(settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, mine = Path.rename, settings(run_name="mine")
    others: list[Path] = []

    def rename_later(self: Path, target: Path) -> Path:
        if not others:
            others.append(target)
            RunFolder(target).write_json("settings.json", {"of": "another"})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_later)
    with pytest.raises(ValueError, match="holds a run already"):
        create_folder(mine)
    assert [path.name for path in others[0].parent.iterdir()] == ["mine"]
    assert json.loads((others[0] / "settings.json").read_text()) == {"of": "another"}


def test_starts_at_the_same_time_each_get_a_folder_with_their_own_settings(settings: MakeSettings) -> None:
    barrier = threading.Barrier(8)

    def start(seed: int) -> RunFolder:
        barrier.wait()
        return create_folder(settings(seed=seed))

    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            folders = list(pool.map(start, range(8)))
        assert len({folder.path for folder in folders}) == 8
        for seed, folder in enumerate(folders):
            assert json.loads(folder.settings.read_text())["seed"] == seed


def test_records_come_back_but_those_after_the_checkpoint_and_half_a_line_are_dropped(settings: MakeSettings) -> None:
    folder = create_folder(settings())
    records = [RoundRecord(0, 0.1, None), RoundRecord(1, None, 2.5, Traffic(uplink_bytes=3, encode_seconds=0.125))]
    for record in records:
        folder.append(record)
    assert folder.records() == records
    assert len(folder.rounds.read_text().splitlines()) == 2
    with folder.rounds.open("a") as file:
        file.write('{"round": 2, "accu')
    folder.keep_rounds(0)
    assert folder.records() == records[:1]


def test_a_write_leaves_no_partial_file_and_others_may_read_it(settings: MakeSettings) -> None:
    folder = create_folder(settings())
    folder.write_json("summary.json", {"a": 1})
    assert sorted(path.name for path in folder.path.iterdir()) == ["settings.json", "summary.json"]
    assert folder.summary.stat().st_mode & 0o777 == 0o644


def test_resuming_needs_a_run_and_its_checkpoint(settings: MakeSettings) -> None:
    with pytest.raises(ValueError, match="'gone'"):
        reopen_folder(settings(run_name="gone", resume=True))
    bare = create_folder(settings(run_name="bare"))
    with pytest.raises(ValueError, match=r"bare .*run-name, or resume it with resume=true$"):
        create_folder(settings(run_name="bare"))
    assert reopen_folder(settings(run_name="bare", resume=True)).path == bare.path, "it has finished no round"
    bare.append(RoundRecord(1, 0.2, None))
    with pytest.raises(ValueError, match="bare .*checkpoint-every above 0"):
        reopen_folder(settings(run_name="bare", resume=True))
    early = create_folder(settings(run_name="early", checkpoint_every=2))
    assert reopen_folder(settings(run_name="early", resume=True, checkpoint_every=2)).path == early.path


@pytest.mark.parametrize("link", [False, True])
def test_a_run_whose_checkpoint_is_gone_is_not_begun_anew(link: bool, settings: MakeSettings) -> None:
    mine = settings(run_name="mine", resume=True, checkpoint_every=1)
    folder = create_folder(mine)
    folder.append(RoundRecord(0, 0.1, None))
    assert reopen_folder(mine).path == folder.path, "it ended before its first round"
    folder.append(RoundRecord(1, 0.2, None))
    if link:
        folder.checkpoint.symlink_to("nothing")
    before = folder.rounds.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint is missing, and the run has finished round 1; put .* run-name"):
        reopen_folder(mine)
    assert folder.rounds.read_bytes() == before


@pytest.mark.parametrize(
    "junk",
    [
        b"\0\0",
        b"not JSON\n",
        b"[1]\n",
        b"{}\n",
        b'{"round": "three"}\n',
        b'{"round": null, "accuracy": 1, "loss": 1}\n',
        b"\xff\xfe\n",
    ],
)
def test_junk_in_a_file_is_an_error_that_names_it(junk: bytes, settings: MakeSettings) -> None:
    mine = settings(run_name="mine", resume=True, checkpoint_every=1)
    folder = create_folder(mine)
    folder.append(RoundRecord(0, 0.1, None))
    with folder.rounds.open("ab") as file:
        file.write(junk)
    if junk.endswith(b"\n"):
        with pytest.raises(ValueError, match=r"rounds\.jsonl: line 2 is no record"):
            folder.keep_rounds(5)
    else:
        folder.keep_rounds(5)
        assert len(folder.records()) == 1
    folder.settings.write_bytes(junk)
    with pytest.raises(ValueError, match=r"settings\.json holds"):
        reopen_folder(mine)


def test_partial_files_of_a_killed_server_are_removed(settings: MakeSettings) -> None:
    mine = settings(run_name="mine", resume=True, checkpoint_every=1)
    left = create_folder(mine).path / ".checkpoint.x.partial"
    left.write_bytes(b"half")
    reopen_folder(mine)
    assert not left.exists()


def test_a_run_resumes_with_its_own_settings_only(settings: MakeSettings) -> None:
    folder = create_folder(settings(run_name="mine", checkpoint_every=1))
    folder.checkpoint.write_bytes(b"")
    assert reopen_folder(settings(run_name="mine", resume=True, num_rounds=500)).path == folder.path
    with pytest.raises(ValueError, match=r"^learning-rate is 0\.5; 0\.1, .*'mine'"):
        reopen_folder(settings(run_name="mine", resume=True, learning_rate=0.5))
