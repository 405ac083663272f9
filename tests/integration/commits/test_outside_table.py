"""Messages and records that lead out of their table: nothing is written, deleted or committed there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.common.errors import OutsideTable, Refused
from producer.model.job import Report, Status
from producer.state.job_store import ROOT
from producer.storage.files import delete_files
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, Create, equality, fill, head, rows
from tests.support.compacting import asked
from tests.support.faulty import Jobs

#: Changes a record, as somebody does who can write it.
Forge = Callable[[dict[str, Any]], None]


@pytest.fixture
def foreign(create: Create) -> StreamTable:
    """Another table of the same catalog, whose name begins like that of the first."""
    other = create(2, "db.t2")
    fill(other)
    return other


class Scene:
    """A job of one table, a table that it has nothing to do with, and whether that is as it was."""

    def __init__(self, jobs: Jobs, stream: StreamTable, foreign: StreamTable) -> None:
        self.jobs, self.stream = jobs, stream
        self.location = stream.table.location()
        self.foreign = foreign.table.location()
        #: A file of the other table, which is to be touched by nobody.
        self.file = foreign.data_files()[0].path
        self._before = self._contents()

    def _contents(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in local(self.foreign).rglob("*") if path.is_file()}

    def forge(self, pattern: str, change: Forge) -> None:
        """Change records of the job."""
        found = sorted((local(self.location) / ROOT).rglob(pattern))
        assert found, pattern
        for path in found:
            record = json.loads(path.read_text())
            change(record)
            path.write_text(json.dumps(record))

    def untouched(self) -> bool:
        """Whether nothing was written, changed or deleted, and the job's table is as it was for its readers."""
        referred = {file.path for file in (*self.stream.data_files(), *self.stream.delete_files())}
        inside = all(path.startswith(f"{self.location}/") for path in referred)
        return inside and self._contents() == self._before and oracle.rows(self.stream.table) == ROWS


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


@pytest.fixture
def scene(jobs: Jobs, stream: StreamTable, foreign: StreamTable) -> Scene:
    return Scene(jobs, stream, foreign)


def staged(scene: Scene, compact: bool = False) -> Stage:
    """A job whose units are staged."""
    step = scene.jobs.start(asked(scene.jobs) if compact else scene.jobs.request())
    assert isinstance(step, Stage)
    return step


def failed(scene: Scene, report: Report, reason: str) -> None:
    """The job has ended with a reason, and left nothing."""
    assert report.status in {Status.FAILED, Status.PARTIAL}
    assert reason in str(report.reason), report.reason
    assert scene.untouched()
    assert not (local(scene.location) / ROOT).exists()


class TestMessages:
    """What a message says of places and names."""

    def test_records_outside_the_table_are_not_looked_for(self, scene: Scene) -> None:
        """The job goes on where its table is, with the next message that is right."""
        step = staged(scene)
        context = JobContext.open(step.plan.request.job, scene.foreign)
        assert advance(context, scene.jobs.settings) == Ended(None)
        assert scene.untouched()
        assert scene.jobs.end(step).status is Status.COMMITTED

    @pytest.mark.parametrize("known", [True, False], ids=["of a table", "of no table"])
    def test_records_of_another_job_are_not_taken_for_its_own(self, scene: Scene, known: bool) -> None:
        """Who sends a message with a job's token under another name gets nothing of the job ended or deleted."""
        step = staged(scene)
        job, table = step.plan.request.job, "db.t2" if known else "db.none"
        context = JobContext.open(job.replace(":db.t:", f":{table}:"), scene.location)
        before = sorted(local(scene.location).rglob("*"))
        with pytest.raises(OutsideTable, match=r"is that of convert:default:db\.t:"):
            advance(context, scene.jobs.settings)
        with pytest.raises(OutsideTable, match=r"is that of convert:default:db\.t:"):
            stage(context, step.plan, 0, scene.jobs.settings, lambda done, of: None)
        assert sorted(local(scene.location).rglob("*")) == before
        assert scene.jobs.end(step).status is Status.COMMITTED
        assert scene.untouched()

    @pytest.mark.parametrize("token", ["../../../t2/x", "20240501T101500-1a2b3c4d/..", "part", ".", "0-1"])
    def test_a_token_that_leads_out(self, scene: Scene, token: str) -> None:
        with pytest.raises(Refused, match="is not a job id"):
            JobContext.open(f"convert:default:db.t:{token}")

    def test_a_number_that_leads_out(self, scene: Scene) -> None:
        """A round or a unit that is no number names a record, in the job's folder, that is not there."""
        step = staged(scene)
        context = JobContext.open(step.plan.request.job)
        target = local(scene.foreign) / "plan.json"
        shutil.copy(next((local(scene.location) / ROOT).rglob("plan-0.json")), target)
        up = f"{'../' * 4}{target.parent.name}/plan"
        assert context.store.plan(f"x/{up}") is None  # type: ignore[arg-type]
        assert context.store.at(step.plan).unit(f"x/{up}") is None  # type: ignore[arg-type]

    def test_a_request_for_one_table_under_the_name_of_another(self, scene: Scene) -> None:
        request = scene.jobs.request()
        step = begin(request.model_copy(update={"table": "db.t2"}), scene.jobs.settings)
        assert isinstance(step, Ended)
        assert step.report is not None
        assert step.report.status is Status.REFUSED
        assert "db.t2" in str(step.report.reason)
        assert scene.untouched()


