"""Search spaces: what is read, what is refused with a cure, and how instances are divided."""

from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.tune import read_space, split
from kai_solver.lab.tune.parameters import document_with
from kai_solver.lab.tune.splitting import SplitDoc
from kai_solver.modelfiles import available_models, load_model, model_from_document, model_text, write_model


def read_and_split(path: Path) -> None:
    space = read_space(path)
    split(space.instances, space.doc.split)


def changed(path: Path, before: str, after: str) -> InputError:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(InputError) as caught:
        read_and_split(path)
    assert caught.value.cure
    return caught.value


def test_a_space_starts_from_the_present_values(small: Path) -> None:
    space = read_space(small)
    assert space.present == {
        "search.question_s": 1.0,
        "search.presolve": "none",
        "stages.disruption.share": 0.35,
        "search.parameters.linearization_level": 1,
    }
    assert [one.name for one in space.instances] == ["quiet-1", "quiet-2", "quiet-3", "empty-1", "empty-2"]
    assert space.budget_s == 0.3


@pytest.mark.parametrize(
    ("before", "after", "field", "cure"),
    [
        ("search.question_s:", "search.questions_s:", "parameters.search.questions_s", "Did you mean"),
        ("search.question_s:", "search.questions_s:", "parameters.search.questions_s", "stages.links.share"),
        ("search.question_s:", "search.workers:", "parameters.search.workers", "Delete it"),
        ("stages.disruption.share:", "moves.restart_s:", "parameters.moves.restart_s", "Delete it"),
        ("stages.disruption.share:", "stages.leftover.share:", "parameters.stages.leftover.share", "Known: search."),
        (
            "linearization_level",
            "linearisation_level",
            "parameters.search.parameters.linearisation_level",
            "Did you mean search.parameters.linearization_level?",
        ),
        ("linearization_level", "num_workers", "parameters.search.parameters.num_workers", "Delete it"),
        ("[none, light]", "[light, auto]", "parameters.search.presolve", "Make room"),
        ("[none, light]", "[none, heavy]", "parameters.search.presolve", "Correct"),
        ("{choices: [none, light]}", "{low: 1, high: 2}", "parameters.search.presolve", ""),
        ("high: 0.8}", "high: 1.8}", "parameters.stages.disruption.share", ""),
        ("low: 0.1, high: 0.8}", "low: 0.5, high: 0.8}", "parameters.stages.disruption.share", "Make room"),
        ("low: 0.1, high: 0.8}", "low: 0.9, high: 0.8}", "parameters.stages.disruption.share", ""),
        ("[0, 1, 2]", "[0, 1, 2.5]", "parameters.search.parameters.linearization_level", "whole number"),
        ("name: small\n", "name: small\nmodel: defautl\n", "", "Models:"),
        ("name: small\n", "name: small\nmodel: greedy-only\n", "model", "enabled = true"),
        ("kai-tune/v1", "kai-tune/v2", "format", "kai-tune/v1"),
        ("budget: 300ms", "budget: soon", "budget", ""),
        ("generate: {kind: empty, nodes: 2}", "file: gone.yaml", "instances[1].file", "relative to this file"),
        ("name: empty", "name: quiet", "instances", "its own name"),
        ("families: [empty]", "families: [emty]", "split.families", "Did you mean empty?"),
        ("split: {families: [empty]}", "", "split", "`use`"),
        ("split: {families: [empty]}", "split: {families: [empty, quiet]}", "split", "`use`"),
        ("split: {families: [empty]}", "split: {after: 2026-01-01}", "split.after", "`at`"),
    ],
)
def test_what_is_wrong_is_named_with_its_cure(small: Path, before: str, after: str, field: str, cure: str) -> None:
    error = changed(small, before, after)
    assert error.field == field
    assert cure in error.cure


def test_a_fraction_holds_families_out_by_their_names(small: Path) -> None:
    instances = read_space(small).instances
    found = split(instances, SplitDoc(fraction=0.5))
    assert len({one.family for one in found.test}) == 1
    assert {one.family for one in found.test}.isdisjoint(one.family for one in found.training)
    assert split(tuple(reversed(instances)), SplitDoc(fraction=0.5)).test[0].family == found.test[0].family
    assert found.shared == ()


def test_time_divides_a_family(small: Path) -> None:
    instances = [replace(one, at_s=float(day * 86_400)) for day, one in enumerate(read_space(small).instances)]
    found = split(instances, SplitDoc.model_validate({"after": "1970-01-02"}))
    assert [one.name for one in found.training] == ["quiet-1"]
    assert found.shared == ()


def test_a_family_on_both_sides_is_told(small: Path) -> None:
    instances = read_space(small).instances
    mixed = [replace(one, use="test" if one.name == "quiet-2" else "training") for one in instances]
    assert split(mixed, SplitDoc()).shared == ("quiet",)


def test_values_that_are_the_present_ones_change_nothing(small: Path, tmp_path: Path) -> None:
    space = read_space(small)
    same = model_from_document(document_with(space.document, space.model, space.present))
    assert same == space.model
    values = space.present | {"stages.disruption.share": 0.5, "search.parameters.linearization_level": 2}
    document = document_with(space.document, space.model, values)
    write_model(document, tmp_path / "found.toml")
    found = load_model(tmp_path / "found.toml")
    assert found.stages[0].share == 0.5
    assert found.search.parameters == {"linearization_level": 2}
    assert found == model_from_document(document)


@pytest.mark.parametrize("name", ["leftover", "max-utilization", "fast", "deterministic"])
def test_a_written_model_says_what_its_document_says(name: str, tmp_path: Path) -> None:
    from kai_solver.modelfiles import complete_document

    document = complete_document(name) | {"summary": 'a "quoted"\tline\x7f\nand ü'}
    write_model(document, tmp_path / "copy.toml")
    assert load_model(tmp_path / "copy.toml") == model_from_document(document)


@pytest.mark.parametrize("name", available_models())
def test_a_model_is_written_as_a_file_that_reads_as_the_same_model(name: str, tmp_path: Path) -> None:
    model = load_model(name)
    (tmp_path / "copy.toml").write_text(model_text(model), encoding="utf-8")
    assert load_model(tmp_path / "copy.toml") == model


def test_a_model_with_usual_pods_and_parameters_is_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'extends = "leftover"\nname = "mine"\n'
        "[search.parameters]\nlinearization_level = 0\nmip_max_bound = 1e6\nuse_lns = true\n"
        '[leftover]\nusual = [{cpu_milli = 4000, num_gpu = 1, gpu_milli = 500, gpu_spec = "A100|H100", pods = 3}, '
        "{cpu_milli = 500}]\n"
    )
    model = load_model(tmp_path / "mine.toml")
    assert model.usual
    (tmp_path / "copy.toml").write_text(model_text(model), encoding="utf-8")
    assert load_model(tmp_path / "copy.toml") == model
