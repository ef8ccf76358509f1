"""The pipeline's steps: settings, shards, YAML; nothing of a plan becomes more than text."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from click import Group
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from typer.main import get_command

from buildkite.costs import measured_costs
from buildkite.planning import plan_for_fleet
from buildkite.selection import SelectedCell, Selection, selected
from buildkite.settings import DEFAULT_SETTINGS, Settings, read_settings
from buildkite.shards import Schedule, shards_of
from buildkite.steps import bootstrap_of, nothing_to_run, pipeline_of
from buildkite.text import to_yaml
from buildkite.vllm import vllm_group
from fixtures.cells.axes import Tier
from fixtures.cells.cell import Cell, CellKey, Omission, Plan, Requirements, Source
from fixtures.cells.sweeps import load_catalog
from fixtures.errors import ConfigError, InfraError
from fixtures.schema import read_yaml
from gates.verdict import ExitCode
from graphgate.cli import app
from reports.history.store import History
from suites.selftest.build import SOURCE, a_cell, a_plan, a_run, an_attempt
from suites.selftest.nights import NOW, night
from suites.selftest.snapshots import is_as_before
from suites.selftest.standin.interpolation import interpolated

SHIPPED = read_settings()
DIGEST = "0" * 64
SCHEMA = Draft7Validator(get_builtin_schema("vendor.buildkite"))
VLLM_FIELDS = {
    *("label", "key", "depends_on", "commands", "device", "num_devices", "num_nodes"),
    *("source_file_dependencies", "optional", "soft_fail", "parallelism", "concurrency"),
    *("concurrency_group", "timeout_in_minutes", "env", "retry", "mirror"),
}
"""What a step of vLLM's own generator may say."""


A_CHECKOUT = Source(
    kind="checkout",
    request="vllm",
    version="0.33.0",
    identity=f"commit:{'ab' * 20}",
    python_path="/nowhere",
)


def cells_of(tier: str, models: int, gpus: int = 0) -> list[Cell]:
    """The cells of `models` models in two modes with both flags."""
    keys = [
        f"model{number}.{mode}.bk{flag}.{tier}"
        for number in range(models)
        for flag in (0, 1)
        for mode in ("NONE", "FULL")
    ]
    needs = Requirements(gpus=gpus)
    return [a_cell(key).model_copy(update={"requirements": needs}) for key in keys]


A_SMALL_PLAN = a_plan(*cells_of("contract", 1))


@cache
def a_large_plan() -> Plan:
    return a_plan(*cells_of("contract", 60), *cells_of("canary", 60, 1), *cells_of("score", 6, 8))


def a_schedule(
    made: Plan | None = None, pipeline: str = "nightly", settings: Settings = SHIPPED
) -> Schedule:
    made = made or a_large_plan()
    shards = shards_of(made, settings, {})
    return Schedule(pipeline=pipeline, settings=settings, plan=made, shards=shards)


def real_plan(pipeline: str) -> Plan:
    """What the real planner makes of the shipped sweep and a checkout, for the shipped fleet."""
    return plan_for_fleet(SHIPPED, pipeline, A_CHECKOUT, load_catalog())


def read_back(text: str) -> Any:
    """The pipeline as Buildkite has it after `buildkite-agent pipeline upload`."""
    return interpolated(yaml.safe_load(text), {"HOME": "expanded", "USER": "expanded"})


def steps_by_key(pipeline: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["key"]: step for step in pipeline["steps"]}