class TestPlans:
    """What a plan says, once somebody has changed it."""

    @pytest.mark.parametrize("again", [False, True], ids=["commit", "plan"])
    @pytest.mark.parametrize("field", ["location", "request"])
    def test_outside_the_table(self, scene: Scene, field: str, again: bool) -> None:
        step = staged(scene)

        def forge(plan: dict[str, Any]) -> None:
            if field == "location":
                plan["location"] = scene.foreign
            else:
                plan["request"]["table"] = "db.t2"

        scene.forge("plan-0.json", forge)
        report = scene.jobs.end(begin(step.plan.request, scene.jobs.settings) if again else step)
        failed(scene, report, "db.t2" if field == "request" else scene.foreign)
        assert report.table == "db.t"

    def test_whose_token_leads_out(self, scene: Scene) -> None:
        step = staged(scene)
        scene.forge("plan-0.json", lambda record: record.update(token=f"/../../../../{local(scene.foreign).name}"))
        failed(scene, scene.jobs.end(step), "is no name of a plan")

    @pytest.mark.parametrize("compact", [False, True], ids=["convert", "compact"])
    def test_partitions_that_lead_out(self, scene: Scene, compact: bool) -> None:
        """The names of partitions are folders of what is written."""
        request = asked(scene.jobs) if compact else scene.jobs.request()
        step = begin(request, scene.jobs.settings)
        assert isinstance(step, Stage)

        def forge(unit: dict[str, Any]) -> None:
            for scope in unit["scopes"]:
                scope["label"] = f"../../{local(scene.foreign).name}/data"

        scene.forge("unit-*.json", forge)
        context = JobContext.open(request.job)
        for _ in range(scene.jobs.settings.max_attempts):
            for number in step.units:
                try:
                    stage(context, step.plan, number, scene.jobs.settings, lambda done, of: None)
                except Exception as error:
                    assert "outside of the table's locations" in str(error)  # noqa: PT017
        if scene.stream.table.metadata.format_version == 3 and not compact:
            return  # vectors lie in no partition's folder
        failed(scene, scene.jobs.end(step), "outside of the table's locations")

    @pytest.mark.parametrize("what", ["data", "deletes"])
    @pytest.mark.parametrize("compact", [False, True], ids=["convert", "compact"])
    def test_inputs_outside_the_table_are_not_read(self, scene: Scene, compact: bool, what: str) -> None:
        request = asked(scene.jobs) if compact else scene.jobs.request()
        step = begin(request, scene.jobs.settings)
        assert isinstance(step, Stage)

        def forge(unit: dict[str, Any]) -> None:
            unit[what][0]["path"] = scene.file

        scene.forge("unit-*.json", forge)
        scene.jobs.stage(step)
        assert scene.jobs.staged == []
        failed(scene, scene.jobs.end(step), f"{scene.file} is no file of db.t")

    def test_inputs_of_the_table_in_other_places_are_read(self, jobs: Jobs, stream: StreamTable) -> None:
        """Files that a table has of an earlier place of its own, or was given, are converted and compacted like any."""
        landing = local(stream.table.location()).parent / "landing"
        stream.table.transaction().set_properties({"write.data.path": f"file://{landing}"}).commit_transaction()
        stream.append(rows(7, 8))
        stream.table.transaction().remove_properties("write.data.path").commit_transaction()
        (outside,) = landing.rglob("*.parquet")
        stream.delete_where_equal(rows(8), ["id"])
        assert jobs.run().status is Status.COMMITTED
        assert equality(stream) == []
        assert jobs.run(asked(jobs)).status is Status.COMMITTED
        assert oracle.rows(stream.table) == ROWS + Counter({(7, "a"): 1})
        assert outside.exists()


