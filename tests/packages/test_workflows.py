"""GitHub's files in `.github` and the hooks before a commit: their form, and what they run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
PROGRAMS = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Programs of GitHub's machines.
HOSTED = {"curl", "docker", "echo", "gh", "mkdir", "mongod", "mongos"}


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("dependabot", "dependabot.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
    ],
)
def test_the_files_of_github_are_valid(schema: str, pattern: str) -> None:
    """They fit the schema that GitHub's editor uses."""
    files = sorted((ROOT / ".github").glob(pattern))
    assert files
    command = [PROGRAMS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_have_no_known_weakness() -> None:
    """Their permissions are the least, and no text of strangers is executed."""
    command = [PROGRAMS / "zizmor", "--offline", "--no-progress", "--strict-collection", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "release.yml" in done.stderr


def test_each_lock_file_of_npm_is_kept_up_to_date() -> None:
    """Dependabot proposes new versions for the folders that it is given, and for no others."""
    listed = subprocess.run(
        ["git", "ls-files", "*package-lock.json"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    folders = {f"/{Path(each).parent.as_posix()}" for each in listed.splitlines()}
    updates = _read(ROOT / ".github" / "dependabot.yml")["updates"]
    [npm] = [each for each in updates if each["package-ecosystem"] == "npm"]
    assert set(npm["directories"]) == folders


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_job_has_a_bound_and_each_workflow_its_permissions(name: str) -> None:
    """A job that hangs ends, and none has the permissions of the repository's default."""
    workflow = _read(WORKFLOWS[name])
    assert [key for key, job in workflow["jobs"].items() if "timeout-minutes" not in job] == []
    assert "concurrency" in workflow
    assert workflow["permissions"] in ({}, {"contents": "read"})


def _missing(script: str) -> list[str]:
    """Return the commands of a script that are neither of this repository nor of the machine."""
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    missing = []
    for line in script.replace("\\\n", " ").splitlines():
        first, *rest = line.removeprefix("sudo ").split()
        if first == "make":
            missing += [f"make {each}" for each in rest if each not in targets]
        elif "/" in first:
            path = ROOT / first
            if not (path.is_file() and path.stat().st_mode & 0o100):
                missing.append(first)
        elif first not in HOSTED:
            missing.append(first)
    return missing


@pytest.mark.parametrize("name", WORKFLOWS)
def test_commands_of_the_workflows_exist(name: str) -> None:
    """A target of the Makefile, or a script, that is renamed is renamed in the workflows, too."""
    scripts = [step["run"] for step in _steps(_read(WORKFLOWS[name])) if "run" in step]
    assert scripts
    assert [missing for script in scripts for missing in _missing(script)] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    """The check above reads each line of a script."""
    script = "make test\nmake nowhere\ntools/setup demo\ntools/nowhere 1 \\\n  make\nnowhere"
    assert _missing(script) == ["make nowhere", "tools/nowhere", "nowhere"]


def test_hooks_before_a_commit_use_the_locked_tools() -> None:
    """Each program of `.venv/bin` is installed with the tests."""
    [local] = _read(ROOT / ".pre-commit-config.yaml")["repos"]
    named = {
        name for hook in local["hooks"] for name in re.findall(r"\.venv/bin/(\S+)", hook["entry"])
    }
    assert {"ruff", "mypy", "lint-imports"} <= named
    assert [name for name in sorted(named) if not (PROGRAMS / name).exists()] == []


def test_the_tests_run_on_each_python_that_the_package_names() -> None:
    """The classifiers promise them, and `tools/setup` takes the one of the job."""
    tests = _read(WORKFLOWS["ci.yml"])["jobs"]["tests"]
    promised = [
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if ":: Python :: 3." in each
    ]
    assert tests["strategy"]["matrix"]["python"] == promised
    assert tests["env"]["PYTHON"] == "python${{ matrix.python }}"


def test_a_release_builds_the_image_of_this_repository() -> None:
    """The Dockerfile is where the workflow builds from."""
    builds = [
        step["with"]["context"]
        for step in _steps(_read(WORKFLOWS["release.yml"]))
        if step.get("uses", "").startswith("docker/build-push-action@")
    ]
    assert builds
    assert [each for each in builds if not (ROOT / each / "Dockerfile").is_file()] == []


def test_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    """A tag of another version than the package's publishes nothing."""
    program = ROOT / "tools" / "release-notes"
    other = subprocess.run([program, "99.0.0"], capture_output=True, text=True)
    assert other.returncode != 0
    assert "99.0.0, expected" in other.stderr
    base = "https://example.org/"
    own = subprocess.run([program, PROJECT["version"], base], capture_output=True, text=True)
    assert own.stdout.strip(), own.stderr
    assert [each for each in re.findall(r"\]\((.+?)\)", own.stdout) if ":" not in each] == []
