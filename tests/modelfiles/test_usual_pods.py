"""The pods that usually arrive, declared by a model: in a file beside it, in its own tables, or by the snapshot."""

from pathlib import Path

import pytest

from kai_solver.domain import UsualPod
from kai_solver.errors import ModelFileError
from kai_solver.modelfiles import load_model

HEAD = 'extends = "leftover"\nname = "mine"\n[leftover]\n'
COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_of_pods_is_counted_by_kind(tmp_path: Path) -> None:
    rows = "a,4000,8192,1,500,\nb,8000,1024,2,1000,A100|H100\nc,4000,8192,1,500,\nd,1000,512,0,0,\n"
    write(tmp_path, COLUMNS + rows, "pods.csv")
    assert set(load_model(write(tmp_path, HEAD + 'usual = "pods.csv"\n')).usual) == {
        UsualPod(4000, 8192, 1, 500, (), 2.0),
        UsualPod(8000, 1024, 2, 1000, ("A100", "H100")),
        UsualPod(1000, 512, 0, 0),
    }


def test_the_hash_is_of_the_pods_not_of_the_files_name(tmp_path: Path) -> None:
    rows = "a,4000,8192,1,500,\n"
    for name, text in (("one.csv", rows), ("two.csv", rows), ("more.csv", rows + rows)):
        write(tmp_path, COLUMNS + text, name)
    hashes = [load_model(write(tmp_path, HEAD + f'usual = "{n}.csv"\n')).hash for n in ("one", "two", "more")]
    assert hashes[0] == hashes[1] != hashes[2]


def test_rows_may_stand_in_the_model_and_the_snapshot_is_the_default(tmp_path: Path) -> None:
    table = "usual = [{cpu_milli = 2000, num_gpu = 8, pods = 3}]\n"
    assert load_model(write(tmp_path, HEAD + table)).usual == (UsualPod(2000, 0, 8, 1000, (), 3.0),)
    assert load_model("leftover").usual == ()
    assert load_model("leftover").prices_leftover
    assert not load_model("default").prices_leftover


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu_milli,num_gpu\n1,1\n", "has no column memory_mib"),
        (COLUMNS + "a,many,1,1,1000,\n", "many"),
        (COLUMNS + "a,0,1,1,1000,\n", "must be 1 or more"),
        (COLUMNS + "a,1000,1,2,500,\n", "parts of several GPUs"),
        (COLUMNS + "a,1000,1,1,0,\n", "0 of each"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, text, "pods.csv")
    with pytest.raises(ModelFileError, match=says) as caught:
        load_model(write(tmp_path, HEAD + 'usual = "pods.csv"\n'))
    assert caught.value.field.startswith("leftover.usual")
    assert caught.value.cure


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_model(write(tmp_path, HEAD + 'usual = "nowhere.csv"\n'))