class TestSettings:
    @pytest.mark.parametrize("code", [10, 11, 12, 13, 14, 30, 31])
    def test_a_verdict_is_never_retried_nor_softened(self, code: int, tmp_path: Path) -> None:
        for change in ({"retry": [{"exit_status": code, "limit": 1}]}, {"soft_fail": [code]}):
            with pytest.raises(ConfigError, match=f"{next(iter(change))}.*{code} is a verdict"):
                read_settings(self.changed(tmp_path, change))

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"queues": {}}, "queues: .*remove this key"),
            ({"retry": [{"limit": 2}]}, r"retry\.0: .*fits every end"),
            ({"retry": [{"exit_status": 20, "limit": 11}]}, r"retry\.0\.limit"),
            ({"setup": [r"echo \$HOME"]}, r"setup\.0: .*backslash"),
            ({"plugins": {"a": [{"x#1": {}, "y#1": {}}]}}, r"plugins\.a: .*one key"),
            ({"lanes": {"c": {"tier": "contract"}}}, "lanes.c.queue: .*add this key"),
            ({"env": {"A B": "c"}}, "env"),
            ({"changed_tree": None}, r"pipelines\.pr needs changed_tree"),
            ({"changed_tree": {"checkout": "v", "base_variable": "a; b"}}, "changed_tree.base_var"),
        ],
    )
    def test_an_error_names_file_key_and_remedy(
        self, change: dict[str, Any], told: str, tmp_path: Path
    ) -> None:
        path = self.changed(tmp_path, change)
        with pytest.raises(ConfigError, match=told) as caught:
            read_settings(path)
        assert str(caught.value).startswith(f"{path}: ")

    def test_a_tier_needs_a_lane(self, tmp_path: Path) -> None:
        lanes = {
            name: lane.plain()
            for name, lane in SHIPPED.lanes.items()
            if lane.tier is not Tier.SCORE
        }
        with pytest.raises(ConfigError, match=r"pipelines\.nightly asks for score"):
            read_settings(self.changed(tmp_path, {"lanes": lanes}))

    def test_a_group_needs_its_size(self, tmp_path: Path) -> None:
        lanes = {name: lane.plain() for name, lane in SHIPPED.lanes.items()}
        lanes["score-8"]["concurrency"] = None
        with pytest.raises(ConfigError, match=r"lanes\.score-8: .*need each other"):
            read_settings(self.changed(tmp_path, {"lanes": lanes}))

    @staticmethod
    def changed(folder: Path, change: dict[str, Any]) -> Path:
        path = folder / "settings.yaml"
        path.write_text(yaml.safe_dump({**read_yaml(DEFAULT_SETTINGS), **change}))
        return path


class TestShards:
    @effort(max_examples=30, deadline=None)
    @given(
        seconds=st.lists(st.floats(1, 10_000), min_size=1, max_size=60),
        target=st.floats(1, 100),
        most=st.integers(1, 20),
    )
    def test_each_cell_is_in_one_shard_arms_stay_whole_and_loads_are_even(
        self, seconds: list[float], target: float, most: int
    ) -> None:
        made = a_plan(*cells_of("contract", len(seconds)))
        costs = {str(c.key): seconds[int(c.key.model.removeprefix("model"))] for c in made.cells}
        lane = SHIPPED.lanes["contract"].model_copy(
            update={"target_minutes": target, "most_shards": most}
        )
        shards = shards_of(made, SHIPPED.model_copy(update={"lanes": {"contract": lane}}), costs)
        where = {str(key): shard.number for shard in shards for key in shard.cells}
        assert sum(len(shard.cells) for shard in shards) == len(where) == len(made.cells)
        for cell in made.cells:
            assert cell.reference is None or where[str(cell.key)] == where[str(cell.reference)]
        loads = [sum(costs[str(key)] for key in shard.cells) for shard in shards]
        assert 1 <= len(loads) <= most
        # No shard exceeds an even share by more than one arm (two cells here).
        assert max(loads) <= sum(loads) / len(loads) + 2 * max(seconds) + 1e-6

    def test_equal_plans_make_equal_shards(self) -> None:
        assert a_schedule() == a_schedule()

    def test_a_cell_goes_where_there_are_gpus_enough(self) -> None:
        big = cells_of("canary", 1, 8)
        lane = SHIPPED.lanes["canary"]
        lanes = {"canary": lane, "canary-8": lane.model_copy(update={"gpus": 8})}
        settings = SHIPPED.model_copy(update={"lanes": lanes})
        assert {shard.lane for shard in shards_of(a_plan(*big), settings, {})} == {"canary-8"}
        with pytest.raises(ConfigError, match="no lane of the canary tier has 8 GPUs"):
            shards_of(a_plan(*big), SHIPPED, {})

    def test_costs_are_medians_of_the_latest_nights(self, tmp_path: Path) -> None:
        cell = a_cell("llama.FULL.bk0.canary")
        with History(tmp_path / "history.sqlite") as history:
            for day, seconds in enumerate([9_000.0, 10.0, 12.0, 900.0]):
                attempt = an_attempt().model_copy(update={"timings": {"work": seconds}})
                made = night([a_run(cell, attempts=(attempt,))])
                at = NOW + timedelta(days=day)
                history.add_night(made.verdicts, made.plan, made.runs, at)
            assert measured_costs(history, nights=3) == {str(cell.key): 12.0}
        # Known costs make shards; without them every cell has the lane's fallback.
        other = a_cell("llama.FULL.bk1.canary")
        lane = SHIPPED.lanes["canary"].model_copy(update={"fallback_seconds": 100.0})
        settings = SHIPPED.model_copy(update={"lanes": {"canary": lane}})
        shards = shards_of(a_plan(cell, other), settings, {str(cell.key): 12.0})
        assert [shard.seconds for shard in shards] == [112.0]


