from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gmip import EpsilonDelta, Gaussian, tasks
from gmip._io import read_yaml
from gmip.attacks import attack_table
from gmip.auditing import AuditConfig, JudgeSettings, make_config
from gmip.auditing.settings import template
from gmip.errors import InvalidArgument
from gmip.parallel import BACKENDS
from gmip.vocabulary import PrivacyTarget, Rate


def test_the_template_is_all_settings_with_their_defaults() -> None:
    given = yaml.safe_load(template())
    assert make_config(given) == AuditConfig()
    assert set(given) == set(AuditConfig.model_fields)


def test_short_forms() -> None:
    config = make_config(
        {
            "runs": ["runs/a", {"name": "b", "target": "tpr=0.1@0.01"}],
            "attacks": ["glir", {"name": "lira", "options": {"online": False}}],
            "target": "tpr=0.1@0.01",
        }
    )
    assert config.runs[0].path == "runs/a"
    assert config.runs[1].trained_to() == PrivacyTarget(target_tpr=Rate(0.1, 0.01))
    assert [attack.name for attack in config.attacks] == ["glir", "lira"]
    assert config.attacks[1].options == {"online": False}
    assert config.target == Rate(0.1, 0.01)


def test_what_was_claimed() -> None:
    assert make_config({}).judge_settings(1) == JudgeSettings(seed=1)
    mu = make_config({"claim": "mu=0.5"}).judge_settings(1).claim
    assert isinstance(mu, Gaussian) and mu.mu == 0.5
    for given in ("epsilon=3@1e-5", [3, 1e-5]):
        assert make_config({"claim": given}).claim == (3.0, 1e-5)
    curve = make_config({"claim": "epsilon=3"}).judge_settings(1).claim
    assert isinstance(curve, EpsilonDelta) and curve.epsilon(0.0) == pytest.approx(3.0)


def test_one_run_and_one_attack_need_no_list() -> None:
    config = make_config({"runs": "runs/a", "attacks": "loss"})
    assert [run.path for run in config.runs] == ["runs/a"]
    assert [attack.name for attack in config.attacks] == ["loss"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"atacks": ["glir"]},
            "atacks in audit.yaml is not a setting, did you mean 'attacks': the settings are attacks, ",
        ),
        ({"shadows": {"cuont": 3}}, "shadows.cuont in audit.yaml is not a setting, did you mean 'count': "),
        ({"runs": [{"paht": "x"}]}, "runs.0.paht in audit.yaml is not a setting, did you mean 'path'"),
        (
            {"runs": [{"recipe": {"batchsize": 5}}]},
            "has an unknown setting 'batchsize' in its recipe, did you mean 'batch_size'",
        ),
        (
            {"attacks": [{"name": "glir", "option": {}}]},
            "attacks.0.option in audit.yaml is not a setting, did you mean 'options'",
        ),
        ({"seed": True}, "seed in audit.yaml should not be true or false"),
        ({"shadows": {"count": True}}, "shadows.count in audit.yaml should not be true or false"),
        ({"title": True}, "title in audit.yaml should not be true or false (quote it if it is text)"),
        ({"repeats": 0}, "repeats in audit.yaml should be greater than or equal to 1"),
        ({"repeats": "many"}, "repeats"),
        ({"confidence": 1.0}, "confidence"),
        (
            {"shadows": {"backend": "dsk"}},
            "shadows.backend in audit.yaml is not known, did you mean 'dask': pass one of",
        ),
        ({"delta": float("nan")}, "delta"),
        ({"target": "tpr=0.05"}, "target in audit.yaml must be like tpr=0.05@0.01"),
        ({"target": "mu=1"}, "target in audit.yaml must be like tpr=0.05@0.01 for an audit"),
        ({"target": [0.01, 0.05]}, "target = 0.01 in audit.yaml at a false-alarm rate of 0.05 cannot be reached"),
        ({"claim": "epsilon=3@2"}, "claim in audit.yaml must be like mu=0.5 or epsilon=3@1e-5"),
        ({"claim": "epsilon=3@1@1"}, "claim in audit.yaml must be like mu=0.5 or epsilon=3@1e-5"),
        ({"runs": [{"target": "mi=1"}]}, "runs.0.target in audit.yaml must be mu=..."),
        ({"runs": []}, "runs"),
        ({"runs": [{"path": "a", "target": "mu=1"}]}, "has a path, so the run is trained already"),
        ({"runs": [{"notion": "gdp"}]}, "has a notion but no target"),
        ({"runs": [{"target": "mu=1", "recipe": {"noise_std": 1.0}}]}, "a target and a noise_std"),
        ({"attacks": ["glir", "glir"]}, "names 'glir' twice"),
        ({"runs": [{"name": "a"}, {"name": "a"}]}, "names 'a' twice"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_get_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        make_config(given, "audit.yaml")
    text = str(error.value)
    assert " in audit.yaml " in text and words in text and "\n" not in text and text.endswith(".")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1, 2", "is not YAML"),
        (b"- 1\n- 2\n", "must hold settings"),
        (b"", "must hold settings"),
        (b"1: 2\n", "must hold settings"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"a: !!python/object/apply:os.system ['true']\n", "is not YAML"),
        (b"when: 2026-99-99\n", "is not YAML"),
        (b"seed: 1\ntask: digits\nseed: 2\n", "'seed' is there twice, again on line 3"),
        (b"task: digits\nshadows:\n  count: 1\n  count: 2\n", "'count' is there twice"),
        (b"a: !!map [b]\n", "is not YAML"),
        (b'x: !!int ""\n', "'' on line 1 is no int"),
        (b'y: 1\nx: !!int "-"\n', "'-' on line 2 is no int"),
        (b'x: !!float ""\n', "'' on line 1 is no float"),
        (b"x: !!timestamp zz\n", "'zz' on line 1 is no timestamp"),
        (b"x: !!bool maybe\n", "'maybe' on line 1 is no bool"),
    ],
    ids=[
        "open list",
        "a list",
        "empty",
        "number as key",
        "not text",
        "python object",
        "no date",
        "twice",
        "twice inside",
        "no map",
        "empty int",
        "sign alone",
        "empty float",
        "no timestamp",
        "no bool",
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "audit.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=words):
        read_yaml(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not exist: gmip init"):
        read_yaml(tmp_path / "audit.yaml")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_yaml(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"runs": 3}, "runs should be a list."),
        ({"runs": []}, "runs should not be empty."),
        ({"runs": [3]}, "runs.0 should be settings, such as {name: value}."),
        ({"fprs": 0.1}, "fprs should be a list."),
        ({"candidates": 2.5}, "candidates should be a whole number."),
        ({"confidence": "high"}, "confidence should be a number."),
        ({"title": 3}, "title should be text."),
    ],
)
def test_mistakes_are_told_in_the_terms_of_a_settings_file(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make_config(given)
    assert str(caught.value) == words


def test_the_template_names_all_that_can_be_chosen() -> None:
    for name in (*tasks.names(), *attack_table.names(), *BACKENDS):
        assert name in template()
