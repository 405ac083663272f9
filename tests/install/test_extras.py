"""Each extra in a clean environment of its own, without the tests' packages: what it is there for works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.fleet.localfleet import LOGIN, LocalFleet
from tests.install.environments import Environment, Warehouse, copy_sources
from tests.support.repository import REPOSITORY

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]

#: What no extra that is shipped may need.
TESTS_ONLY = ("pytest", "hypothesis", "fastavro", "yaml", "mypy", "tests", "bench")

IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
left_out = tuple(sys.argv[2].split(",")) if len(sys.argv) > 2 else ()
for name in sys.argv[1].split(","):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        if not found.name.startswith(left_out) if left_out else True:
            importlib.import_module(found.name)
print(*sorted(n for n in sys.modules if n.partition(".")[0] in ("producer", "tasks", "workers")))
"""

MAKE_TABLE = """
import sys
import pyarrow as pa
from tasks.testing import StreamTable
from pyiceberg.catalog import load_catalog
schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
events = StreamTable.create(load_catalog("default"), sys.argv[1], schema)
events.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
events.delete_where_equal(pa.table({"id": [2]}), ["id"])
"""

ENQUEUE = "import sys; from producer import Fleet; print(Fleet().convert(sys.argv[1]).id)"
WAIT = "import sys; from producer import Fleet; print(Fleet().job(sys.argv[1]).wait(150).status)"

CLIENT = """
from producer import Fleet
from tasks.testing import StreamTable
from workers.runtime.session import session

job = Fleet().convert("db.events")
reveal_type(job)
reveal_type(job.wait().added_position_deletes)
reveal_type(StreamTable.append)
reveal_type(session)
Fleet().convert(1)
"""


@pytest.fixture(scope="session")
def served(fleet: LocalFleet, worker: Environment) -> LocalFleet:
    """A fleet of one worker for all queues, as installed by ``.[worker,sqlite]``."""
    fleet.processes.start("worker", worker.command("icefleet", "worker"), worker.variables(fleet.environment))
    fleet.answering("icefleet", within=120)
    return fleet


@pytest.mark.parametrize("extras", ["", "flower", "worker,sqlite", "demo"])
def test_nothing_of_the_tests_is_installed(warehouse: Warehouse, extras: str) -> None:
    code = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    assert warehouse.environment(extras).said("python", "-c", code, *TESTS_ONLY).strip() == "[]"


@pytest.mark.parametrize(
    ("extras", "packages", "left_out"),
    [
        ("", "producer,tasks.application,tasks.commands.beat,tasks.commands.flower,tasks.messaging.base_task", ""),
        ("flower", "producer,tasks.application,tasks.commands.flower", ""),
        ("worker,sqlite", "producer,workers,tasks", "tasks.demo."),
        ("demo", "producer,workers,tasks", ""),
    ],
)
def test_what_an_extra_is_for_can_be_imported(warehouse: Warehouse, extras: str, packages: str, left_out: str) -> None:
    imported = warehouse.environment(extras).said("python", "-c", IMPORT_ALL, packages, *filter(None, [left_out]))
    assert set(packages.split(",")) <= set(imported.split())


@pytest.mark.redis
@pytest.mark.spark
def test_an_application_enqueues_and_a_worker_commits(
    served: LocalFleet, plain: Environment, worker: Environment
) -> None:
    variables = served.environment
    worker.said("python", "-c", MAKE_TABLE, "db.events", more=variables)
    redis_alone = {"ICEFLEET_BROKER_URL": served.broker_url}  # an application needs no catalog
    job = plain.said("python", "-c", ENQUEUE, "db.events", more=redis_alone).strip()
    assert plain.said("python", "-c", WAIT, job, more=redis_alone).strip() == "committed"
    assert served.catalog.load_table("db.events").scan().to_arrow()["id"].to_pylist() == [1, 3]


@pytest.mark.redis
@pytest.mark.spark
def test_the_command_line_converts_and_flower_shows_it(
    served: LocalFleet, worker: Environment, flower: Environment
) -> None:
    start = flower.command("icefleet", "flower", f"--port={served.flower_port}")
    served.processes.start("flower", start, flower.variables(served.environment | {"FLOWER_BASIC_AUTH": LOGIN}))

    def answers() -> bool:
        with suppress(URLError):
            return bool(served.flower("/api/workers"))
        return False

    served.processes.wait_for("Flower", answers)
    worker.said("python", "-c", MAKE_TABLE, "db.shown", more=served.environment)
    report = json.loads(worker.said("icefleet", "convert", "db.shown", "--json", more=served.environment))
    assert (report["status"], report["added_position_deletes"]) == ("committed", 1)
    served.processes.wait_for(
        "the job in Flower",
        lambda: (
            {"icefleet.plan", "icefleet.convert", "icefleet.commit"}
            <= {task["name"] for task in served.flower(f"/api/tasks?search={report['job']}").values()}
        ),
    )


@pytest.mark.redis
def test_beat_needs_no_extra(fleet: LocalFleet, plain: Environment) -> None:
    environment = plain.variables({"ICEFLEET_BROKER_URL": fleet.broker_url, "ICEFLEET_SWEEP_SECONDS": "1"})
    environment |= {"HOME": str(plain.empty)}
    fleet.processes.start("beat", plain.command("icefleet", "beat", "--loglevel", "INFO"), environment)
    log = fleet.processes.log("beat")
    fleet.processes.wait_for("a sweep", lambda: "Sending due task sweep" in log.read_text())
    fleet.processes.kill("beat")