class TestPipeline:
    @pytest.mark.parametrize("name", ["nightly", "pr"])
    def test_the_shipped_sweeps_make_valid_pipelines(self, name: str) -> None:
        made = real_plan(name)
        assert {cell.key.tier for cell in made.cells} == set(SHIPPED.pipeline(name).tiers)
        pipeline = yaml.safe_load(to_yaml(pipeline_of(a_schedule(made, name), DIGEST)))
        assert list(SCHEMA.iter_errors(pipeline)) == []

    def test_a_checkout_is_planned_for_nodes_that_have_it_compiled(self) -> None:
        made = real_plan("pr")
        assert made.source == A_CHECKOUT
        bare = SHIPPED.fleet.model_copy(update={"compiled": False})
        settings = SHIPPED.model_copy(update={"fleet": bare})
        with pytest.raises(InfraError, match=r"--tier canary: .*compiled"):
            plan_for_fleet(settings, "pr", A_CHECKOUT, load_catalog())

    def test_checkpoints_come_from_the_settings(self) -> None:
        given = SHIPPED.checkpoints["dsv4"].checkpoint
        cells = real_plan("nightly").cells
        scored = [c for c in cells if c.key.model == "dsv4" and c.key.tier is Tier.SCORE]
        assert scored and {cell.requirements.checkpoint for cell in scored} == {given}
        wrong = SHIPPED.model_copy(update={"checkpoints": {"llama": SHIPPED.checkpoints["dsv4"]}})
        with pytest.raises(ConfigError, match=r"checkpoints\.llama: llama has no section"):
            wrong.catalog_of("nightly", load_catalog())

    @pytest.mark.parametrize("name", ["nightly", "pr"])
    def test_the_steps_look_as_before(self, name: str) -> None:
        schedule = a_schedule(pipeline=name)
        kind = SHIPPED.pipeline(name)
        kept = [cell for cell in schedule.plan.cells if cell.key.tier in kind.tiers]
        pipeline = pipeline_of(a_schedule(a_plan(*kept), name), DIGEST)
        assert list(SCHEMA.iter_errors(json.loads(json.dumps(pipeline)))) == []
        assert is_as_before(f"pipeline-{name}.yml", to_yaml(pipeline))

    def test_the_judge_runs_after_all_whatever_happened(self) -> None:
        steps = steps_by_key(pipeline_of(a_schedule(), DIGEST))
        judge = steps["graphgate-judge"]
        assert set(judge["depends_on"]) == set(steps) - {"graphgate-judge"}
        assert judge["allow_dependency_failure"] is True
        assert judge["notify"] == [{"github_commit_status": {"context": "graphgate"}}]
        assert steps["graphgate-canary"]["depends_on"] == ["graphgate-contract"]
        assert steps["graphgate-canary"]["allow_dependency_failure"] is True
        assert "depends_on" not in steps["graphgate-contract"]

    def test_scores_share_a_concurrency_group(self) -> None:
        score = steps_by_key(pipeline_of(a_schedule(), DIGEST))["graphgate-score-8"]
        assert score["concurrency_group"] == "graphgate/h200-8" and score["concurrency"] == 4

    def test_no_verdict_is_retried_and_an_infra_failure_is(self) -> None:
        for step in pipeline_of(a_schedule(), DIGEST)["steps"]:
            rules = step["retry"]["automatic"]
            codes = {rule.get("exit_status") for rule in rules}
            assert not codes & (set(ExitCode) - {ExitCode.INFRA}) and -1 in codes
            assert (20 in codes) == (step["key"] != "graphgate-judge")

    def test_a_checkouts_commit_is_pinned(self) -> None:
        source = SOURCE.model_copy(update={"kind": "checkout", "identity": f"commit:{'ab' * 20}"})
        made = a_plan(*cells_of("contract", 1), source=source)
        env = pipeline_of(a_schedule(made), DIGEST)["env"]
        assert env["GRAPHGATE_VLLM_COMMIT"] == "ab" * 20
        assert "GRAPHGATE_VLLM_COMMIT" not in pipeline_of(a_schedule(), DIGEST)["env"]

    def test_the_bootstrap_is_what_the_settings_say(self) -> None:
        text = to_yaml(bootstrap_of(SHIPPED))
        stored = Path(DEFAULT_SETTINGS).with_name("pipeline.yml").read_text(encoding="utf-8")
        comment, _, steps = stored.partition("steps:\n")
        assert f"steps:\n{steps}" == text
        assert all(line.startswith("#") for line in comment.splitlines())
        assert list(SCHEMA.iter_errors(yaml.safe_load(text))) == []
        held = yaml.safe_load(text)["steps"][0]
        assert held["block"] and held["if"] == "build.pull_request.repository.fork == true"

    def test_no_variable_of_a_pull_request_gets_into_a_shell(self) -> None:
        (step,) = (s for s in bootstrap_of(SHIPPED)["steps"] if s["key"] == "graphgate-plan-pr")
        commands = "\n".join(step["commands"])
        assert "$" not in commands and "BUILDKITE_PULL_REQUEST_BASE_BRANCH" in commands

    def test_every_command_of_a_step_is_one_that_graphgate_knows(self) -> None:
        steps = [*bootstrap_of(SHIPPED)["steps"][1:], *pipeline_of(a_schedule(), DIGEST)["steps"]]
        lines = {step["commands"][-1].partition(" || ")[0] for step in steps}
        lines |= {line for step in steps for line in step["commands"] if " affected " in line}
        assert len(lines) == 7  # two plans, affected, three lanes, the judge
        for line in lines:
            command, words = get_command(app), shlex.split(line)[1:]
            while isinstance(command, Group):
                command = command.commands[words.pop(0)]
            command.make_context(command.name, words)  # refuses what it doesn't know

    def test_a_change_that_no_cell_can_tell_has_one_green_step(self) -> None:
        pipeline = nothing_to_run(SHIPPED)
        assert list(SCHEMA.iter_errors(pipeline)) == []
        (step,) = pipeline["steps"]
        assert step["commands"] == ["true"] and step["notify"]