class TestRecords:
    """What attempts, journals, staged records and notes of commits say."""

    @pytest.mark.parametrize("evil", ["foreign", "dots", "prefix"])
    @pytest.mark.parametrize("compact", [False, True], ids=["convert", "compact"])
    def test_staged_files_outside_the_table(self, scene: Scene, compact: bool, evil: str) -> None:
        step = staged(scene, compact)
        token = step.plan.request.token
        beside = local(f"{scene.location}-evil") / "data" / f"{token}-x.parquet"
        beside.parent.mkdir(parents=True)
        shutil.copy(local(scene.file), beside)
        path = {
            "foreign": scene.file,
            "dots": f"{scene.location}/data/../../{local(scene.file).relative_to(local(scene.location).parent)}",
            "prefix": f"file://{beside}",
        }[evil]

        def forge(record: dict[str, Any]) -> None:
            for kind in ("deletes", "vectors", "data"):
                for file in record[kind]:
                    file["path"] = path

        scene.forge("staged-*.json", forge)
        failed(scene, scene.jobs.end(step), "outside of the table's locations")
        assert beside.exists()

    @pytest.mark.parametrize("whose", ["another table's", "the table's own", "the journal's"])
    def test_attempts_that_name_files_of_others(self, scene: Scene, whose: str) -> None:
        """What an attempt says that it may write is deleted at the end: not what carries another name."""
        step = begin(asked(scene.jobs), scene.jobs.settings)
        assert isinstance(step, Stage)
        context = JobContext.open(step.plan.request.job)
        scene.jobs.broken = set(step.units)
        scene.jobs.staged = []
        for number in step.units:
            with pytest.raises(Exception, match="does not want to"):
                stage(context, step.plan, number, scene.jobs.settings, lambda done, of: None)
        own = next(local(scene.location).glob("data/**/*.parquet"))
        orphan = own.with_name("00000-of-somebody-who-is-about-to-commit.parquet")
        shutil.copy(own, orphan)
        target = {"another table's": scene.file, "the table's own": str(orphan)}.get(whose, scene.file)
        note = local(scene.foreign) / "journal-0-0"
        if whose == "the journal's":
            note.write_text(scene.file)
            scene._before = scene._contents()

        def forge(attempt: dict[str, Any]) -> None:
            attempt["paths"] = [target]
            if whose == "the journal's":
                attempt["journal"] = str(note).removesuffix("-0-0")
                attempt["tasks"] = 1

        scene.forge("attempt-*.json", forge)
        context.store.cancel()
        assert scene.jobs.end(step).status is Status.CANCELLED
        assert orphan.exists()
        assert scene.untouched()

    def test_a_journal_of_its_own_that_names_files_of_others(self, scene: Scene) -> None:
        step = begin(asked(scene.jobs), scene.jobs.settings)
        assert isinstance(step, Stage)
        context = JobContext.open(step.plan.request.job)
        scene.jobs.broken = set(step.units)
        with pytest.raises(Exception, match="does not want to"):
            stage(context, step.plan, 0, scene.jobs.settings, lambda done, of: None)
        (attempt,) = context.store.at(step.plan).attempts(0)
        assert attempt.journal is not None
        local(f"{attempt.journal}-0-0").write_text(scene.file)
        context.store.cancel()
        assert scene.jobs.end(step).status is Status.CANCELLED
        assert scene.untouched()
        assert not (local(scene.location) / ROOT).exists()

    def test_notes_of_commits_that_lead_out(self, scene: Scene) -> None:
        """Manifests of a commit that died are found by the name that its note says they carry."""
        step = staged(scene)
        context = JobContext.open(step.plan.request.job)
        manifest = next(local(scene.foreign).glob("metadata/*-m0.avro"))
        name = f"../../{local(scene.foreign).name}/metadata/{manifest.name.removesuffix('-m0.avro')}"
        note = {"token": "forged", "started": 1.0, "snapshots": {name: 1}}
        folder = local(context.store.at(step.plan).records.base)
        (folder / "commit-0.json").write_text(json.dumps(note))
        context.store.cancel()
        assert scene.jobs.end(step).status is Status.CANCELLED
        assert scene.untouched()

    def test_a_conclusion_of_another_job(self, scene: Scene) -> None:
        step = staged(scene)
        context = JobContext.open(step.plan.request.job)
        other = scene.jobs.request("db.t2")
        context.store.conclude(Report(job=other.job, table="db.t2", status=Status.COMMITTED))
        report = scene.jobs.end(step)
        assert (report.job, report.status) == (step.plan.request.job, Status.COMMITTED)


def test_access_is_fenced_whatever_asks_for_it(scene: Scene) -> None:
    """The last fence: what a job writes and deletes goes through it."""
    step = staged(scene)
    context = JobContext.open(step.plan.request.job)
    for io in (context.store.io, context.reload(step.plan).io):
        with pytest.raises(OutsideTable, match="not written"):
            io.new_output(f"{scene.location}-evil/x")
        with pytest.raises(OutsideTable, match="not deleted"):
            io.delete(scene.file)
        with pytest.raises(OutsideTable, match="not deleted"):
            delete_files(io, [scene.file])
        with pytest.raises(OutsideTable, match="not deleted"):
            io.delete(io.new_input(scene.file))
        assert io.new_input(scene.file).exists()
    before = head(scene.stream)
    assert scene.jobs.end(step).status is Status.COMMITTED
    assert head(scene.stream) != before
