"""What goes into a bundle: the node's list, the walk over requirements, the rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from fixtures.bundle.closure import MISSING, Closure, close
from fixtures.bundle.haslist import parse_has, read_has
from fixtures.bundle.resolution import Resolution, Resolved
from fixtures.bundle.rules import Rules, read_rules
from fixtures.bundle.target import Target
from fixtures.errors import ConfigError, InfraError

HOPPER = Target(python="3.12", arch="sm_90")
BLACKWELL = Target(python="3.12", arch="sm_100")


class TestHasList:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("torch==2.11.0+cu130\nnumpy==2.5.2\n", {"torch": "2.11.0+cu130", "numpy": "2.5.2"}),
            ("Package Version\n------- -------\nPyYAML  6.0.4\n", {"pyyaml": "6.0.4"}),
            ("Package Version Editable project location\nmine 1.0 /src/mine\n", {"mine": "1.0"}),
            ("numba\n# a remark\n\nHugging_Face.Hub  # known\n", None),
            ("tool @ file:///wheels/tool.whl\n-e git+ssh://host/repo\n", {"tool": None}),
        ],
    )
    def test_it_is_read_as_pip_and_people_write_it(
        self, text: str, expected: dict[str, str | None] | None
    ) -> None:
        found = {name: version and str(version) for name, version in parse_has(text).items()}
        assert found == (expected or {"numba": None, "hugging-face-hub": None})

    @pytest.mark.parametrize("line", ["what is this", "numpy==latest", "../../etc", "a=1"])
    def test_a_line_that_is_no_package_is_named(self, line: str, tmp_path: Path) -> None:
        file = tmp_path / "node.txt"
        file.write_text(f"torch==2.11.0\n{line}\n")
        with pytest.raises(
            ConfigError, match=r"node\.txt: line 2: .* no package .*--format=freeze"
        ):
            read_has(file)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.txt: cannot be read"):
            read_has(tmp_path / "none.txt")

    @given(
        st.dictionaries(
            st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True).filter(
                lambda name: name != "package"
            ),
            st.tuples(st.integers(0, 99), st.integers(0, 99)),
        )
    )
    def test_what_pip_freezes_comes_back(self, packages: dict[str, tuple[int, int]]) -> None:
        text = "\n".join(f"{name}=={a}.{b}" for name, (a, b) in packages.items())
        assert parse_has(text) == {n: Version(f"{a}.{b}") for n, (a, b) in packages.items()}


def resolution(**packages: tuple[str, tuple[str, ...]]) -> Resolution:
    made = (Resolved(name=n, version=v, requires=r) for n, (v, r) in packages.items())
    return {entry.name: entry for entry in made}  # type: ignore[misc]


def closed(found: Resolution, has: str = "", rules: Rules | None = None) -> Closure:
    return close([Requirement("top")], found, parse_has(has), rules or Rules(), HOPPER)


def shipped(closure: Closure) -> dict[str, str]:
    return {entry.package.name: entry.why for entry in closure.shipped}


class TestWhatIsShipped:
    CHAIN = resolution(
        top=("1.0", ("middle>=2", 'odd; python_version < "3.12"', "extra-only; extra == 'all'")),
        middle=("2.0", ("low", "fast; extra == 'speed'")),
        low=("3.0", ()),
        fast=("1.0", ()),
    )

    def test_all_that_is_needed_where_the_node_has_nothing(self) -> None:
        assert shipped(closed(self.CHAIN)) == dict.fromkeys(("low", "middle", "top"), MISSING)

    def test_a_fitting_package_of_the_node_stays_out_with_what_it_needs(self) -> None:
        made = closed(self.CHAIN, "middle==2.4")
        assert set(shipped(made)) == {"top"}
        assert [(e.name, e.has, e.why) for e in made.left_out] == [
            ("middle", "2.4", "the node has it")
        ]

    def test_one_that_does_not_satisfy_is_shipped_and_said(self) -> None:
        made = closed(self.CHAIN, "middle==1.9\nlow==1.0")
        assert shipped(made)["middle"] == "the node's 1.9 doesn't satisfy >=2"
        assert [entry.name for entry in made.left_out] == ["low"]

    def test_a_name_without_a_version_counts_as_fitting(self) -> None:
        made = closed(self.CHAIN, "middle")
        assert set(shipped(made)) == {"top"}
        assert "isn't said" in made.left_out[0].why

    def test_a_later_demand_overturns_an_earlier_one(self) -> None:
        found = resolution(
            top=("1.0", ("a", "b>=2", "b")), a=("1.0", ("b>=1",)), b=("2.0", ("c",)), c=("1", ())
        )
        made = closed(found, "b==1.5")
        assert set(shipped(made)) == {"top", "a", "b", "c"}
        assert made.left_out == ()

    def test_an_extra_of_a_package_that_the_node_has_is_not_forgotten(self) -> None:
        found = resolution(
            **{
                "top": ("1.0", ("middle[speed]",)),
                "middle": ("2.0", ("low", "fast; extra == 'speed'")),
                "fast": ("1.0", ()),
            }
        )
        assert set(shipped(closed(found, "middle==2.0"))) == {"top", "fast"}

    def test_a_rule_takes_out_a_package_with_what_only_it_needs(self) -> None:
        rules = Rules.model_validate({"packages": [{"name": "Middle", "reason": "not for us"}]})
        made = closed(self.CHAIN, rules=rules)
        assert set(shipped(made)) == {"top"}
        assert made.left_out[0].why == "not for us"

    def test_a_hole_in_the_resolution_is_an_error(self) -> None:
        with pytest.raises(InfraError, match="pip resolved no gone"):
            closed(resolution(top=("1.0", ("gone>=1",))))


class TestRules:
    def test_the_table_is_sound_and_gives_reasons(self) -> None:
        rules = read_rules()
        assert all(rule.reason for rule in (*rules.packages, *rules.files))

    @pytest.mark.parametrize(
        ("path", "target", "taken"),
        [
            ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", HOPPER, True),
            ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", BLACKWELL, False),
            ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", HOPPER, False),
            ("vllm/third_party/deep_gemm/_C.cpython-312-x86_64-linux-gnu.so", HOPPER, False),
            ("vllm/third_party/deep_gemm/_C.cpython-313-x86_64-linux-gnu.so", HOPPER, True),
            ("vllm/third_party/deep_gemm/include/cute/arch/util.hpp", HOPPER, False),
            ("tilelang/3rdparty/cutlass/include/cute/arch/util.hpp", HOPPER, False),
            ("flashinfer/data/include/flashinfer/attention/decode.cuh", HOPPER, False),
            ("vllm/model_executor/models/llama.py", HOPPER, False),
            ("vllm-0.26.0.dist-info/METADATA", HOPPER, False),
        ],
    )
    def test_which_files_stay_out(self, path: str, target: Target, taken: bool) -> None:
        assert (read_rules().for_target(target).file(path, target) is not None) is taken

    def test_a_wrong_table_names_file_and_key(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.yaml"
        file.write_text(
            "files:\n  - pattern: '*.a'\n    reason: static libraries\n    arches: [9]\n"
        )
        with pytest.raises(ConfigError, match=r"rules\.yaml: files\.0\.arches"):
            read_rules(file)

    @pytest.mark.parametrize(
        ("python", "arch", "glibc", "option"),
        [("3", "sm_90", "2.35", "--python"), ("3.12", "hopper", "2.35", "--arch"),
         ("3.12", "sm_90", "musl", "--glibc")],
    )  # fmt: skip
    def test_a_target_that_is_none_names_the_option(
        self, python: str, arch: str, glibc: str, option: str
    ) -> None:
        with pytest.raises(ConfigError, match=option):
            Target.of(python, arch, glibc)