class TestHostileText:
    text = st.one_of(
        st.text(max_size=60),
        st.sampled_from(
            [
                "$HOME",
                "${USER:-x}",
                r"\$HOME",
                r"\\$HOME",
                "$(touch /tmp/x)",
                "`id`",
                "'; rm -rf /; '",
                "a: b\n- c: d",
                "&a *a !!python/object:x",
                "}}{{",
                "# no\n",
                "\x1b[31m\u202e",
                "trailing $",
                "$$",
            ]
        ),
    )

    @effort(max_examples=60, deadline=None)
    @given(version=text, request=text, identity=text, sweep=text)
    def test_text_of_a_tree_changes_nothing_but_a_label(
        self, version: str, request: str, identity: str, sweep: str
    ) -> None:
        source = SOURCE.model_copy(
            update={"version": version, "request": request, "identity": identity}
        )
        omission = Omission(tier=Tier.SCORE, reason=sweep)
        made = a_plan(*cells_of("contract", 1), source=source, sweep=sweep, omissions=(omission,))
        pipeline = pipeline_of(a_schedule(made), DIGEST)
        assert read_back(to_yaml(pipeline)) == pipeline
        plain = pipeline_of(a_schedule(A_SMALL_PLAN), DIGEST)
        labels = [step.pop("label") for step in pipeline["steps"]]
        for step in plain["steps"]:
            step.pop("label")
        assert pipeline == plain
        assert all("\n" not in label and len(label) < 120 for label in labels)

    @effort(max_examples=60, deadline=None)
    @given(value=text)
    def test_trusted_text_comes_through_as_it_is_or_is_refused(self, value: str) -> None:
        try:
            settings = Settings.model_validate({**SHIPPED.plain(), "setup": [value]})
        except ValueError:
            assert not value or "\\$" in value or not value.isprintable()
            return
        pipeline = pipeline_of(a_schedule(A_SMALL_PLAN, settings=settings), DIGEST)
        assert read_back(to_yaml(pipeline)) == pipeline
        assert pipeline["steps"][0]["commands"][0] == value

    def test_a_model_that_is_no_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="is no cell key"):
            CellKey.parse("$(id).FULL.bk0.contract")


