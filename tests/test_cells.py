"""A name that a spreadsheet would take for a formula is text in every CSV, and comes back as it was."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odst.classifier.predict import COLUMNS, Answer, write_answers
from odst.data.cells import cells, plain
from odst.data.exclusions import read_exclusions
from odst.data.reading import read_set
from odst.errors import UserError
from odst.run.marks import read_marks, write_marks
from pictures import encoded
from test_marks import MARK

DANGEROUS = ["=cmd.jpg", "+1.png", "-1.jpg", "@x.png", "\tx.png", "\rx.png", "'=x.png", "''-x.png"]


@given(st.text(alphabet="'=+-@\t\r1.ea ", max_size=6) | st.text())
def test_a_cell_comes_back_as_it_was_and_is_no_formula(text: str) -> None:
    (written,) = cells([text])
    assert plain({"x": written}) == {"x": text}
    assert written[:1] not in ("=", "@", "\t", "\r")


@pytest.mark.parametrize("value", ["-1.5", "+3", "-2e-05", "-inf", -1.5, -3, None, "", "a=b", "file:///-1.jpg"])
def test_numbers_and_harmless_texts_stay_as_they_are(value: object) -> None:
    assert cells([value]) == [value]


def test_a_list_with_quoted_paths_and_labels_reads_the_files_that_it_means(tmp_path: Path) -> None:
    for i, name in enumerate(DANGEROUS):
        (tmp_path / name).write_bytes(encoded(i))
    with open(tmp_path / "list.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows(cells([name, f"={i % 2}"]) for i, name in enumerate(DANGEROUS))
    found = read_set(str(tmp_path / "list.csv"), 8, labelled=True)
    assert not found.rejected and found.labels == [f"={i % 2}" for i in range(len(DANGEROUS))]


def test_predictions_hold_no_formula_and_their_confidence_is_a_number(tmp_path: Path) -> None:
    rows = [Answer("file:///=cmd.jpg", "=cmd.jpg", "-cat", 0.5, "@dog", ""), Answer("u", "-1.jpg", "", None, "", "+x")]
    list(write_answers([rows], tmp_path / "answers.csv", None))
    with open(tmp_path / "answers.csv", newline="") as file:
        raw = list(csv.DictReader(file))
    assert list(raw[0].values()) == ["file:///=cmd.jpg", "'=cmd.jpg", "'-cat", "0.500000", "'@dog", ""]
    assert [plain(row)[COLUMNS[1]] for row in raw] == ["=cmd.jpg", "-1.jpg"]


def test_marks_of_classes_that_look_like_formulas_come_back_from_a_csv(tmp_path: Path) -> None:
    marks = [replace(MARK, name="=1+1", label="-a", who="@ann"), replace(MARK, name="'=x", label="+", who="-1")]
    write_marks(tmp_path / "marks.csv", marks)
    assert read_marks(tmp_path / "marks.csv") == marks
    assert ",=1+1" not in (tmp_path / "marks.csv").read_text()


@pytest.mark.parametrize("word", ["1_0", "٣", "1.0", "0x1", "1e3"])
def test_a_plain_list_of_ids_holds_digits_only(word: str, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text(f"1\n{word}\n")
    with pytest.raises(UserError, match="one whole number a line"):
        read_exclusions(tmp_path / "ids.txt", 2000, 0)
