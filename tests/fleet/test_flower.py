"""What operators see: Flower's API while a job runs and after it, and its page in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.fleet.converted import PARTITIONS, Converted
from tests.fleet.localfleet import LOGIN, LocalFleet
from tests.fleet.tables import streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

PROGRESS = re.compile(r"(\d+)% (\d+)/(\d+) files")


def _of_job(tasks: dict[str, dict[str, Any]], job: str) -> list[dict[str, Any]]:
    return [task for task in tasks.values() if task["kwargs"] and job in task["kwargs"]]


def _shown(task: dict[str, Any]) -> str:
    return str(task["result"] or "").strip("'\"")


def test_arguments_name_table_partition_and_job(converted: Converted) -> None:
    tasks = _of_job(converted.sampled[-1], converted.job.id)
    assert len(tasks) == PARTITIONS
    partitions = set()
    for task in tasks:
        found = re.fullmatch(r"\{'table': '(.+?)', 'partition': '(.+?)', 'job': '(.+?)',.*\}", task["kwargs"])
        assert found, task["kwargs"]
        table, partition, job = found.groups()
        assert (table, job) == ("db.events", converted.job.id)
        partitions.add(partition)
    assert partitions == {f"part={number}" for number in range(PARTITIONS)}


def test_progress_is_seen_while_a_unit_runs(fleet: LocalFleet) -> None:
    table = streamed(fleet.catalog, "db.files", partitions=1, rows=4000, files=40, upserts=1)
    job = fleet.fleet.convert("db.files")
    fleet.planned(job.id)
    seen: dict[str, str] = {}
    while not job.status.ended:
        with suppress(HTTPError):  # not known to Flower yet
            task = fleet.flower(f"/api/task/info/convert:{job.id}:0:0")
            seen[_shown(task)] = task["state"]
    progress = [found.groups() for text, state in seen.items() if (found := PROGRESS.fullmatch(text))]
    assert {state for text, state in seen.items() if PROGRESS.fullmatch(text)} == {"PROGRESS"}
    dones = [int(done) for _, done, _ in progress]
    assert dones == sorted(dones)
    assert dones, seen  # how many of them depends on who is quicker
    assert {int(files) for _, _, files in progress} == {len(table.data_files())} == {41}


def test_results_are_sentences(fleet: LocalFleet, converted: Converted) -> None:
    # Asked anew: the last events come to Flower a moment after the job has ended.
    found = fleet.flower(f"/api/tasks?search={converted.job.id}")
    tasks = [task for task in _of_job(found, converted.job.id) if task["name"] == "icefleet.convert"]
    for task in tasks:
        assert task["state"] == "SUCCESS"
        assert re.fullmatch(r"[\d,]+ rows? in \d+ (delete file|vector)s?, [\d.]+ s", _shown(task)), task["result"]
    rows = sum(int(_shown(task).split()[0].replace(",", "")) for task in tasks)
    assert rows == converted.report.added_position_deletes


def test_plan_and_commit_are_seen_too(fleet: LocalFleet, converted: Converted) -> None:
    for name, result in (
        ("icefleet.plan", f"{PARTITIONS} units to stage"),
        ("icefleet.commit", f"committed: snapshot {converted.report.snapshot_id}, "),
    ):
        found = fleet.flower(f"/api/tasks?search={converted.job.id}")
        tasks = [task for task in _of_job(found, converted.job.id) if task["name"] == name]
        assert any(_shown(task).startswith(result) for task in tasks), tasks


def test_search_for_a_job_finds_its_tasks(fleet: LocalFleet, converted: Converted) -> None:
    found = fleet.flower(f"/api/tasks?search={converted.job.id}")
    assert {task["name"] for task in found.values()} == {"icefleet.plan", "icefleet.convert", "icefleet.commit"}
    assert _of_job(found, converted.job.id) == list(found.values())


def test_one_task_is_found_by_its_id(fleet: LocalFleet, converted: Converted) -> None:
    """Ids are made of the job's, so that whoever knows a job finds its tasks."""
    told = fleet.flower(f"/api/task/info/convert:{converted.job.id}:0:0")
    assert told["state"] == "SUCCESS"
    assert told["worker"].partition("@")[0] in {"red", "blue"}


def test_workers_are_seen(fleet: LocalFleet, converted: Converted) -> None:
    workers = fleet.flower("/api/workers?refresh=1")
    assert {name.partition("@")[0] for name in workers} == {"red", "blue", "committer"}


def test_nobody_looks_without_the_password(fleet: LocalFleet, converted: Converted) -> None:
    for path in ("/", "/api/tasks", "/api/workers"):
        for login in (None, "operator:wrong"):
            with pytest.raises(HTTPError) as refused:
                fleet.flower(path, login)
            assert refused.value.code == 401


class TestPage:
    """The page itself, in a browser without a screen."""

    def test_list_of_tasks(self, fleet: LocalFleet, converted: Converted, tmp_path: Path) -> None:
        job = fleet.fleet.convert("db.events", where="part = 3")  # the latest comes first
        job.wait(60)
        fleet.settle()
        page = _page(fleet, "/tasks", tmp_path, job.id)
        assert "icefleet.plan" in page
        assert "icefleet.convert" in page
        assert "db.events" in page
        assert job.id in page
        assert re.search(r"part=\d+", page)
        assert re.search(r"\d+ rows? in \d+ (delete file|vector)", page)
        picture = _picture(fleet, "/tasks", tmp_path)
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 20_000, "an empty page is smaller"

    def test_page_of_a_task(self, fleet: LocalFleet, converted: Converted, tmp_path: Path) -> None:
        page = _page(fleet, f"/task/convert:{converted.job.id}:0:0", tmp_path, converted.job.id)
        assert "db.events" in page
        assert re.search(r"\d+ rows? in \d+ (delete file|vector)", page)


def _page(fleet: LocalFleet, path: str, folder: Path, shows: str) -> str:
    """A page once it shows a text: on a busy machine a browser may look before the page's data has come."""
    return fleet.processes.wait_for(
        f"{shows} on {path}",
        lambda: page if shows in (page := _chromium(fleet, path, folder, "--dump-dom")) else None,
    )


def _picture(fleet: LocalFleet, path: str, folder: Path) -> Path:
    picture = folder / "page.png"
    _chromium(fleet, path, folder, f"--screenshot={picture}", "--window-size=1800,1000")
    return picture


def _chromium(fleet: LocalFleet, path: str, folder: Path, *what: str) -> str:
    """What a browser makes of a page once its scripts have run."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium")
    quiet = ("quic", "gpu", "background-networking", "component-update", "sync", "dev-shm-usage")
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            *(f"--disable-{thing}" for thing in quiet),
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=10000",
            *what,
            f"http://{LOGIN}@localhost:{fleet.flower_port}{path}",
        ],
        env=fleet.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