class TestForVllmsGenerator:
    @pytest.mark.parametrize("name", ["nightly", "pr"])
    def test_steps_say_only_what_that_generator_knows(self, name: str) -> None:
        group = vllm_group(SHIPPED, name, list(load_catalog().models.values()))
        assert read_back(to_yaml(group)) == group
        for step in group["steps"]:
            assert set(step) <= VLLM_FIELDS
            assert ("concurrency" in step) == ("concurrency_group" in step)
        lanes = [step for step in group["steps"] if "parallelism" in step]
        # The judge runs after a shard that failed only because that fails softly.
        assert lanes and all(step["soft_fail"] is True for step in lanes)
        assert all("pipeline salvage" in step["commands"][-1] for step in lanes)

    def test_the_models_files_are_among_the_dependencies(self) -> None:
        group = vllm_group(SHIPPED, "nightly", list(load_catalog().models.values()))
        paths = group["steps"][0]["source_file_dependencies"]
        assert "vllm/model_executor/models/llama.py" in paths and "vllm/v1/worker/" in paths
        assert paths == sorted(set(paths))


class TestSelection:
    def test_references_come_along(self) -> None:
        made = a_plan(*cells_of("contract", 3))
        key = CellKey.parse("model1.FULL.bk1.contract")
        chosen = Selection(why="one file", cells=(SelectedCell(key=key, why="its model"),))
        assert [str(cell.key) for cell in selected(made, chosen).cells] == [
            "model1.NONE.bk1.contract",
            "model1.FULL.bk1.contract",
        ]

    def test_a_cell_that_is_not_planned_is_an_error(self) -> None:
        key = CellKey.parse("model9.FULL.bk1.contract")
        chosen = Selection(why="x", cells=(SelectedCell(key=key, why="y"),))
        with pytest.raises(ConfigError, match=r"model9\.FULL\.bk1\.contract is not in the plan"):
            selected(a_plan(*cells_of("contract", 1)), chosen)