@pytest.mark.parametrize(("command", "extra"), [("worker", "worker"), ("flower", "flower"), ("demo", "demo")])
def test_a_command_says_which_extra_it_needs(plain: Environment, command: str, extra: str) -> None:
    done = plain.run("icefleet", command, more={"ICEFLEET_BROKER_URL": "redis://127.0.0.1:1/0"})
    assert done.returncode == 2, done.stderr
    assert re.search(rf"needs \w+.*: install icefleet\[{extra}\]", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_the_demonstration_runs(demo: Environment) -> None:
    small = ("--scale", "0.002", "--batches", "1", "--json")
    output = json.loads(demo.said("icefleet", "demo", *small, timeout=600))
    assert (output["equal"], output["converted"]["equality_delete_files"]) == (True, 0), output


def _checked(environment: Environment, folder: Path) -> str:
    """Check an application in a folder by types, with what an environment has installed."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment.python, "client.py"],
        cwd=folder,
        env=environment.variables(),
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_types_are_seen_by_whoever_installs_the_wheel(worker: Environment, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    output = _checked(worker, tmp_path)
    assert 'Revealed type is "producer.job.Job"' in output, output
    assert 'Revealed type is "int"' in output or 'Revealed type is "builtins.int"' in output
    assert "def (self: tasks.testing.table.StreamTable" in output
    assert re.search(r'"def \(budget: workers\.runtime\.machine\.Budget', output)
    errors = [line for line in output.splitlines() if ": error: " in line]
    assert [line.partition(":")[2].partition(":")[0] for line in errors] == [str(CLIENT.count("\n"))], output
    assert "[arg-type]" in errors[0]


def test_an_application_may_have_tasks_and_workers_of_its_own(plain: Environment, tmp_path: Path) -> None:
    """What it imports of Icefleet needs neither of the packages that they hide."""
    (tmp_path / "tasks.py").write_text("def greet() -> str:\n    return 'mine'\n")
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").write_text("number: int = 7\n")
    (tmp_path / "client.py").write_text(
        "import tasks\nimport workers\n\nfrom producer import Fleet, Report, Settings\n\n\n"
        "def convert(fleet: Fleet) -> Report:\n    return fleet.convert('db.events').wait()\n\n\n"
        "print(tasks.greet(), workers.number, Fleet(Settings(broker_url='redis://127.0.0.1:1/0')).jobs.__name__)\n"
    )
    assert _checked(plain, tmp_path) == "Success: no issues found in 1 source file\n"
    done = plain.run("python", str(tmp_path / "client.py"))
    assert (done.returncode, done.stdout) == (0, "mine 7 jobs\n"), done.stderr


def test_the_image_is_built_step_by_step(warehouse: Warehouse) -> None:
    """The first stage of the Dockerfile as it stands, in folders of its own and with the wheels that are there."""
    root = warehouse.root / "image"
    source = copy_sources(warehouse.root / "context")
    (root / "src").mkdir(parents=True)
    environment = Environment(root / "opt" / "icefleet", root / "src")
    variables = environment.variables(
        {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(warehouse.wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    )
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    variables["PATH"] = f"{root / 'bin'}:{variables['PATH']}"
    text = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", "")
    steps = (
        ("FROM " + re.split(r"^FROM ", text, flags=re.MULTILINE)[1])
        .replace("/opt/icefleet", str(environment.root))
        .splitlines()
    )
    kinds = [step.partition(" ")[0] for step in steps if step and not step.startswith("#")]
    assert set(kinds) == {"FROM", "WORKDIR", "COPY", "RUN"}
    for step in steps:
        kind, _, rest = step.partition(" ")
        if kind == "COPY":
            *names, place = rest.split()
            copied = [str(source / name) for name in names]
            # As COPY does: of a folder its contents, which go into the one that is there.
            copied = [f"{name}/." if Path(name).is_dir() else name for name in copied]
            rest = f"mkdir -p {place} && cp -r {' '.join(copied)} {place}" if Path(copied[0]).is_dir() else ""
            rest = rest or f"cp {' '.join(copied)} {place}"
        elif kind != "RUN":
            continue
        done = subprocess.run(
            ["sh", "-ec", rest], cwd=root / "src", env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
    built = Environment(environment.root, warehouse.root)
    everything = built.said("python", "-P", "-c", IMPORT_ALL, "icefleet_main,producer,workers,tasks")
    assert {"producer.cli.main", "workers.operations.rewrite", "tasks.app", "tasks.demo.reading"} <= set(
        everything.split()
    )
    known = "from tasks.app import app; print(*(n for n in sorted(app.tasks) if n.startswith('icefleet.')))"
    tasks = built.said("python", "-P", "-c", known).split()
    assert tasks == ["icefleet.commit", "icefleet.compact", "icefleet.convert", "icefleet.plan", "icefleet.sweep"]
    commands = built.said("icefleet", "--help")
    assert all(re.search(rf"^  {name} ", commands, re.MULTILINE) for name in ("worker", "beat", "flower", "demo"))
    assert "(needs" not in commands
